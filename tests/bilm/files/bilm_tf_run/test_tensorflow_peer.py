"""Compare with checkpoints that TensorFlow writes here; `make libraries` has it."""

import numpy
import pytest

from elmo_plugin.bilm.files.bilm_tf import BilmTfCheckpoint, latest_checkpoint
from tests.bilm.files.bilm_tf_run.write_checkpoint import shapes, write
from tests.bilm.files.test_bilm_tf import released_name
from tests.hdf5 import arrays

pytestmark = pytest.mark.libraries


@pytest.mark.parametrize(("num_layers", "seed"), [(1, 1), (2, 2), (3, 3)])
def test_names_and_values_are_exact(tmp_path, num_layers, seed):
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    held, _, _ = write(tmp_path / "run", num_layers, seed, num_steps=4)
    prefix = latest_checkpoint(tmp_path / "run")
    assert str(prefix) == tensorflow.train.latest_checkpoint(str(tmp_path / "run"))
    BilmTfCheckpoint(tmp_path / "run").write(tmp_path / "out")
    found = arrays(tmp_path / "out" / "weights.hdf5") | arrays(tmp_path / "out/softmax.hdf5")
    if num_layers > 1:
        assert found.keys() == {released_name(name) for name in shapes(num_layers)}
        for name in shapes(num_layers):
            assert found[released_name(name)].tobytes() == held[name].tobytes()
    else:
        kernel = held["lm/RNN_1/rnn/lstm_cell/kernel"]
        assert numpy.array_equal(found["RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"], kernel)
