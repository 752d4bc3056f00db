"""Weight files: what is written comes back, and a bad one is one clear error with nothing lost."""

import json
import os
import re
from dataclasses import replace
from operator import methodcaller
from pathlib import Path
from unittest.mock import Mock

import h5py
import numpy
import pytest
import torch

from elmo_plugin.bilm.files import weights as checkpoint
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.files.weights import (
    check_weights,
    load_weights,
    read_weights,
    save_weights,
)
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.characters import batch_to_ids
from tests import peak_memory
from tests.fresh_process import run_core as run
from tests.numpy_bilm import NumpyBiLm
from tests.tiny_bilm import BATCHES, OPTIONS, assert_same_output, elmo_pair, random_bilm, write

CELL = "RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell"


@pytest.fixture
def path(tmp_path):
    save_weights(random_bilm(), tmp_path / "weights.hdf5")
    return tmp_path / "weights.hdf5"


def parameters(bilm):
    return {name: parameter.clone() for name, parameter in bilm.state_dict().items()}


def test_layout_by_hand(tmp_path):
    """One cell of two units, one input, one output: where every number goes."""
    bilm = random_bilm(projection_dim=1, cell_size=2, num_layers=1, filters=((1, 2),))
    cell = bilm.lstm.forward_layer_0
    with torch.no_grad():
        cell.input_linearity.weight.copy_(torch.arange(8.0).view(8, 1))
        cell.state_linearity.weight.copy_(10 + torch.arange(8.0).view(8, 1))
        cell.state_linearity.bias.copy_(20 + torch.arange(8.0))
        cell.state_projection.weight.copy_(torch.tensor([[30.0, 31.0]]))
        bilm.char_cnn.highway_layers[0].weight.copy_(torch.arange(8.0).view(4, 2))
        bilm.char_cnn.highway_layers[0].bias.copy_(torch.arange(4.0))
        bilm.char_cnn.char_conv_0.weight.copy_(torch.arange(8.0).view(2, 4, 1))
    save_weights(bilm, tmp_path / "weights.hdf5")
    prefix = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"
    # Gates here i i f f j j o o, there i i j j f f o o; the forget bias is 1 less in the file.
    expected = {
        f"{prefix}/W_0": [[0, 1, 4, 5, 2, 3, 6, 7], [10, 11, 14, 15, 12, 13, 16, 17]],
        f"{prefix}/B": [20, 21, 24, 25, 21, 22, 26, 27],
        f"{prefix}/W_P_0": [[30], [31]],
        # Rows of ours: two of the transform, two of the gate, which is the carry's opposite.
        "CNN_high_0/W_transform": [[0, 2], [1, 3]],
        "CNN_high_0/b_transform": [0, 1],
        "CNN_high_0/W_carry": [[-4, -6], [-5, -7]],
        "CNN_high_0/b_carry": [-2, -3],
        "CNN/W_cnn_0": [[[[0, 4], [1, 5], [2, 6], [3, 7]]]],
    }
    with h5py.File(tmp_path / "weights.hdf5") as file:
        for key, values in expected.items():
            numpy.testing.assert_array_equal(file[key][...], values, err_msg=key)
        assert file["char_embed"].shape == (261, 4)
        numpy.testing.assert_array_equal(
            file["char_embed"][...], bilm.char_cnn.char_embedding[1:].detach()
        )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_layers": 1, "num_highways": 0},
        {"num_layers": 3, "projection_dim": 12, "filters": ((7, 12),)},
    ],
    ids=str,
)
def test_round_trip_is_bit_equal(changes, tmp_path):
    bilm = random_bilm(**changes)
    first, second = tmp_path / "first.hdf5", tmp_path / "second.hdf5"
    save_weights(bilm, first)
    read = BiLm(bilm.options)
    load_weights(read, first)
    for name, value in parameters(bilm).items():
        if name.endswith("state_linearity.bias"):
            # float32 has no room for a small forget bias less 1: half a unit in the last place.
            torch.testing.assert_close(read.state_dict()[name], value, atol=6e-8, rtol=0)
        else:
            assert torch.equal(read.state_dict()[name], value), name
    # What came from a file goes back without a change.
    save_weights(read, second)
    again = BiLm(bilm.options)
    load_weights(again, second)
    for name, value in parameters(read).items():
        assert torch.equal(again.state_dict()[name], value), name


