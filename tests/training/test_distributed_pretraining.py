"""Two gloo processes on the CPU: their gradients are those of one, and each keeps its place."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import torch
from allennlp.common import Params

pytestmark = pytest.mark.slow

NUM_EPOCHS, NUM_BATCHES = 2, 4
TRAIN = """
import sys
import elmo_plugin.plugin
from allennlp.commands.train import train_model_from_file
if __name__ == "__main__":
    train_model_from_file(
        sys.argv[1], sys.argv[2], recover=len(sys.argv) > 3, include_package=["elmo_plugin.plugin"]
    )
"""


def start(config, directory, *arguments):
    path = directory.with_suffix(".json")
    path.write_text(json.dumps(config))
    script = directory.with_suffix(".py")
    script.write_text(TRAIN)
    child = subprocess.run(
        [sys.executable, str(script), str(path), str(directory), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert child.returncode == 0, child.stderr[-3000:]


def config(repository, num_processes, **model):
    params = Params.from_file(str(repository / "training_config/bilm.jsonnet")).as_dict()
    for key in ("train_data_path", "validation_data_path"):
        params[key] = str(repository / params[key])
    params["model"]["options"]["lstm"] |= {"dim": 8, "projection_dim": 4}
    params["model"] |= {"softmax": {"num_samples": None}, "dropout": 0.0, **model}
    params["data_loader"] |= {
        "batch_size": 8 // num_processes,
        "num_steps": 5,
        "batches_per_epoch": NUM_BATCHES,
    }
    params["validation_data_loader"] |= {"batch_size": 4 // num_processes}
    params["trainer"] |= {
        "num_epochs": NUM_EPOCHS,
        # Plain steps: the weights are the sum of the gradients.
        "optimizer": {"type": "sgd", "lr": 0.5},
        "checkpointer": {"save_every_num_batches": 1, "keep_most_recent_by_count": None},
    }
    if num_processes > 1:
        params["distributed"] = {"cuda_devices": [-1] * num_processes}
    else:
        params["trainer"]["cuda_device"] = -1
    return params


def states(directory):
    found = {}
    for path in directory.glob("*_e*_b*.th"):  # pretraining's, or a task model's
        if not path.name.startswith("training_state"):
            epoch, batch = map(int, re.findall(r"\d+", path.name))
            state = torch.load(path, weights_only=True)
            found[epoch, batch] = state.get("model", state)
    return found


def metrics(directory, epoch=NUM_EPOCHS - 1):
    found = json.loads((directory / f"metrics_epoch_{epoch}.json").read_text())
    return {name: found[name] for name in ("training_loss", "validation_perplexity")}


def test_two_processes_take_the_steps_of_one(repository, tmp_path):
    start(config(repository, 1), tmp_path / "one")
    start(config(repository, 2), tmp_path / "two")
    one, two = states(tmp_path / "one"), states(tmp_path / "two")
    assert one.keys() == two.keys()
    assert len(one) == NUM_EPOCHS * (NUM_BATCHES + 1)
    for point, state in one.items():
        for name, tensor in state.items():
            torch.testing.assert_close(two[point][name], tensor, atol=2e-6, rtol=1e-5)
    moved = [
        not torch.equal(one[0, 1][name], tensor) for name, tensor in one[NUM_EPOCHS, 0].items()
    ]
    assert sum(moved) > 20
    assert metrics(tmp_path / "two") == pytest.approx(metrics(tmp_path / "one"), rel=1e-4)
    assert (tmp_path / "two" / "weights.hdf5").exists()


def test_an_epoch_with_several_checkpoints_ends(repository, tmp_path):
    """Both must save at the same batches: a save gathers what each of them knows."""
    params = config(repository, 2)
    params["data_loader"]["batches_per_epoch"] = 7
    params["trainer"]["checkpointer"]["save_every_num_batches"] = 3
    start(params, tmp_path / "run")
    assert sorted(states(tmp_path / "run")) == [(0, 3), (0, 6), (1, 0), (1, 3), (1, 6), (2, 0)]


def test_two_processes_go_on_as_if_never_stopped(repository, tmp_path):
    softmax = {"num_samples": 20}
    both = config(repository, 2, softmax=softmax, dropout=0.1)
    start(both, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    # What a kill in the second epoch, after its second batch, would have left.
    for path in (tmp_path / "again").iterdir():
        point = re.match(r"checkpoint_e(\d+)_b(\d+)\.th", path.name)
        if point and (int(point[1]), int(point[2])) > (1, 2):
            path.unlink()
    (tmp_path / "again" / "metrics_epoch_1.json").unlink()
    for name in ("metrics.json", "weights.hdf5", "model.tar.gz"):
        (tmp_path / "again" / name).unlink()
    start(both, tmp_path / "again", "--recover")
    whole, again = states(tmp_path / "whole"), states(tmp_path / "again")
    for point in ((1, 3), (2, 0)):
        for name, tensor in whole[point].items():
            assert torch.equal(again[point][name], tensor), (point, name)
    assert metrics(tmp_path / "again") == metrics(tmp_path / "whole")
