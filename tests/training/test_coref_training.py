"""Coreference: a run that is stopped goes on to the bit, and its archive stands alone."""

import json
import shutil
import signal
from pathlib import Path

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.models.archival import load_archive
from allennlp.predictors import Predictor
from allennlp.training.callbacks import TrainerCallback

import elmo_plugin.plugin  # noqa: F401
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.model.bilm import BiLm
from tests.tiny_bilm import SMALLEST

ROOT = Path(__file__).parents[2]
NUM_EPOCHS = 3


@TrainerCallback.register("stop_at")
class StopAt(TrainerCallback):
    """Ctrl-C, once, after a step."""

    point = None

    def on_batch(
        self, trainer, inputs, outputs, metrics, epoch, batch_number, is_training, **kwargs
    ):
        if is_training and StopAt.point == (epoch, batch_number):
            StopAt.point = None
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def config(tmp_path):
    """The sample's, on its dev documents, with windows, dropout, ELMo and a rate that falls."""

    def build():
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
            callbacks=["stop_at"],
            learning_rate_scheduler={
                "type": "staircase_decay",
                "decay_rate": 0.5,
                "decay_steps": 4,
            },
        )
        return Params(config)

    torch.manual_seed(1)
    return build


def end_of(directory):
    metrics = json.loads((directory / f"metrics_epoch_{NUM_EPOCHS - 1}.json").read_text())
    kept = {key: value for key, value in metrics.items() if "loss" in key or "coref" in key}
    return kept, torch.load(directory / "best.th", weights_only=True)


@pytest.mark.slow
def test_recovery_changes_no_bit(config, tmp_path):
    params = config()
    train_model(params.duplicate(), str(tmp_path / "whole"))
    recover = False
    for point in ((0, 7), (1, 3), (2, 10)):
        StopAt.point = point
        with pytest.raises(KeyboardInterrupt):
            train_model(params.duplicate(), str(tmp_path / "stopped"), recover=recover)
        recover = True
    train_model(params.duplicate(), str(tmp_path / "stopped"), recover=True)
    metrics, weights = end_of(tmp_path / "stopped")
    expected_metrics, expected = end_of(tmp_path / "whole")
    # The epoch's mean of training losses is summed up in two parts.
    assert metrics.pop("training_loss") == pytest.approx(expected_metrics.pop("training_loss"))
    assert metrics == expected_metrics
    assert metrics["validation_loss"] > 0
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())


def test_the_archive_stands_alone(config, tmp_path, monkeypatch):
    params = config()
    params["trainer"]["num_epochs"] = 1
    model = train_model(params, str(tmp_path / "out")).eval()
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
