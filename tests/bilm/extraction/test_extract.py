"""Extraction: one file layout and the other, any batching, interrupted anywhere and resumed."""

import contextlib
import itertools
import json
import multiprocessing
import os
import random
import resource
import signal
import time
from pathlib import Path

import h5py
import numpy
import pytest
import torch
import torch.nn.utils.prune

from elmo_plugin.bilm.extraction import extract as extract_module
from elmo_plugin.bilm.extraction import parts as parts_module
from elmo_plugin.bilm.extraction.batches import Sentence, batches, read_sentences, windows
from elmo_plugin.bilm.extraction.extract import extract
from elmo_plugin.bilm.extraction.layouts import sentence_key
from elmo_plugin.bilm.extraction.vectors import Extraction
from elmo_plugin.bilm.files.folder_lock import NAME as LOCK
from elmo_plugin.bilm.files.folder_lock import locked_folder
from elmo_plugin.bilm.use.embedder import ElmoEmbedder
from tests.bilm.extraction.inline_workers import InlineWorkers
from tests.cases import first_quick
from tests.tiny_bilm import random_bilm, write

WORDS = ["the", "cat", "sat", "on", "a", "Überraschung", "mat", ".", "moon", "and/or", "x" * 60]


def text(count, seed=0, longest=12):
    """Lines, a few of them blank, a few twice."""
    generator = random.Random(seed)
    lines = [
        " ".join(generator.choices(WORDS, k=generator.randrange(longest + 1))) for _ in range(count)
    ]
    return lines + lines[: count // 10]


def bilm_of(state="primed"):
    bilm = random_bilm().eval()
    bilm.state = state
    return bilm


def datasets(path):
    """Name -> type, shape and bytes, in the order of the file."""
    with h5py.File(path) as file:
        return {
            name: (str(item.dtype), item.shape, item[...].tobytes() if item.dtype != object
                   else list(item[...]))
            for name, item in file.items()
        }  # fmt: skip


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def vectors(path, count):
    with h5py.File(path) as file:
        return [file[str(index)][...] for index in range(count)]


# --- what is in the file -----------------------------------------------------------------------


def test_the_file_is_that_of_allennlp_0_9(tmp_path):
    lines = ["  The cat sat . \n", "and / or\n", "The cat sat .\n"]
    assert extract(bilm_of(), lines, tmp_path / "out.hdf5") == 3
    with h5py.File(tmp_path / "out.hdf5", "r") as file:
        assert list(file) == ["0", "1", "2", "sentence_to_index"]
        assert file.get("0").shape == (3, 4, 12)
        assert file.get("0").dtype == numpy.float32
        assert file["sentence_to_index"].shape == (1,)
        index = json.loads(file["sentence_to_index"][0])
        # 0.9 keeps the last of lines with the same text.
        assert index == {"The cat sat .": "2", "and / or": "1"}


@pytest.mark.parametrize(
    ("state", "max_tokens", "batch_size"),
    [
        *(("primed", most, None) for most in (3, 10, 40)),
        ("primed", 40, 3),
        ("primed", 4096, 1),
        *(("carry", most, 7) for most in (3, 10, 40, 4096)),  # in the given order
    ],
)
def test_batching_does_not_change_the_vectors(tmp_path, state, max_tokens, batch_size):
    lines = [line for line in text(40) if line or state == "primed"]
    bilm = bilm_of(state)
    wanted = Extraction(max_tokens=max_tokens, batch_size=batch_size)
    extract(bilm, lines, tmp_path / "out.hdf5", wanted)
    embedder = ElmoEmbedder(*write(tmp_path, bilm), state=state)
    size = 1 if state == "primed" else batch_size
    expected = embedder.embed_sentences([line.split() for line in lines], batch_size=size)
    for found, vector in zip(vectors(tmp_path / "out.hdf5", len(lines)), expected, strict=True):
        assert found.shape == vector.shape
        numpy.testing.assert_allclose(found, vector, atol=1e-6, rtol=1e-5)


def test_blank_lines_are_kept_and_change_nothing_in_carry(tmp_path):
    lines = ["the cat", "", "sat on the mat", "   ", "moon", "a", ""]
    for name, given in (("with", lines), ("without", [line for line in lines if line.strip()])):
        extract(bilm_of("carry"), given, tmp_path / name, Extraction(batch_size=2))
    found = vectors(tmp_path / "with", len(lines))
    assert [vector.shape[1] for vector in found] == [2, 0, 4, 0, 1, 1, 0]
    kept = [vector for vector in found if vector.shape[1]]
    for ours, expected in zip(kept, vectors(tmp_path / "without", 4), strict=True):
        numpy.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("layout", ["sentences", "ragged"])
@pytest.mark.parametrize("layers", ["all", "top", "average"])
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_layout_and_dtype_holds_the_same(
    tmp_path, layout, layers, compress, dtype, monkeypatch
):
    monkeypatch.setattr("elmo_plugin.bilm.extraction.layouts.BLOCK_BYTES", 1000)
    lines = text(30)
    extract(bilm_of(), lines, tmp_path / "all")
    wanted = Extraction(layers=layers, compress=compress, dtype=dtype, layout=layout)
    extract(bilm_of(), lines, tmp_path / "out", wanted)
    with h5py.File(tmp_path / "out") as file:
        if layout == "ragged":
            assert file["sentences"].asstr()[...].tolist() == lines
            whole, ends = file["embeddings"], itertools.pairwise(file["offsets"][...])
            found = [whole[..., start:stop, :] for start, stop in ends]
            stored = [whole]
        else:
            assert list(file) == [*map(str, range(len(lines))), "sentence_to_index"]
            stored = [file[str(index)] for index in range(len(lines))]
            found = [one[...] for one in stored]
        for one in stored:
            assert one.dtype == dtype
            assert (one.compression == "gzip") == (compress and one.size > 0)
    for ours, every in zip(found, vectors(tmp_path / "all", len(lines)), strict=True):
        expected = {"all": every, "top": every[-1], "average": every.mean(axis=0)}[layers]
        atol = 1e-6 if layers == "average" and dtype == "float32" else 0
        rtol = 2**-10 if layers == "average" and dtype == "float16" else 0  # it rounds the other
        numpy.testing.assert_allclose(ours, expected.astype(dtype), atol=atol, rtol=rtol)


def test_sentences_as_keys_are_safe_and_duplicates_are_kept(tmp_path):
    # A line, and the name of its dataset.
    named = [
        ("and / or", "and \u2215 or"),
        ("and \u2215 or", "and \u2215 or\n2"),  # another text, the same name
        (".", "\u2024"),
        ("..", ".."),
        ("", "\n1"),
        ("", "\n2"),
        ("sat", "sat"),
        ("sat", "sat\n2"),
        ("sat", "sat\n3"),
        ("a\0b", "a\u2400b"),
        ("\u2024", "\u2024\n2"),
    ]
    lines, names = zip(*named)
    extract(bilm_of(), lines, tmp_path / "out.hdf5", Extraction(use_sentence_keys=True))
    assert list(datasets(tmp_path / "out.hdf5")) == list(names)
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert file[sentence_key("and / or")].shape == (3, 3, 12)
        assert file[sentence_key("sat", 3)].shape == (3, 1, 12)
        assert all(isinstance(item, h5py.Dataset) for item in file.values())


def test_a_very_long_sentence_is_a_key_too(tmp_path):
    line = " ".join(["Überraschung"] * 10_000)
    bilm = random_bilm(num_layers=1, cell_size=1, projection_dim=1).eval()
    wanted = Extraction(use_sentence_keys=True, layers="top")
    extract(bilm, [line, "short"], tmp_path / "out.hdf5", wanted)
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert file[sentence_key(line)].shape == (10_000, 2)


@pytest.mark.parametrize("lines", [[], [""], ["", "", ""]])
def test_empty_inputs_give_empty_files(tmp_path, lines):
    for layout in ("sentences", "ragged"):
        wanted = Extraction(layout=layout, compress=True)
        assert extract(bilm_of("carry"), lines, tmp_path / layout, wanted) == len(lines)
    assert [one.shape for one in vectors(tmp_path / "sentences", len(lines))] == [
        (3, 0, 12) for _ in lines
    ]
    with h5py.File(tmp_path / "ragged") as file:
        assert file["embeddings"].shape == (3, 0, 12)
        assert file["offsets"][...].tolist() == [0] * (len(lines) + 1)


def test_sentences_are_left_out_where_wanted(tmp_path):
    for layout, expected in (("sentences", ["0"]), ("ragged", ["embeddings", "offsets"])):
        wanted = Extraction(layout=layout, forget_sentences=True)
        extract(bilm_of(), ["a"], tmp_path / layout, wanted)
        assert list(datasets(tmp_path / layout)) == expected


# --- batches -----------------------------------------------------------------------------------


def test_batches_cover_the_window_within_their_budget():
    generator = random.Random(0)
    steps = [generator.randrange(2, 40) for _ in range(200)] + [500]
    found = list(batches(steps, 120, 9))
    assert sorted(index for batch in found for index in batch) == list(range(201))
    assert found[0] == [200]
    for batch in found[1:]:
        assert len(batch) * max(steps[index] for index in batch) <= 120
        assert len(batch) <= 9
    # Sorted by length: padding is little.
    padded = sum(len(batch) * max(steps[index] for index in batch) for batch in found)
    assert padded < 1.1 * sum(steps)


def test_windows_read_no_further_than_they_must():
    read = []

    def lines():
        for number in range(10_000):
            read.append(number)
            yield Sentence("a b", ["a", "b"])

    window = next(windows(lines(), max_tokens=40))
    assert len(window) == len(read) == 160
    carried = windows([Sentence("", []), *[Sentence("a", ["a"])] * 5], 40, 2)
    assert [len(window) for window in carried] == [3, 2, 1]


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": "bottom"}, "layers is 'bottom', expected one of"),
        ({"dtype": "int8"}, "dtype is 'int8', expected one of"),
        ({"layout": "flat"}, "layout is 'flat', expected one of"),
        ({"batch_size": 0}, "batch_size is 0, expected 1 or more"),
        ({"max_tokens": 2}, "max_tokens is 2, expected 3 or more"),
        ({"layout": "ragged", "use_sentence_keys": True}, "which has no keys"),
    ],
)
def test_settings_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        Extraction(**changes)


