"""Adagrad goes on where bilm-tf stopped: the next step is TensorFlow's."""

import h5py
import numpy
import pytest
import torch

from elmo_plugin.bilm.files.bilm_tf import BilmTfCheckpoint
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.weights import layout, save_weights
from elmo_plugin.bilm.pretraining.language_model import LanguageModel
from elmo_plugin.bilm.pretraining.optimization import make_optimizer
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax, load_softmax
from tests.bilm.files.bilm_tf_run.write_checkpoint import WORDS
from tests.bilm.files.test_bilm_tf import FIXTURE, held, released_name


class Model(torch.nn.Module):
    """As `bilm_language_model` holds it."""

    def __init__(self, language_model):
        super().__init__()
        self.language_model = language_model


@pytest.fixture
def converted(tmp_path, tensorflow):
    BilmTfCheckpoint(FIXTURE).write(tmp_path)
    return tmp_path


@pytest.fixture
def model(converted):
    bilm = load_bilm(converted / "options.json", converted / "weights.hdf5", requires_grad=True)
    softmax = WordSoftmax(len(WORDS), bilm.options.projection_dim)
    load_softmax(softmax, converted / "softmax.hdf5")
    return Model(LanguageModel(bilm, softmax))


def optimizer_of(model, **config):
    return make_optimizer(model.named_parameters(), {"type": "bilm_tf_adagrad", **config})


def next_step(model, optimizer, values):
    """One step with the gradient that TensorFlow had."""
    gradient = {
        released_name(name.removeprefix("gradient/")): value
        for name, value in values.items()
        if name.startswith("gradient/")
    }
    language_model = model.language_model
    owners = {one.data_ptr(): one for one in model.parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for entry in layout(language_model.bilm):
        for target, part in entry.split(gradient[entry.key]):
            base = target if target._base is None else target._base
            grad = owners[base.data_ptr()].grad
            where = grad.as_strided(target.size(), target.stride(), target.storage_offset())
            where.copy_(-part if entry.is_negated else part)
    language_model.softmax.weight.grad.copy_(torch.from_numpy(gradient["softmax/W"]))
    language_model.softmax.bias.grad.copy_(torch.from_numpy(gradient["softmax/b"]).unsqueeze(1))
    optimizer.step()


def difference_to_tensorflow(model, values, folder):
    save_weights(model.language_model.bilm, folder / "stepped.hdf5")
    softmax = model.language_model.softmax
    with h5py.File(folder / "stepped.hdf5") as file, torch.no_grad():
        found = {"softmax/W": softmax.weight.numpy(), "softmax/b": softmax.bias[:, 0].numpy()}
        after = {released_name(n.removeprefix("after/")): n for n in values if "after/" in n}
        return max(
            numpy.abs((found[key] if key in found else file[key][...]) - values[name]).max()
            for key, name in after.items()
        )


def test_the_next_step_is_tensorflows(converted, model):
    values = held()
    next_step(model, optimizer_of(model, directory=str(converted)), values)
    assert difference_to_tensorflow(model, values, converted) < 1e-6


def test_a_fresh_adagrad_goes_another_way(converted, model):
    values = held()
    params = {"type": "adagrad", "lr": 0.2, "initial_accumulator_value": 1.0}
    optimizer = make_optimizer(model.named_parameters(), params)
    next_step(model, optimizer, values)
    assert difference_to_tensorflow(model, values, converted) > 1e-3


def test_what_does_not_fit_is_an_error(converted, model, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no options file"):
        optimizer_of(model, directory=str(tmp_path / "none"))
    other = Model(LanguageModel(model.language_model.bilm, WordSoftmax(7, 3)))
    with pytest.raises(ValueError, match=r"softmax.weight has shape \(10, 3\), expected"):
        optimizer_of(other, directory=str(converted))
    (converted / "adagrad.hdf5").unlink()
    with pytest.raises(FileNotFoundError, match="there is no file of Adagrad's accumulators"):
        optimizer_of(model, directory=str(converted))
