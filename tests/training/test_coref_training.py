"""Coreference: a run that is stopped goes on to the bit, and its archive stands alone."""

import shutil
import signal
from pathlib import Path

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.models.archival import load_archive
from allennlp.predictors import Predictor
from interrupted_run import NUM_EPOCHS, assert_same_end, send
from test_training_metrics import reproducible

import elmo_plugin.plugin  # noqa: F401
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.model.bilm import BiLm
from tests.tiny_bilm import SMALLEST

ROOT = Path(__file__).parents[2]


@pytest.fixture
def config(tmp_path):
    """The sample's, on its dev documents, with windows, dropout, ELMo and a rate that falls."""

    torch.manual_seed(1)
    config = Params.from_file(str(ROOT / "training_config/coref_elmo.jsonnet")).as_dict()
    save_weights(BiLm(SMALLEST), tmp_path / "weights.hdf5")
    elmo = {
        "options": options_dict(SMALLEST),
        "pretrained_file": str(tmp_path / "weights.hdf5"),
    }
    config["model"]["elmo"].update(elmo)
    # A cached vector has the last bits of the batch that it was first seen in.
    del config["model"]["elmo"]["cache"]
    config["model"]["context_layer"]["input_size"] = 32 + 3 * 8 + SMALLEST.embedding_dim
    config["model"]["max_training_sentences"] = 2
    for key in ("train_data_path", "validation_data_path"):
        config[key] = str(ROOT / "examples/coref/dev.gold_conll")
    del config["test_data_path"]
    config["trainer"].update(
        num_epochs=NUM_EPOCHS,
        cuda_device=-1,
        callbacks=["at_batch"],
        learning_rate_scheduler={
            "type": "staircase_decay",
            "decay_rate": 0.5,
            "decay_steps": 4,
        },
    )
    return config


@pytest.mark.slow
def test_recovery_changes_no_bit(train, tmp_path):
    whole = train(tmp_path / "whole")
    for at in ((0, 7), (1, 3), (2, 10)):
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "stopped", at, send(signal.SIGINT))
    assert reproducible(train(tmp_path / "stopped")) == reproducible(whole)
    assert whole["validation_loss"] > 0
    assert_same_end(tmp_path / "stopped", tmp_path / "whole")


def test_the_archive_stands_alone(config, tmp_path, monkeypatch):
    config["trainer"]["num_epochs"] = 1
    model = train_model(Params(config), str(tmp_path / "out")).eval()
    (away := tmp_path / "away").mkdir()
    shutil.move(tmp_path / "out" / "model.tar.gz", away)
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "weights.hdf5").unlink()
    monkeypatch.chdir(away)
    archive = load_archive("model.tar.gz")
    path = str(ROOT / "examples/coref/test.gold_conll")
    instances = list(archive.validation_dataset_reader.read(path))
    found = archive.model.eval().forward_on_instances(instances)
    expected = model.forward_on_instances(instances)
    assert [one["clusters"] for one in found] == [one["clusters"] for one in expected]
    predictor = Predictor.from_archive(archive)
    output = predictor.predict_json(
        {"sentences": [["I", "saw", "you", "."], ["You", "did", "?"]], "speakers": ["Al", "Bo"]}
    )
    assert output["document"] == ["I", "saw", "you", ".", "You", "did", "?"]