def test_an_output_that_exists_is_kept_without_force(tmp_path):
    (tmp_path / "out").write_text("precious")
    for resume in (False, True):
        with pytest.raises(ValueError, match=r"out exists, expected a new file; --force"):
            extract(bilm_of(), ["a"], tmp_path / "out", resume=resume)
    assert (tmp_path / "out").read_text() == "precious"
    assert names(tmp_path) == ["out"]
    extract(bilm_of(), ["a"], tmp_path / "out", force=True)
    assert vectors(tmp_path / "out", 1)[0].shape == (3, 1, 12)


def no_pickle(bilm):
    bilm.note = lambda: None


def carry(bilm):
    bilm.state = "carry"


AGAIN = ({}, {"resume": True}, {"force": True})
CARRIED = {"change": carry}
# Files that are there (folders end with `/`), arguments of `extract`, and what the error names.
REFUSED = [
    ([], {"output": "no/out"}, "there is no folder .*no to write out to"),
    *(([["out/"], one, "out is a folder or a device, expected the name"]) for one in AGAIN),
    *((["out.partial"], one, r"out\.partial is a file, expected none or the fol") for one in AGAIN),
    *(
        (["out.partial/", "out.partial/part-000000"], one, r"holds part-0+ but no settings\.json")
        for one in AGAIN
    ),
    ([], {**CARRIED, "workers": 2}, "state is 'carry', in which a line continues from the lines"),
    ([], {**CARRIED, "shard": "1/2"}, "state is 'carry', in which a line continues from the lines"),
    ([], {"workers": 0}, "workers is 0, expected 1 or more"),
    ([], {"shard": "0/2"}, "shard is '0/2', expected i/n, from 1/n to n/n"),
    ([], {"shard": "3/2"}, "shard is '3/2', expected"),
    ([], {"shard": "1"}, "shard is '1', expected"),
    ([], {"shard": "1/2", "force": True}, "shard was given with force"),
    ([], {"change": no_pickle, "workers": 2}, "the biLM cannot be sent to worker processes"),
    ([], {"lines": [["a", "b"]]}, r"line 1 is \['a', 'b'\], expected a string"),
    ([], {"lines": ["a", b"b"]}, "line 2 is b'b', expected a string"),
]


