"""A process of AllenNLP's distributed training that dies, or is left alone, ends the run."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.other_processes import LIMIT, is_alive, wait_until

pytestmark = pytest.mark.slow

# At its second step rank 1 raises, or dies, or stands still, and rank 0 waits for it. Both have
# told their ids by then.
RUN = """
import os, signal, sys, time
import elmo_plugin.plugin
import torch.distributed
from allennlp.commands.train import train_model_from_file
from allennlp.training.callbacks import TrainerCallback

@TrainerCallback.register("disturb")
class Disturb(TrainerCallback):
    def on_batch(self, trainer, inputs, outputs, metrics, epoch, batch_number, **kwargs):
        how = os.environ["HOW"]
        if batch_number == 1:
            with open(os.environ["PIDS"], "a") as file:
                file.write(f"{trainer._rank} {os.getpid()}\\n")
        elif batch_number == 2 and trainer._rank == 1:
            if how == "raise":
                raise ValueError("rank 1 fails")
            if how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            open(os.environ["PIDS"] + ".stands", "w").close()
            while True:
                time.sleep(0.1)

if __name__ == "__main__":
    train_model_from_file(sys.argv[1], sys.argv[2], include_package=["elmo_plugin.plugin"])
"""


@pytest.fixture
def run(config, tmp_path):
    """Starts a run of two processes; those that are left are killed."""
    params = {**config, "distributed": {"cuda_devices": [-1, -1]}}
    params["trainer"] = {**config["trainer"], "callbacks": ["disturb"], "num_epochs": 50}
    del params["trainer"]["cuda_device"]
    (tmp_path / "run.py").write_text(RUN)
    (tmp_path / "config.json").write_text(json.dumps(params))
    started = []

    def start(how):
        started.append(
            subprocess.Popen(
                [sys.executable, "run.py", "config.json", "out"],
                cwd=tmp_path,
                env={**os.environ, "HOW": how, "PIDS": str(tmp_path / "pids")},
                stderr=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        )
        return started[0]

    yield start
    for process in (started[0].pid, *pids(tmp_path).values()):
        if is_alive(process):
            os.kill(process, signal.SIGKILL)


def pids(folder):
    lines = (folder / "pids").read_text().splitlines() if (folder / "pids").exists() else []
    return {int(rank): int(pid) for rank, pid in map(str.split, lines)}


@pytest.mark.parametrize(("how", "said"), [("raise", "rank 1 fails"), ("die", "SIGKILL")])
def test_a_process_that_fails_ends_the_other_with_its_name(run, tmp_path, how, said):
    child = run(how)
    _, errors = child.communicate(timeout=LIMIT)
    assert child.returncode != 0
    assert "process 1" in errors.lower()
    assert said in errors
    assert len(pids(tmp_path)) == 2
    wait_until(lambda: not any(map(is_alive, pids(tmp_path).values())))


@pytest.mark.parametrize("by_ctrl_c", [True, False])
def test_processes_end_with_the_one_that_started_them(run, tmp_path, by_ctrl_c):
    """While rank 1 stands still, and rank 0 waits for it."""
    child = run("stand")
    wait_until(lambda: (tmp_path / "pids.stands").exists() or child.poll() is not None)
    assert len(pids(tmp_path)) == 2
    if by_ctrl_c:
        time.sleep(1)  # rank 0 waits by then, or soon
        os.killpg(child.pid, signal.SIGINT)
        child.communicate(timeout=LIMIT)
    else:
        child.kill()
    wait_until(lambda: not any(map(is_alive, pids(tmp_path).values())))
