"""A biLM that carries its state through a run: kept in checkpoints, put aside in validation."""

import json
import re
import shutil
import signal

import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.common import Params
from allennlp.models.archival import archive_model
from interrupted_run import assert_same_end, send

from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.training.trainer import ResumableTrainer
from tests.fresh_process import run
from tests.tagging_task import tagger_config, with_elmo, write_task
from tests.tiny_bilm import BATCHES, random_bilm, write


@pytest.fixture
def config(config, tmp_path):
    files = write(tmp_path)
    options = options_dict(random_bilm().options)
    return with_elmo(config, 12, options=options, pretrained_file=str(files.weights))


@pytest.mark.parametrize("at", [(0, 2), (1, 3), (0, "validation")])
def test_a_run_goes_on_as_if_never_stopped(train, tmp_path, undisturbed, at):
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", at, send(signal.SIGINT))
    train(tmp_path / "run")
    assert_same_end(tmp_path / "run", undisturbed[0])


def test_validation_gives_what_evaluate_gives(train, config, tmp_path):
    """One figure for one model: AllenNLP's own starts validation where training ended."""
    config["test_data_path"], config["evaluate_on_test"] = config["validation_data_path"], True
    metrics = train(tmp_path / "run", num_epochs=1)
    Params(config).to_file(str(tmp_path / "run" / "config.json"))
    archive_model(str(tmp_path / "run"))
    evaluated = evaluate_from_archive(
        str(tmp_path / "run" / "model.tar.gz"), config["validation_data_path"], batch_size=8
    )
    # A token that the biLM remembers may differ in its last bit.
    assert evaluated["loss"] == pytest.approx(metrics["validation_loss"], rel=1e-6)


def test_training_goes_on_with_its_own_state(train, config, tmp_path):
    """A validation in between changes nothing, where it draws no random numbers."""
    config["datasets_for_vocab_creation"] = ["train"]
    config["validation_data_loader"] = {"batch_size": 8}
    train(tmp_path / "with")
    del config["validation_data_path"]
    train(tmp_path / "without")
    with_it, without = (
        torch.load(tmp_path / name / "model_state_e3_b0.th") for name in ("with", "without")
    )
    assert all(torch.equal(with_it[name], without[name]) for name in with_it)


TRAIN = """
import sys
import elmo_plugin.plugin
from allennlp.commands.train import train_model_from_file
train_model_from_file(
    sys.argv[1], sys.argv[2], recover=len(sys.argv) > 3, include_package=["elmo_plugin.plugin"]
)
"""


def start(config, directory, *arguments):
    path = directory.with_suffix(".json")
    path.write_text(json.dumps(config))
    run(TRAIN, path, directory, *arguments)


def states(directory):
    found = {}
    for path in directory.glob("model_state_e*_b*.th"):
        epoch, batch = map(int, re.findall(r"\d+", path.name))
        found[epoch, batch] = torch.load(path, weights_only=True)
    return found


@pytest.mark.slow
def test_two_processes_go_on_as_if_never_stopped(tmp_path, monkeypatch):
    """Each has a state, generators and figures of its own; the first one's checkpoint has all."""
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    write(tmp_path)
    options = options_dict(random_bilm().options)
    both = with_elmo(tagger_config(), 12, options=options, pretrained_file="weights.hdf5")
    both["data_loader"]["batch_size"] = 4
    both["model"]["encoder"] |= {"num_layers": 2, "dropout": 0.5}
    del both["trainer"]["cuda_device"]
    both["trainer"] |= {
        "num_epochs": 2,
        "checkpointer": {"save_every_num_batches": 1, "keep_most_recent_by_count": None},
    }
    both["distributed"] = {"cuda_devices": [-1, -1]}
    start(both, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    # What a kill in the second epoch, after its second batch, would have left.
    for path in (tmp_path / "again").iterdir():
        point = re.match(r"(model|training)_state_e(\d+)_b(\d+)\.th", path.name)
        if point and (int(point[2]), int(point[3])) > (1, 2):
            path.unlink()
    for name in ("metrics_epoch_1.json", "metrics.json", "model.tar.gz"):
        (tmp_path / "again" / name).unlink()
    start(both, tmp_path / "again", "--recover")
    whole, again = states(tmp_path / "whole"), states(tmp_path / "again")
    for point in ((1, 3), (2, 0)):
        for name, tensor in whole[point].items():
            assert torch.equal(again[point][name], tensor), (point, name)
    found, wanted = (
        json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("again", "whole")
    )
    assert wanted["training_accuracy"] < 1
    for name in ("training_loss", "training_accuracy", "validation_loss", "best_epoch"):
        assert found[name] == wanted[name], name


def test_a_state_comes_back_to_where_the_model_is():
    """From the checkpoint or a validation, and so that `reset_states` may get a mask from there."""
    trainer = ResumableTrainer.__new__(ResumableTrainer)
    trainer.model, trainer.cuda_device = random_bilm(), torch.device("meta")
    trainer.model(batch_to_ids(BATCHES[0]))
    carried = trainer._carried()
    trainer._set_carried(carried)
    assert {one.device.type for one in trainer.model.lstm.policy.states} == {"meta"}
    assert {one.device.type for one in carried["_elmo_lstm"]} == {"cpu"}
    trainer._set_carried({})
    assert trainer.model.lstm.policy.states is None