@pytest.mark.parametrize(("files", "given", "message"), REFUSED)
def test_what_is_refused_leaves_all_as_it_was(tmp_path, files, given, message):
    for name in files:
        path = tmp_path / name
        path.mkdir() if name.endswith("/") else path.write_text("mine")
    more = {"lines": ["a"], "output": "out", "change": lambda bilm: None, **given}
    bilm = bilm_of()
    more.pop("change")(bilm)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        extract(bilm, more.pop("lines"), tmp_path / more.pop("output"), **more)
    assert sorted(tmp_path.rglob("*")) == sorted(tmp_path / name for name in files)
    assert all(path.read_text() == "mine" for path in tmp_path.rglob("*") if path.is_file())


BAD = [
    ("ol\udce9 there", "the byte 0xe9", ["ol\ufffd", "there"]),
    # A lone surrogate is no byte: `json.loads` can give one.
    *(
        (f"a {chr(bad)} b\udce9", rf"the code point U\+{bad:X}", ["a", "\ufffd", "b\ufffd"])
        for bad in (0xD800, 0xDBFF, 0xDC00, 0xDC7F, 0xDD00, 0xDFFF)
    ),
]


@pytest.mark.parametrize(("line", "what", "replaced"), BAD)
def test_bad_utf8_is_an_error_with_its_line_unless_replaced(tmp_path, line, what, replaced):
    lines = ["fine\n", f"{line}\n"]
    with pytest.raises(ValueError, match=rf"^corpus, line 2: {what} is not UTF-8"):
        extract(bilm_of(), lines, tmp_path / "out", name="corpus")
    found = list(read_sentences(lines, replace_bad_utf8=True))
    assert [sentence.tokens for sentence in found] == [["fine"], replaced]
    assert extract(bilm_of(), lines, tmp_path / "out", replace_bad_utf8=True) == 2