def test_saving_leaves_the_bilm_alone_and_takes_any_type(tmp_path):
    bilm = random_bilm().double()
    before = parameters(bilm)
    save_weights(bilm, tmp_path / "weights.hdf5")
    for name, value in parameters(bilm).items():
        assert torch.equal(value, before[name])
    with h5py.File(tmp_path / "weights.hdf5") as file:
        assert file[f"{CELL}/W_0"].dtype == numpy.float32
    load_weights(bilm, tmp_path / "weights.hdf5")
    assert bilm.lstm.forward_layer_0.state_linearity.weight.dtype == torch.float64


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_stored_types_give_what_allennlp_reads(dtype, tmp_path):
    bilm = random_bilm()
    files = write(tmp_path, bilm)
    save_weights(bilm, files.weights, dtype=dtype)
    with h5py.File(files.weights) as file:
        assert file[f"{CELL}/W_0"].dtype == dtype
    ours, theirs = elmo_pair(files)
    for batch in BATCHES:
        ids = batch_to_ids(batch)
        assert_same_output(ours(ids), theirs(ids))
    reference = NumpyBiLm(*files)(BATCHES[0])
    with torch.no_grad():
        layers = load_bilm(*files)(batch_to_ids(BATCHES[0]))["activations"]
    for row, expected in enumerate(reference):
        for layer, values in zip(layers, expected, strict=True):
            numpy.testing.assert_allclose(layer[row, : len(values)], values, atol=2e-6, rtol=1e-5)


def test_float16_is_half_the_size(tmp_path):
    bilm = random_bilm(cell_size=1000)
    for dtype in ("float16", "float32"):
        save_weights(bilm, tmp_path / dtype, dtype=dtype)
    assert (tmp_path / "float16").stat().st_size < 0.6 * (tmp_path / "float32").stat().st_size


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float", None, torch.float32])
def test_other_types_are_refused_before_anything_is_written(tmp_path, dtype):
    path = tmp_path / "weights.hdf5"
    path.write_text("precious")
    with pytest.raises(ValueError, match=rf"dtype is {dtype!r}, expected one of \('float16', 'flo"):
        save_weights(random_bilm(), path, dtype=dtype)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_bilm_in_bfloat16_is_saved_as_it_is(tmp_path, dtype):
    bilm = random_bilm().bfloat16()
    save_weights(bilm, tmp_path / "bfloat16", dtype=dtype)
    save_weights(bilm.float(), tmp_path / "float32", dtype=dtype)
    assert (tmp_path / "bfloat16").read_bytes() == (tmp_path / "float32").read_bytes()
    again = random_bilm(seed=2).bfloat16()
    load_weights(again, tmp_path / "bfloat16")
    assert all(map(torch.equal, parameters(again).values(), parameters(bilm.bfloat16()).values()))


def refused(bilm, path, *words, error=ValueError):
    """Loading fails with all of these words, and changes nothing."""
    before = parameters(bilm)
    with pytest.raises(error) as caught:
        load_weights(bilm, path)
    for word in (str(path), *words):
        assert word in str(caught.value)
    for name, value in parameters(bilm).items():
        assert torch.equal(value, before[name]), name


def test_a_missing_file(tmp_path):
    refused(random_bilm(), tmp_path / "none.hdf5", "no weight file", error=FileNotFoundError)
    refused(random_bilm(), tmp_path, "no weight file", error=FileNotFoundError)
    os.mkfifo(tmp_path / "fifo")
    refused(random_bilm(), tmp_path / "fifo", "no weight file", error=FileNotFoundError)


@pytest.mark.parametrize(
    "content", [b"", b"not HDF5", b"PK\x03\x04" * 100, b"\x89HDF\r\n\x1a\n" + b"\0" * 500]
)
def test_a_file_that_is_not_hdf5(content, tmp_path):
    (tmp_path / "weights.hdf5").write_bytes(content)
    refused(random_bilm(), tmp_path / "weights.hdf5", "not a whole HDF5 file")


def test_a_pickle_is_not_opened(tmp_path):
    """Nothing in a weight file runs, whatever it calls itself."""

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "exploded",))

    torch.save({"char_embed": Bomb()}, tmp_path / "weights.hdf5")
    refused(random_bilm(), tmp_path / "weights.hdf5", "not a whole HDF5 file")
    assert not (tmp_path / "exploded").exists()


def edit(path, key, change):
    with h5py.File(path, "r+") as file:
        array = file[key][...]
        del file[key]
        if (changed := change(array)) is not None:
            file[key] = changed


def spoiled(value):
    def spoil(array):
        array.flat[-1] = value
        return array

    return spoil


def shaped(*shape):
    return lambda array: numpy.zeros(shape, dtype=numpy.float32)


