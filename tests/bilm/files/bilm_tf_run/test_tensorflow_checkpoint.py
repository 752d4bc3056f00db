"""TensorFlow's checkpoints read without TensorFlow; the fixture was written by TensorFlow 2.21."""

import shutil
from pathlib import Path

import numpy
import pytest

from elmo_plugin.bilm.files.tensorflow.checkpoint import TensorFlowCheckpoint, latest_checkpoint
from elmo_plugin.bilm.files.tensorflow.crc32c import WORDS, crc32c
from elmo_plugin.bilm.files.tensorflow.snappy import decompress
from elmo_plugin.bilm.files.tensorflow.table import MAGIC, read_table
from elmo_plugin.bilm.files.tensorflow.varint import varint

FIXTURE = Path(__file__).parent / "checkpoint"
NAME = "model.ckpt-2"


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(FIXTURE, tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def held():
    with numpy.load(FIXTURE / "values.npz") as file:
        return {name: file[name] for name in file if not name.startswith(("gradient/", "after/"))}


def bitwise(data):
    """The checksum by its definition, bit by bit."""
    state = 0xFFFFFFFF
    for octet in data:
        state ^= octet
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def test_crc32c():
    # RFC 3720, appendix B.4.
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"123456789") == 0xE3069283
    data = numpy.random.default_rng(0).bytes(4 * WORDS + 4 * 1001 + 3)
    for size in (0, 1, 3, 4, 5, 31, 1000, 4093):
        assert crc32c(data[:size]) == bitwise(data[:size])
    # Chunks change nothing: the checksum of what is twice as long, in two ways.
    assert crc32c(data) == bitwise(data)


def test_names_and_values_are_those_of_tensorflow():
    expected = held()
    checkpoint = TensorFlowCheckpoint(FIXTURE / NAME)
    assert set(checkpoint.variables) == set(expected)
    for name, values in expected.items():
        found = checkpoint.read(name)
        assert found.dtype == values.dtype
        assert found.shape == values.shape
        assert found.tobytes() == values.tobytes()
    # Every byte of the data file belongs to a variable.
    sizes = sum(one.size for one in checkpoint.variables.values())
    assert sizes == (FIXTURE / f"{NAME}.data-00000-of-00001").stat().st_size


def test_a_flipped_byte_of_the_index_is_found(folder):
    path = folder / f"{NAME}.index"
    whole = path.read_bytes()
    footer = len(whole) - 48
    unseen = []
    for position in [*range(0, footer, 7), *range(footer, len(whole))]:
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        try:
            TensorFlowCheckpoint(folder / NAME)
            unseen.append(position)
        except ValueError:
            pass
    assert len(unseen) < 60
    # What LevelDB leaves without a checksum and nobody reads: where the block about the blocks is,
    # that block itself, and what fills the footer up.
    _, end = varint(whole, footer)
    _, end = varint(whole, end)
    _, first = varint(whole, end)
    _, used = varint(whole, first)
    metaindex = varint(whole, footer)[0]
    handle = end - footer
    assert all(
        metaindex <= one < metaindex + 8 + 5
        or footer <= one < footer + handle
        or used <= one < len(whole) - 8
        for one in unseen
    )


def test_a_flipped_byte_of_the_numbers_is_found(folder):
    path = folder / f"{NAME}.data-00000-of-00001"
    whole = path.read_bytes()
    rng = numpy.random.default_rng(0)
    for position in rng.integers(len(whole), size=25).tolist():
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        checkpoint = TensorFlowCheckpoint(folder / NAME)
        (name,) = (
            name
            for name, one in checkpoint.variables.items()
            if one.offset <= position < one.offset + one.size
        )
        with pytest.raises(ValueError, match=f"is damaged: the checksum of {name} "):
            checkpoint.read(name)
    path.write_bytes(whole[:-1])
    checkpoint = TensorFlowCheckpoint(folder / NAME)
    last = max(checkpoint.variables, key=lambda name: checkpoint.variables[name].offset)
    with pytest.raises(ValueError, match=f"ends at byte {len(whole) - 1}, expected {last} up to"):
        checkpoint.read(last)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="00000-of-00001, which the index names"):
        checkpoint.read(last)