class Stop(Exception):
    pass


def interrupted(lines, after):
    for number, line in enumerate(lines):
        if number == after:
            raise Stop
        yield line


def stop(folder, lines, after, wanted, state="primed"):
    """A run that is interrupted after some lines."""
    with pytest.raises(Stop):
        extract(bilm_of(state), interrupted(lines, after), folder / "out", wanted)


def resume_and_compare(folder, lines, wanted, state="primed", dtype=torch.float32):
    """The rest of an interrupted run, and that its file has the numbers of another run."""
    for name in ("out", "undisturbed"):
        bilm = bilm_of(state).to(dtype)
        assert extract(bilm, lines, folder / name, wanted, resume=name == "out") == len(lines)
    assert datasets(folder / "out") == datasets(folder / "undisturbed")


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(parts_module, "SHARD_STEPS", 0)
    monkeypatch.setattr(parts_module, "CARRIED_WINDOWS", 2)


SHORT = Extraction(max_tokens=3)  # windows of 16 sentences of one token


@pytest.mark.usefixtures("small_shards")
def test_an_interrupted_run_is_in_the_way_until_resumed_or_forced(tmp_path):
    lines = ["a"] * 40
    stop(tmp_path, lines, 39, SHORT)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match=r"out\.partial holds an interrupted run") as error:
        extract(bilm_of(), lines, tmp_path / "out", SHORT)
    assert error  # while it is held, what it says can be done
    assert extract(bilm_of(), lines, tmp_path / "out", SHORT, resume=True) == 40
    (tmp_path / "out").unlink()
    stop(tmp_path, lines, 39, SHORT)
    assert extract(bilm_of(), ["b"] * 9, tmp_path / "out", force=True) == 9
    assert names(tmp_path) == ["out"]


def test_numpys_integers_are_numbers(tmp_path):
    wanted = Extraction(batch_size=numpy.int64(2))
    assert extract(bilm_of(), ["a"], tmp_path / "out", wanted) == 1


def test_a_run_that_committed_nothing_is_not_in_the_way(tmp_path):
    stop(tmp_path, ["a"] * 9, 5, Extraction())
    assert extract(bilm_of(), ["a"] * 9, tmp_path / "out", SHORT) == 9
    assert names(tmp_path) == ["out"]