LAST = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_P_0"  # everything before it was good
KEYS = ("char_embed", "CNN/W_cnn_1", "CNN_high_1/b_carry", "CNN_proj/W_proj", f"{CELL}/B")
NOT_WEIGHTS = ("int32", "int64", "bool", "complex64", "S8")
OTHER_OPTIONS = [
    *({"num_layers": one} for one in (1, 3)),
    *({"num_highways": one} for one in (1, 3)),
    *({"filters": ((1, 3), (2, one))} for one in (4, 9)),
    *({"projection_dim": one} for one in (5, 12)),
    {"cell_size": 11},
    {"char_embedding_dim": 5},
]
# A dataset, the change of its array (`None` removes it), and what the error says.
BAD_DATASETS = [
    *((key, lambda array: None, [f"the key {key} is missing"]) for key in KEYS),
    ("char_embed", shaped(262, 4), ["char_embed has shape (262, 4)", "(261, 4)"]),
    ("CNN/W_cnn_1", shaped(1, 2, 4, 5), ["(1, 2, 4, 5)", "(1, 2, 4, 4)"]),
    ("CNN_proj/W_proj", shaped(6, 12), ["CNN_proj/W_proj has shape (6, 12)", "(12, 6)"]),
    (f"{CELL}/W_0", shaped(12, 44), [f"{CELL}/W_0 has shape (12, 44)", "(12, 40)"]),
    (f"{CELL}/B", shaped(1, 40), [f"{CELL}/B has shape (1, 40)", "(40,)"]),
    (f"{CELL}/W_P_0", shaped(10, 5), [f"{CELL}/W_P_0 has shape (10, 5)", "(10, 6)"]),
    *((LAST, spoiled(one), [LAST, "NaN or"]) for one in (numpy.nan, numpy.inf, -numpy.inf)),
    *(
        (f"{CELL}/B", methodcaller("astype", one), [f"{CELL}/B has type", "expected floating"])
        for one in NOT_WEIGHTS
    ),
    (f"{CELL}/B", methodcaller("astype", "longdouble"), ["has type float128", "16 to float64"]),
]


@pytest.mark.parametrize(("key", "change", "words"), BAD_DATASETS)
def test_a_bad_dataset_is_named(key, change, words, path):
    edit(path, key, change)
    refused(random_bilm(seed=2), path, *words)


@pytest.mark.parametrize("changes", OTHER_OPTIONS, ids=str)
def test_options_of_another_bilm(changes, path):
    # A deeper file says what is left over.
    is_less = changes == {"num_layers": 1}
    words = ("no place for", f"{CELL}/B", "they say 1 layers") if is_less else ()
    refused(random_bilm(seed=2, **changes), path, *words)


@pytest.mark.parametrize("key", ["CNN/W_cnn_1", "CNN", "RNN_0"])
def test_a_group_where_a_dataset_belongs_and_the_other_way_round(key, path):
    with h5py.File(path, "r+") as file:
        is_group = isinstance(file[key], h5py.Group)
        del file[key]
        if is_group:
            file[key] = numpy.zeros(3, dtype=numpy.float32)
        else:
            file.create_group(key)
    refused(random_bilm(seed=2), path, f"the key {key}", "is missing, expected shape")


SHAPE = (261, 4)


def link(key, *target):
    """To a place in the file, or in another file beside it."""

    def change(file, folder):
        file.pop(key, None)
        inside = len(target) == 1
        path = str(folder / target[0])
        file[key] = h5py.SoftLink(*target) if inside else h5py.ExternalLink(path, target[1])

    return change


def stored(beside=None, rows=0, **how):
    def change(file, folder):
        if beside:
            how["external"] = [(str(folder / beside), 0, 4 * 261 * 4)]
        file.pop("char_embed")
        file.create_dataset("char_embed", SHAPE, **{"dtype": "f4", **how})[:rows] = 1.0

    return change


def virtual(source):
    def change(file, folder):
        layout = h5py.VirtualLayout(SHAPE, "f4")
        layout[:] = h5py.VirtualSource(str(folder / source), "char_embed", SHAPE)
        file.pop("char_embed")
        file.create_virtual_dataset("char_embed", layout)

    return change


HUGE_CHUNKS = {"maxshape": (None, None), "chunks": (1 << 14, 1 << 14), "compression": "gzip"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (link("char_embed", "/CNN_proj/b_proj"), "char_embed is a link"),
        (link("char_embed", "/char_embed"), "char_embed is a link"),
        (link("notes", "/nowhere"), "notes is a link"),
        (link("char_embed", "secret.hdf5", "char_embed"), "char_embed is a link"),
        (link("RNN_1", "secret.hdf5", "RNN_1"), "RNN_1 is a link"),
        (link("CNN/W_cnn_9", "fifo", "x"), "CNN/W_cnn_9 is a link"),
        (stored("secret.hdf5"), "char_embed is kept in other files"),
        (stored("fifo"), "char_embed is kept in other files"),
        (virtual("secret.hdf5"), "char_embed is kept in other files"),
        (virtual("nowhere.hdf5"), "char_embed is kept in other files"),
        (stored(), "char_embed was not written to its end"),
        (stored(rows=200, chunks=(100, 4)), "char_embed was not written to its end"),
        (stored(**HUGE_CHUNKS), "in chunks of (16384, 16384)"),
        (stored(rows=261, dtype="i4", scaleoffset=0), "needs the HDF5 filter"),
    ],
)
def test_only_what_stands_in_the_file_itself_is_read(change, words, path, tmp_path):
    save_weights(random_bilm(seed=3), tmp_path / "secret.hdf5")
    os.mkfifo(tmp_path / "fifo")
    with h5py.File(path, "r+") as file:
        change(file, tmp_path)
    refused(random_bilm(seed=2), path, words)
    with pytest.raises(ValueError, match=re.escape(words)):
        check_weights(OPTIONS, path)


