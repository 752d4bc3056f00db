"""Checkpoints that TensorFlow writes here and now; `make libraries` has it."""

import numpy
import pytest

from elmo_plugin.bilm.files.bilm_tf import BilmTfCheckpoint
from elmo_plugin.bilm.files.tensorflow.checkpoint import TensorFlowCheckpoint, latest_checkpoint
from elmo_plugin.bilm.files.tensorflow.snappy import decompress
from tests.bilm.files.bilm_tf_run.write_checkpoint import shapes, write
from tests.bilm.files.test_bilm_tf import datasets, released_name

pytestmark = pytest.mark.libraries


@pytest.mark.parametrize(("num_layers", "seed"), [(1, 1), (2, 2), (3, 3)])
def test_names_and_values_are_exact(tmp_path, num_layers, seed):
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    held, _, _ = write(tmp_path / "run", num_layers, seed, num_steps=4)
    prefix = latest_checkpoint(tmp_path / "run")
    assert str(prefix) == tensorflow.train.latest_checkpoint(str(tmp_path / "run"))
    peer = tensorflow.train.load_checkpoint(str(prefix))
    ours = TensorFlowCheckpoint(prefix)
    assert {n: list(one.shape) for n, one in ours.variables.items()} == (
        peer.get_variable_to_shape_map()
    )
    for name, values in held.items():
        assert ours.read(name).tobytes() == peer.get_tensor(name).tobytes() == values.tobytes()
    BilmTfCheckpoint(tmp_path / "run").write(tmp_path / "out")
    found = datasets(tmp_path / "out" / "weights.hdf5") | datasets(tmp_path / "out/softmax.hdf5")
    if num_layers > 1:
        assert found.keys() == {released_name(name) for name in shapes(num_layers)}
        for name in shapes(num_layers):
            assert found[released_name(name)].tobytes() == held[name].tobytes()
    else:
        kernel = held["lm/RNN_1/rnn/lstm_cell/kernel"]
        assert numpy.array_equal(found["RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"], kernel)


def test_several_shards_and_types(tmp_path):
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    io_ops = tensorflow.raw_ops
    rng = numpy.random.default_rng(0)
    arrays = {
        f"group_{index}/{dtype}": (100 * rng.normal(size=(index + 1, 7))).astype(dtype)
        for index in range(40)
        for dtype in ("float16", "float32", "float64", "int32", "int64", "uint8", "int8", "bool")
    }
    names = sorted(arrays)
    prefixes = []
    for shard, part in enumerate((names[0::2], names[1::2])):
        prefixes.append(str(tmp_path / f"part-{shard}"))
        io_ops.SaveV2(
            prefix=prefixes[-1],
            tensor_names=part,
            shape_and_slices=[""] * len(part),
            tensors=[arrays[name] for name in part],
        )
    io_ops.MergeV2Checkpoints(
        checkpoint_prefixes=prefixes, destination_prefix=str(tmp_path / "whole")
    )
    ours = TensorFlowCheckpoint(tmp_path / "whole")
    assert ours.num_shards == 2
    assert sorted(ours.variables) == names
    for name, array in arrays.items():
        found = ours.read(name)
        assert found.dtype == array.dtype
        assert numpy.array_equal(found, array)


def test_snappy_of_a_library():
    cramjam = pytest.importorskip("cramjam", reason="cramjam is not installed")
    rng = numpy.random.default_rng(0)
    for size in (0, 1, 59, 60, 61, 300, 70_000, 300_000):
        repeated = bytes(rng.integers(4, size=size, dtype=numpy.uint8))
        for data in (rng.bytes(size), repeated, b"ab" * size):
            assert decompress(bytes(cramjam.snappy.compress_raw(data))) == data