@pytest.mark.usefixtures("small_shards", "same_bits")
@pytest.mark.parametrize(
    ("state", "dtype", "wanted"),
    [
        ("primed", torch.float32, Extraction(max_tokens=10)),
        ("carry", torch.bfloat16, Extraction(batch_size=2)),
        ("carry", torch.float64, Extraction(batch_size=2)),
    ],
)
def test_a_later_line_that_fails_leaves_what_was_computed(tmp_path, state, dtype, wanted):
    lines = text(40)
    with pytest.raises(ValueError, match="line 36: the byte 0xff"):
        extract(bilm_of(state).to(dtype), [*lines[:35], "\udcff"], tmp_path / "out", wanted)
    assert names(tmp_path) == ["out.partial"]
    resume_and_compare(tmp_path, lines, wanted, state, dtype)


@pytest.mark.usefixtures("small_shards", "same_bits")
def test_a_run_is_resumed_only_with_the_same_settings_weights_and_input(tmp_path):
    lines, wanted = text(40), Extraction(max_tokens=10)
    stop(tmp_path, lines, 35, wanted)
    for bilm, given, settings, message in (
        (bilm_of(), lines, Extraction(max_tokens=11), "max_tokens was 10 when .* is 11 now"),
        (bilm_of("reset"), lines, wanted, "state was 'primed' when this run began"),
        (random_bilm(seed=2), lines, wanted, "bilm was '"),
        (bilm_of(), ["other", *lines[1:]], wanted, "lines 1 to [0-9]+ of the input have changed"),
        (bilm_of(), lines[:2], wanted, "lines 1 to 2 of the input have changed"),
    ):
        bilm.state = "reset" if "state was" in message else "primed"
        with pytest.raises(ValueError, match=message):
            extract(bilm, given, tmp_path / "out", settings, resume=True)
    resume_and_compare(tmp_path, lines, wanted)


