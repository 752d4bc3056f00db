"""Runs on SQuAD go on bit-equal, averages and drawn answers too; their archives stand alone."""

import json
import shutil
import signal

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.models.archival import load_archive
from allennlp.predictors import Predictor
from interrupted_run import NUM_EPOCHS, assert_same_end, send
from test_training_metrics import reproducible

from tests.fresh_process import allennlp
from tests.tiny_bilm import random_bilm, write

pytestmark = pytest.mark.slow
OWN = ("squad", "squad_elmo")


@pytest.fixture(params=OWN)
def config(request, repository, tmp_path, monkeypatch):
    """A sample config on few questions, which have several answers, with a tiny biLM."""
    monkeypatch.chdir(repository)
    config = Params.from_file(f"training_config/{request.param}.jsonnet").as_dict(quiet=True)
    config["train_data_path"] = str(repository / "examples/squad/dev.json")
    config["validation_data_path"] = str(repository / "examples/squad/test.json")
    del config["test_data_path"]
    config["dataset_reader"]["max_instances"] = 20
    config["data_loader"]["batch_sampler"]["batch_size"] = 5
    config["model"]["span_loss"] = "one_answer"
    config["trainer"] |= {
        "optimizer": {"type": "adadelta", "lr": 1.0, "rho": 0.95, "eps": 1e-8},
        "moving_average": {"type": "exponential", "decay": 0.7},
        "num_epochs": NUM_EPOCHS,
        "cuda_device": -1,
        "callbacks": ["at_batch"],
    }
    if "elmo" in config["model"]:
        folder = tmp_path / "bilm"
        folder.mkdir()
        files = write(folder, random_bilm())
        options = json.loads((folder / "options.json").read_text())
        config["model"]["elmo"] |= {"options": options, "pretrained_file": files.weights}
        config["model"]["phrase_layer"]["input_size"] = 20 + 30 + 2 * 6
    return config


def averages(directory):
    state = torch.load(directory / f"training_state_e{NUM_EPOCHS}_b0.th", weights_only=True)
    return state["moving_average"]["shadows"]


@pytest.mark.parametrize("config", OWN, indirect=True)
def test_a_stopped_run_ends_as_one_that_was_left_alone(train, tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "run"
    metrics = train(whole)
    for at in ((0, 2), (1, 1), (1, "validation")):
        with pytest.raises(KeyboardInterrupt):
            train(run, at, send(signal.SIGINT))
    assert reproducible(train(run)) == reproducible(metrics)
    assert_same_end(run, whole)
    found, wanted = averages(run), averages(whole)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    raw, best = (
        torch.load(whole / name) for name in (f"model_state_e{NUM_EPOCHS}_b0.th", "best.th")
    )
    name = "_span_end_predictor.weight"
    assert not torch.equal(wanted[name], raw[name])  # an average, not the last weights
    # The best weights are the averages of their epoch.
    if json.loads((whole / f"metrics_epoch_{NUM_EPOCHS - 1}.json").read_text())["best_epoch"] == 2:
        assert torch.equal(best[name], wanted[name])


def test_the_archive_answers_and_evaluates_from_elsewhere(config, tmp_path, repository):
    config["trainer"]["num_epochs"] = 1
    train_model(Params(config), str(tmp_path / "run"))
    shutil.rmtree(tmp_path / "bilm", ignore_errors=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    data = shutil.copy(repository / "examples/squad/test.json", elsewhere / "questions.json")
    archive = shutil.move(tmp_path / "run" / "model.tar.gz", elsewhere / "model.tar.gz")
    shutil.rmtree(tmp_path / "run")
    passage = "The  mill stands\nby the river. A farmer built it."
    (elsewhere / "in.jsonl").write_text(
        json.dumps({"question": "Who built it?", "passage": passage}) + "\n"
    )

    def run(*arguments):
        allennlp(*arguments, "--include-package", "elmo_plugin.plugin", folder=elsewhere)

    run("predict", archive.name, "in.jsonl", "--output-file", "out.jsonl", "--silent")
    found = json.loads((elsewhere / "out.jsonl").read_text())
    assert found["best_span_str"] in passage
    assert found["passage"] == passage
    run("evaluate", archive.name, str(data), "--output-file", "metrics.json")
    metrics = json.loads((elsewhere / "metrics.json").read_text())
    assert 0 <= metrics["em"] <= metrics["f1"] <= 1
    predictor = Predictor.from_archive(load_archive(archive))
    assert predictor.predict("Who built it?", passage)["best_span"] == found["best_span"]
    with pytest.raises(ValueError, match="the passage is empty"):
        predictor.predict("Who built it?", " ")
    with pytest.raises(ValueError, match=r"found the keys \['question'\]"):
        predictor.predict_json({"question": "Who?"})
