"""A trained biLM goes on: with a softmax of its own first, or with the one it was exported with."""

import copy
import itertools
import json

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

import elmo_plugin.plugin  # noqa: F401
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.pretraining import pretrain as pretrain_module
from elmo_plugin.bilm.pretraining.loop import Pretraining
from tests.sample_pretraining import sample

NUM_BATCHES, FROZEN = 12, 4


@pytest.fixture
def seen(monkeypatch):
    """One weight of the biLM, and the softmax's, after each step."""
    weights = []

    class Watched(Pretraining):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, on_step=self.note, **kwargs)

        def note(self, step):
            bilm = self.model.bilm.lstm.forward_layer_0.state_projection.weight
            weights.append([bilm.detach().clone(), self.model.softmax.weight.detach().clone()])

    monkeypatch.setattr(pretrain_module, "Pretraining", Watched)
    return weights


def config(name, **model):
    params = sample(
        name,
        **{"data_loader.batches_per_epoch": NUM_BATCHES, "validation_data_loader.batch_size": 16},
        **{"trainer.num_epochs": 1, "trainer.learning_rate_scheduler.warmup_steps": 5},
    )
    params["model"] |= model
    return params


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run to go on from."""
    directory = tmp_path_factory.mktemp("first") / "out"
    params = config("bilm_small")
    params["data_loader"]["batches_per_epoch"] = 60
    train_model(Params(params), str(directory))
    return directory


def files(directory):
    options = json.loads((directory / "options.json").read_text())
    return {"options": options, "pretrained_file": str(directory / "weights.hdf5")}


def perplexity(directory):
    return json.loads((directory / "metrics.json").read_text())["validation_perplexity"]


def test_the_softmax_trains_alone_first_then_all(first, tmp_path, seen):
    params = config("bilm_fine_tuning", **files(first), frozen_steps=FROZEN)
    train_model(Params(copy.deepcopy(params)), str(tmp_path / "out"))
    start = load_bilm(str(first / "options.json"), str(first / "weights.hdf5"))
    before = start.lstm.forward_layer_0.state_projection.weight
    assert len(seen) == NUM_BATCHES
    for step, (bilm, _) in enumerate(seen, start=1):
        assert torch.equal(bilm, before) == (step <= FROZEN)
    softmaxes = [softmax for _, softmax in seen]
    assert all(not torch.equal(*pair) for pair in itertools.pairwise(softmaxes))
    after = load_bilm(str(tmp_path / "out/options.json"), str(tmp_path / "out/weights.hdf5"))
    fine_tuned = after.lstm.forward_layer_0.state_projection.weight
    torch.testing.assert_close(fine_tuned, seen[-1][0])


@pytest.mark.slow
def test_with_its_own_softmax_a_bilm_goes_on_where_it_was(first, tmp_path):
    params = config("bilm_small", **files(first))
    params["model"]["softmax"]["pretrained_file"] = str(first / "softmax.hdf5")
    params["vocabulary"]["vocabulary_file"] = str(first / "vocabulary.txt")
    params["trainer"]["optimizer"]["lr"] = 1e-9
    train_model(Params(copy.deepcopy(params)), str(tmp_path / "out"))
    assert perplexity(tmp_path / "out") == pytest.approx(perplexity(first), rel=1e-4)
    # A new softmax knows nothing.
    del params["model"]["softmax"]["pretrained_file"]
    train_model(Params(copy.deepcopy(params)), str(tmp_path / "new"))
    assert perplexity(tmp_path / "new") > 1.3 * perplexity(first)


def test_a_softmax_over_another_vocabulary_is_refused(first, tmp_path):
    params = config("bilm_small", **files(first))
    params["model"]["softmax"]["pretrained_file"] = str(first / "softmax.hdf5")
    params["vocabulary"]["max_size"] = 100
    with pytest.raises(ConfigurationError, match=r"softmax.hdf5: .*expected \(100, 32\)"):
        train_model(Params(copy.deepcopy(params)), str(tmp_path / "out"))


@pytest.mark.parametrize("key", ["pretrained_file", "softmax"])
def test_a_missing_file_is_refused(tmp_path, key):
    params = config("bilm_small")
    block = params["model"]["softmax"] if key == "softmax" else params["model"]
    block["pretrained_file"] = str(tmp_path / "none.hdf5")
    with pytest.raises(ConfigurationError, match=r"there is no .*none\.hdf5"):
        train_model(Params(copy.deepcopy(params)), str(tmp_path / "out"))