@pytest.mark.usefixtures("small_shards", "same_bits")
@pytest.mark.parametrize("left", [0, 10, 300, -1])
@pytest.mark.parametrize("state", ["primed", "carry"])
def test_damaged_part_is_computed_again(tmp_path, state, left):
    lines, wanted = text(99), Extraction(max_tokens=10, batch_size=4)
    stop(tmp_path, lines, 90, wanted, state)
    part = tmp_path / "out.partial" / "part-000001"
    os.truncate(part, left if left >= 0 else part.stat().st_size // 2)
    resume_and_compare(tmp_path, lines, wanted, state)


@pytest.mark.usefixtures("small_shards")
def test_part_that_another_program_removes_is_missed(tmp_path, monkeypatch):
    compute = parts_module.Parts.compute

    def compute_and_lose(parts, bilm, shard, report):
        compute(parts, bilm, shard, report)
        if shard[0] == 1:
            parts.path(0).unlink()

    monkeypatch.setattr(parts_module.Parts, "compute", compute_and_lose)
    lines, path = text(60), tmp_path / "o.hdf5"
    with pytest.raises(ValueError, match=r"has \d+ parts, expected \d+: another program"):
        extract(bilm_of(), lines, path, SHORT)
    assert extract(bilm_of(), lines, path, SHORT, resume=True) == len(lines)


@pytest.mark.usefixtures("small_shards")
def test_input_that_ends_earlier_is_another(tmp_path):
    stop(tmp_path, ["a"] * 40, 39, SHORT)
    with pytest.raises(ValueError, match="the input has 16 lines, and had more when this run was"):
        extract(bilm_of(), ["a"] * 16, tmp_path / "out", SHORT, resume=True)


@pytest.mark.usefixtures("small_shards")
@first_quick("content", ["", "[]", "{", "null", '"\udcff"'], count=2)
def test_damaged_settings_are_named(tmp_path, content):
    wanted, lines = Extraction(max_tokens=10), text(30)
    stop(tmp_path, lines, 25, wanted)
    path = tmp_path / "out.partial" / "settings.json"
    path.write_text(content, errors="surrogateescape")
    with pytest.raises(ValueError, match=rf"{path} (is damaged|holds).* --force without --resume"):
        extract(bilm_of(), lines, tmp_path / "out", wanted, resume=True)
    assert extract(bilm_of(), lines, tmp_path / "out", wanted, force=True) == len(lines)


@pytest.mark.parametrize("more", [{"resume": True}, {"force": True}])
@pytest.mark.parametrize("name", ["mine", "mine/", "part-000001.bak"])
@pytest.mark.usefixtures("small_shards")
def test_foreign_files_in_the_folder_are_not_removed(tmp_path, more, name):
    stop(tmp_path, ["a"] * 40, 39, SHORT)
    foreign = tmp_path / "out.partial" / name
    foreign.mkdir() if name.endswith("/") else foreign.write_text("mine")
    before = names(tmp_path / "out.partial")
    message = rf"out\.partial holds {foreign.name}, which an earlier run did not"
    with pytest.raises(ValueError, match=message):
        extract(bilm_of(), ["a"] * 9, tmp_path / "out", **more)
    assert names(tmp_path / "out.partial") == before
    assert len(before) == 4


def test_two_runs_do_not_write_to_one_output(tmp_path):
    (tmp_path / "out.partial").mkdir()
    with locked_folder(tmp_path / "out.partial"):
        for more in ({}, {"resume": True}, {"force": True}):
            with pytest.raises(ValueError, match=r"out\.partial is in use by another process"):
                extract(bilm_of(), ["a"], tmp_path / "out", **more)
    assert extract(bilm_of(), ["a"], tmp_path / "out") == 1


def test_resume_of_a_finished_run_does_nothing(tmp_path):
    lines = text(10)
    extract(bilm_of(), lines, tmp_path / "out")
    before = (tmp_path / "out").stat()
    assert extract(bilm_of(), lines, tmp_path / "out", resume=True) == 11
    assert (tmp_path / "out").stat().st_mtime_ns == before.st_mtime_ns
    with pytest.raises(ValueError, match="out exists and was made from another text"):
        extract(bilm_of(), lines[1:], tmp_path / "out", resume=True)


# --- several processes -------------------------------------------------------------------------


@pytest.fixture
def inline(monkeypatch):
    """Workers of this process."""
    monkeypatch.setattr(extract_module, "LocalWorkers", InlineWorkers)
    monkeypatch.setattr(InlineWorkers, "made", [])
    threads = torch.get_num_threads()
    torch.set_num_threads(6)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("small_shards", "same_bits", "inline")
@pytest.mark.parametrize("layout", ["sentences", "ragged"])
def test_workers_write_the_same_bytes(tmp_path, layout):
    wanted = Extraction(max_tokens=10, batch_size=2, layout=layout)
    for name, workers in (("one", 1), ("three", 3)):
        assert extract(bilm_of(), text(40), tmp_path / name, wanted, workers=workers) == 44
    assert (tmp_path / "one").read_bytes() == (tmp_path / "three").read_bytes()
    assert names(tmp_path) == ["one", "three"]
    (workers,) = InlineWorkers.made
    assert workers.threads == 2
    assert len(workers.started) == 3
    assert sorted(workers.given) == list(range(len(workers.given)))


@pytest.mark.usefixtures("small_shards", "same_bits")
def test_runs_that_share_the_shards_write_the_same_bytes(tmp_path):
    lines, wanted = text(40), Extraction(max_tokens=10)
    extract(bilm_of(), lines, tmp_path / "one", wanted)
    for shard in ("3/3", "1/3", "3/3", "2/3", "1/3"):
        there = (tmp_path / "out").exists()
        assert extract(bilm_of(), lines, tmp_path / "out", wanted, shard=shard) == 44
    assert there  # since 2/3; the last one found nothing to do
    assert (tmp_path / "one").read_bytes() == (tmp_path / "out").read_bytes()
    assert names(tmp_path) == ["one", "out"]


@pytest.mark.usefixtures("small_shards", "same_bits")
def test_runs_that_share_at_the_same_time(tmp_path):
    lines, wanted = text(200), Extraction(max_tokens=10)
    extract(bilm_of(), lines, tmp_path / "one", wanted)
    for number in range(5):
        path = tmp_path / f"out{number}"
        shards = [f"{index}/3" for index in (1, 2, 3, 3, 1)]
        children = [run_child("primed", lines, path, wanted, shard=shard) for shard in shards]
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0] * 5
        assert (tmp_path / "one").read_bytes() == path.read_bytes()
    assert names(tmp_path) == ["one", *(f"out{number}" for number in range(5))]