def test_a_group_that_holds_itself_does_no_harm(path):
    with h5py.File(path, "r+") as file:
        file["CNN/again"] = file["CNN"]
        file["notes/root"] = file["/"]
    load_weights(random_bilm(seed=2), path)


def test_a_double_that_a_float_cannot_hold(path):
    last = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_P_0"
    edit(path, last, lambda array: numpy.full(array.shape, 1e300))
    refused(random_bilm(seed=2), path, last, "more than torch.float32 can hold")
    with pytest.raises(ValueError, match="checksum"):
        load_weights(random_bilm(seed=2).double(), path)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_number_that_changed_on_disk_is_noticed(dtype, tmp_path):
    path = tmp_path / "weights.hdf5"
    save_weights(random_bilm(), path, dtype=dtype)
    load_weights(random_bilm(seed=2), path)

    def other_last_digit(array):
        array.flat[0] = numpy.nextafter(array.flat[0], array.dtype.type(9))
        return array

    edit(path, "CNN_proj/W_proj", other_last_digit)
    with h5py.File(path) as file:
        written = f"expected {file.attrs[checkpoint.CHECKSUM]:08x}"
    refused(random_bilm(seed=2), path, "is damaged", "checksum", written)
    # Released files have none.
    with h5py.File(path, "r+") as file:
        del file.attrs[checkpoint.CHECKSUM]
    load_weights(random_bilm(seed=2), path)


@pytest.mark.skipif(not peak_memory.CLEAR.exists(), reason="no /proc/self/clear_refs")
def test_sizes_are_compared_before_memory_is_taken(path):
    check_weights(OPTIONS, path)
    huge = replace(OPTIONS, cell_size=2**16, projection_dim=2**7)  # 1.2 GB
    options = path.with_name("options.json")
    options.write_text(json.dumps(options_dict(huge)))
    with peak_memory.Growth() as growth:
        with pytest.raises(ValueError, match=r"has shape .*, the options require"):
            check_weights(huge, path)
        with pytest.raises(ValueError, match=r"has shape .*, the options require"):
            load_bilm(str(options), str(path))
    assert growth.megabytes < 300


LITTLE_MEMORY = """
import resource, sys
from tests.tiny_bilm import random_bilm
from elmo_plugin.bilm.files.weights import load_weights

bilm = random_bilm(cell_size=100_000, num_layers=1)
before = bilm.get_parameter(next(name for name, _ in bilm.named_parameters())).clone()
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + 12_000_000, taken + 12_000_000))
try:
    load_weights(bilm, sys.argv[1])
except MemoryError as error:
    print(error)
assert (next(bilm.parameters()) == before).all()
"""


@pytest.mark.slow
def test_memory_that_runs_out_names_the_file(tmp_path):
    path = tmp_path / "weights.hdf5"
    save_weights(random_bilm(cell_size=100_000, num_layers=1), path)
    child = run(LITTLE_MEMORY, path)
    assert f"{path}: there is not enough memory" in child.stdout


def test_memory_that_runs_out_in_a_conversion_names_the_file(path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_swap_gates", Mock(side_effect=MemoryError("no")))
    with pytest.raises(MemoryError) as caught:
        load_weights(random_bilm(), path)
    assert str(caught.value) == f"{path}: there is not enough memory to read it: no"


def test_what_training_left_in_a_file_does_no_harm(path):
    """bilm-tf's word-input models also dump `embedding`."""
    with h5py.File(path, "r+") as file:
        file["embedding"] = numpy.zeros((3, 6), dtype=numpy.float32)
    load_weights(random_bilm(seed=2), path)


def test_values_are_read_on_the_cpu_whatever_the_default_device_is(path):
    """Transformers 5 makes a model on the device meta."""
    with torch.device("meta"):
        assert all(new.device.type == "cpu" for _, new in read_weights(BiLm(OPTIONS), path))