@pytest.mark.parametrize("size", [0, 5, 47, 48, 500])
def test_what_is_cut_off_or_no_table_is_an_error(folder, size):
    path = folder / f"{NAME}.index"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(
        ValueError, match="is not a whole index of a TensorFlow checkpoint: it does"
    ):
        TensorFlowCheckpoint(folder / NAME)
    path.write_bytes(b"\xff" * size + MAGIC.to_bytes(8, "little"))
    with pytest.raises(ValueError, match="is not a whole index"):
        TensorFlowCheckpoint(folder / NAME)


def test_which_checkpoint(folder, tmp_path):
    assert latest_checkpoint(folder) == folder / NAME
    (folder / "checkpoint").write_text('model_checkpoint_path: "/far/away/model.ckpt-7"\n')
    assert latest_checkpoint(folder) == folder / "model.ckpt-7"
    with pytest.raises(FileNotFoundError, match=rf"model.ckpt-7.index; .* has {NAME}"):
        TensorFlowCheckpoint(latest_checkpoint(folder))
    (folder / "checkpoint").write_text("something else")
    with pytest.raises(ValueError, match="has no line model_checkpoint_path"):
        latest_checkpoint(folder)
    (folder / "checkpoint").unlink()
    (folder / "model.ckpt-10.index").touch()
    (folder / "model.ckpt-9.index").touch()
    assert latest_checkpoint(folder) == folder / "model.ckpt-10"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(FileNotFoundError, match=r"other holds notes.txt, expected a TensorFlow"):
        latest_checkpoint(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match="there is no directory"):
        latest_checkpoint(tmp_path / "none")
    (folder / "old").write_bytes(bytes(50) + MAGIC.to_bytes(8, "little"))
    with pytest.raises(FileNotFoundError, match="of TensorFlow's format V1"):
        TensorFlowCheckpoint(folder / "old")


def test_what_is_no_tensor_of_numbers(folder):
    checkpoint = TensorFlowCheckpoint(folder / NAME)
    with pytest.raises(ValueError, match="has no variable lm/none"):
        checkpoint.read("lm/none")
    step = checkpoint.variables["global_step"]
    for change, message in (
        ({"dtype": 7}, "global_step has type 7, expected a whole tensor of numbers"),
        ({"is_sliced": True}, "global_step was saved in slices"),
        ({"shape": (3,)}, "global_step has 4 bytes, expected those of shape \\(3,\\)"),
    ):
        checkpoint.variables["global_step"] = step._replace(**change)
        with pytest.raises(ValueError, match=message):
            checkpoint.read("global_step")


def test_snappy():
    # A literal, then copies with offsets of one byte and of two, the first over its own output.
    block = bytes([13, 2 << 2, *b"abc", 1 | (5 - 4) << 2, 3, 2 | (5 - 1) << 2, 8, 0])
    assert decompress(block) == b"abcabcababcab"
    long = bytes(range(256)) * 2
    assert decompress(bytes([0x80, 4, 61 << 2, 255, 1, *long])) == long
    for damaged in (block[:-1], block[:3], bytes([12]) + block[1:], bytes([3, 1, 9]), b"", b"\xff"):
        with pytest.raises(ValueError, match=r"snappy|number"):
            decompress(damaged)


def table(block, compression):
    """A table of one block, as LevelDB writes it."""

    def with_trailer(content, kind):
        masked = bitwise(content + bytes([kind]))
        masked = ((masked >> 15 | masked << 17) + 0xA282EAD8) & 0xFFFFFFFF
        return content + bytes([kind]) + masked.to_bytes(4, "little")

    def handle(offset, content):
        return bytes([offset, len(content)])

    restarts = bytes(4) + (1).to_bytes(4, "little")
    stored = with_trailer(block, compression)
    about = handle(0, block)
    index = bytes([0, 1, len(about), ord("z")]) + about + restarts
    footer = handle(0, block) + handle(len(stored), index)
    return stored + with_trailer(index, 0) + footer.ljust(40, b"\0") + MAGIC.to_bytes(8, "little")


def test_a_table_with_shared_keys_plain_and_compressed():
    entries = b"\x00\x02\x01abX" + b"\x01\x01\x02cYZ"
    block = entries + bytes(4) + (1).to_bytes(4, "little")
    assert dict(read_table(table(block, 0))) == {b"ab": b"X", b"ac": b"YZ"}
    literal = bytes([len(block), (len(block) - 1) << 2]) + block
    assert dict(read_table(table(literal, 1))) == {b"ab": b"X", b"ac": b"YZ"}
    with pytest.raises(ValueError, match="compression 2, expected none or snappy"):
        dict(read_table(table(block, 2)))