@pytest.mark.parametrize("is_removed", [True, False])
def test_run_that_another_finishes_before_it_begins_is_done(tmp_path, monkeypatch, is_removed):
    lines = text(4)
    extract(bilm_of(), lines, tmp_path / "other", SHORT)

    def locked_too_late(folder, wait):
        if is_removed:
            folder.rmdir()
        (tmp_path / "other").rename(tmp_path / "out")
        return locked_folder(folder, wait)

    monkeypatch.setattr(extract_module, "locked_folder", locked_too_late)
    assert extract(bilm_of(), lines, tmp_path / "out", SHORT, shard="1/2") == len(lines)
    assert names(tmp_path) == ["out"]


@pytest.mark.usefixtures("small_shards")
def test_run_that_shares_is_refused_with_another_input_or_other_settings(tmp_path):
    lines = text(40)
    extract(bilm_of(), lines, tmp_path / "out", SHORT, shard="1/2")
    for given, wanted, message in (
        (lines, Extraction(max_tokens=4), "max_tokens was 3"),
        (["other", *lines], SHORT, "lines 1 to [0-9]+ of the input have changed"),
    ):
        with pytest.raises(ValueError, match=message):
            extract(bilm_of(), given, tmp_path / "out", wanted, shard="2/2")
    assert extract(bilm_of(), lines, tmp_path / "out", SHORT, resume=True) == 44


# --- killed, cut short, interrupted ------------------------------------------------------------

FORK = multiprocessing.get_context("fork")


def run_child(state, lines, path, wanted, limit=None, **how):
    """An extraction in a process of its own, that may write files of `limit` bytes."""

    def work():
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            extract(bilm_of(state), iter(lines), path, wanted, **how)
        except OSError as error:
            os._exit(error.errno or 99)
        os._exit(0)

    child = FORK.Process(target=work)
    child.start()
    return child


def sentences_kept(folder):
    """How many sentences a run has put on disk for good."""
    parts = parts_module.Parts(folder / "out.partial", Extraction(), 3, 12)
    return sum(len((parts.texts(number) or b"").splitlines()) for number in range(40))


def test_parts_are_in_the_order_of_their_numbers(tmp_path):
    parts = parts_module.Parts(tmp_path, Extraction(), 3, 12)
    for number in (1_000_000, 999_999, 0):
        parts.path(number).touch()
    (tmp_path / "part-12345678").touch()
    assert [parts.number(path) for path in parts.paths()] == [0, 999_999, 1_000_000]


def held_back(lines):
    """All but the last, for which a run waits until it is killed: none is quicker than that."""
    yield from lines[:-1]
    while True:
        time.sleep(60)


def kill_and_compare(tmp_path, state, layout, times, seed, workers=1):
    """
    Kills a run at random moments, `times` times; returns from how many sentences it went on. The
    moment is a random number of sentences and a random pause after them, so that a busy machine
    does not move all of them to the start or behind the end. The first run cannot end before.
    """
    wanted = Extraction(max_tokens=30, batch_size=5, layout=layout)
    lines = text(400, seed)
    child = run_child(state, lines, tmp_path / "undisturbed", wanted)
    child.join()
    assert child.exitcode == 0
    generator, resumed = random.Random(seed), []
    more = {"resume": True, "force": True, "workers": workers}
    (tmp_path / "out").write_text("precious")
    for moment in sorted(generator.randrange(len(lines)) for _ in range(times)):
        given = lines
        if not resumed:
            # Half of the lines are kept before the last one is read, whatever a window holds.
            given, moment = held_back(lines), min(moment, len(lines) // 2)
        child = run_child(state, given, tmp_path / "out", wanted, **more)
        while child.is_alive() and sentences_kept(tmp_path) < moment:
            time.sleep(0.001)
        child.join(generator.uniform(0.0, 0.02))
        child.kill()
        child.join()
        if child.exitcode == 0:  # it was quicker
            break
        # What was there before is untouched while the new file is not whole.
        if (tmp_path / "out").read_bytes() != b"precious":  # nothing is left to go on from
            assert datasets(tmp_path / "out") == datasets(tmp_path / "undisturbed")
            break
        resumed.append(sentences_kept(tmp_path))
    child = run_child(state, lines, tmp_path / "out", wanted, **more)
    child.join()
    assert child.exitcode == 0
    assert datasets(tmp_path / "out") == datasets(tmp_path / "undisturbed")
    assert names(tmp_path) == ["out", "undisturbed"]
    return resumed


@pytest.mark.usefixtures("small_shards")
@first_quick(("state", "layout"), [("primed", "sentences"), ("carry", "ragged")])
def test_killed_three_times_and_resumed_the_bytes_are_the_same(tmp_path, state, layout):
    resumed = kill_and_compare(tmp_path, state, layout, times=3, seed=1)
    assert len(resumed) > 0
    assert resumed == sorted(resumed)


@pytest.mark.slow
@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize(
    ("state", "layout", "workers"),
    [
        ("primed", "ragged", 1),
        ("carry", "sentences", 1),
        ("reset", "ragged", 1),
        ("primed", "sentences", 2),
    ],
)
def test_killed_twenty_times_and_resumed_the_bytes_are_the_same(tmp_path, state, layout, workers):
    kills, went_on, seed = 0, 0, 0
    while kills < 20:
        folder = tmp_path / str(seed)
        folder.mkdir()
        resumed = kill_and_compare(folder, state, layout, times=5, seed=seed, workers=workers)
        kills, seed = kills + len(resumed), seed + 1
        went_on += sum(count > 0 for count in resumed)
    assert went_on >= 5


@pytest.mark.parametrize("force", [True, False])
def test_killed_while_the_folder_is_removed_the_same_command_ends(tmp_path, monkeypatch, force):
    lines = text(10)
    extract(bilm_of("carry"), lines, tmp_path / "undisturbed")
    unlink, done = Path.unlink, False
    for kept in range(10):
        removed = []

        def stop(path, kept=kept, removed=removed, **how):
            if "out.partial" in path.parts and path.name != LOCK:
                if len(removed) == kept:
                    raise KeyboardInterrupt
                removed.append(path.name)
            unlink(path, **how)

        (tmp_path / "out").unlink(missing_ok=True)
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(Path, "unlink", stop)
            extract(bilm_of("carry"), lines, tmp_path / "out")
            done = True
        extract(bilm_of("carry"), lines, tmp_path / "out", resume=True, force=force)
        assert datasets(tmp_path / "out") == datasets(tmp_path / "undisturbed")
        if done:
            break
        assert names(tmp_path) == ["out", "undisturbed"]
    assert kept >= 2
    assert names(tmp_path) == ["out", "undisturbed"]


@pytest.mark.usefixtures("small_shards", "same_bits")
def test_a_full_disk_leaves_what_was_there_and_the_run_goes_on(tmp_path):
    wanted, lines = Extraction(max_tokens=30), [*text(300), " ".join(["moon"] * 1500)]
    extract(bilm_of(), lines, tmp_path / "undisturbed", wanted)
    tokens = sum(len(line.split()) for line in lines)
    (tmp_path / "out").write_text("precious")
    # In the part with the long line; in the HDF5 file, which is larger; not at all.
    for limit, fails in ((1500 * 144, True), (tokens * 144 + 4096, True), (None, False)):
        child = run_child("primed", lines, tmp_path / "out", wanted, limit, resume=True, force=True)
        child.join()
        assert (child.exitcode != 0) == fails
        assert child.exitcode >= 0, "a crash"
        if fails:
            assert (tmp_path / "out").read_text() == "precious"
            kept = sentences_kept(tmp_path)
            assert (kept == len(lines)) == (limit > tokens * 144), kept
            assert kept > 0
    assert datasets(tmp_path / "out") == datasets(tmp_path / "undisturbed")
    assert names(tmp_path) == ["out", "undisturbed"]


@pytest.mark.parametrize("more", [{"resume": True}, {"shard": "1/2"}])
def test_a_run_of_a_pruned_bilm_that_could_not_be_resumed_does_not_begin(tmp_path, more):
    bilm = bilm_of()
    torch.nn.utils.prune.l1_unstructured(bilm.lstm.forward_layer_0.input_linearity, "weight", 0.3)
    with pytest.raises(ValueError, match=r"a mask \(pruning\) or another layer, .* be resumed"):
        extract(bilm, text(3), tmp_path / "out.hdf5", **more)
    assert names(tmp_path) == []
    extract(bilm, text(3), tmp_path / "out.hdf5")
    assert names(tmp_path) == ["out.hdf5"]
