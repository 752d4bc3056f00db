"""Several processes under torchrun, on one node or on two that share the run's folder."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.other_processes import LIMIT, is_alive, wait_until
from tests.sample_pretraining import SMALL, sample

# One worker of pytest runs all: they share `whole`.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torchrun")]

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def free_port():
    """Not of those that the system gives out: another process may be given it meanwhile."""
    drawn = random.SystemRandom()
    while True:
        port = drawn.randrange(10_000, 32_000)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port


@pytest.fixture
def launch():
    """Starts launchers; whatever is left of them at the end is killed."""
    started = []

    def launch(command):
        started.append(
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=ENVIRONMENT,
                start_new_session=True,
            )
        )
        return started[-1]

    yield launch
    for process in started:
        for pid in [process.pid, *children(process.pid)]:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)


def children(pid):
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(one) for path in lists for one in path.read_text().split()]


def torchrun(path, folder, *arguments, nodes=1, options=(), program=("-m", "elmo_plugin")):
    """The command of each node, with two processes a node."""
    port = free_port()
    commands = [
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", nodes),
            *("--nproc-per-node", 2, "--node-rank", node, "--master-addr", "127.0.0.1"),
            *("--master-port", port, *options),
            *(*program, "pretrain", path, "-s", folder, *arguments),
        ]
        for node in range(nodes)
    ]
    return [[str(word) for word in command] for command in commands]


def end(*launchers):
    for launcher in launchers:
        output, _ = launcher.communicate(timeout=LIMIT)
        assert launcher.returncode == 0, output[-3000:]


def written(config, path):
    path.write_text(json.dumps(config))
    return path


def small(num_processes, **data_loader):
    loader = {"batch_size": 8 // num_processes, "num_steps": 5, "batches_per_epoch": 4}
    return sample(
        **SMALL,
        **{"model.softmax": {"num_samples": 20, "sparse": True}, "model.dropout": 0.0},
        **{f"data_loader.{key}": value for key, value in {**loader, **data_loader}.items()},
        **{"validation_data_loader.batch_size": 4 // num_processes, "trainer.num_epochs": 2},
        **{
            "trainer.optimizer": {"type": "adagrad", "lr": 0.1},
            "trainer.checkpointer": {
                "save_every_num_batches": 1,
                "keep_most_recent_by_count": None,
            },
        },
    )


def weights(folder):
    return torch.load(folder / "best.th", weights_only=True)


IN_FLOAT64 = """
import sys, torch
from elmo_plugin.__main__ import main
torch.set_default_dtype(torch.float64)
main(sys.argv[1:])
"""


def test_two_nodes_under_torchrun_are_one_process(tmp_path, launch):
    """In float64: Adagrad divides a gradient by its size, so rounding of a small one shows."""
    (program := tmp_path / "in_float64.py").write_text(IN_FLOAT64)
    path = written(small(1), tmp_path / "one.json")
    end(launch([sys.executable, program, "pretrain", path, "-s", tmp_path / "one"]))
    path = written(small(4), tmp_path / "config.json")
    end(*map(launch, torchrun(path, tmp_path / "out", nodes=2, program=[program])))
    found, expected = weights(tmp_path / "out"), weights(tmp_path / "one")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert tensor.dtype == torch.float64
        torch.testing.assert_close(found[name], tensor, atol=1e-10, rtol=1e-10)
    assert (tmp_path / "out" / "weights.hdf5").exists()
    assert not list((tmp_path / "out").glob(".*"))
    assert not (tmp_path / "out" / "lock").exists()


def steps(folder):
    """Number of the last step that has a checkpoint; 0 without one."""
    names = [path.stem for path in folder.glob("checkpoint_e0_b*")]
    return max((int(name.split("_b")[1]) for name in names), default=0)


def wait_for_steps(folder, number, launcher):
    """Waits until there are checkpoints of `number` more steps."""
    end = steps(folder) + number
    wait_until(lambda: steps(folder) >= end or launcher.poll() is not None)
    assert launcher.poll() is None, "ended too early"


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A config of 200 steps, with a checkpoint every 10."""
    params = small(2, batches_per_epoch=200)
    params["trainer"] |= {
        "num_epochs": 1,
        "checkpointer": {"save_every_num_batches": 10, "keep_most_recent_by_count": 2},
    }
    params["model"]["dropout"] = 0.1
    return written(params, tmp_path_factory.mktemp("long") / "config.json")


@pytest.fixture(scope="module")
def whole(long):
    """Weights of a run that nothing disturbs."""
    (command,) = torchrun(long, long.with_name("whole"))
    subprocess.run(command, check=True, env=ENVIRONMENT, timeout=LIMIT)
    return weights(long.with_name("whole"))


@pytest.fixture
def start(tmp_path, launch, long):
    """Starts the long run in `tmp_path / "out"`, with more arguments if there are any."""

    def start(*arguments, options=()):
        (command,) = torchrun(long, tmp_path / "out", *arguments, options=options)
        return launch(command)

    return start


def assert_same(folder, expected):
    found = weights(folder)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_torchrun_starts_again_what_was_killed(tmp_path, start, whole):
    launcher = start(options=("--max-restarts", 1))
    wait_for_steps(tmp_path / "out", 10, launcher)
    os.kill(children(launcher.pid)[-1], signal.SIGKILL)
    end(launcher)
    assert_same(tmp_path / "out", whole)


def test_ctrl_c_and_sigterm_save_and_end_all_and_recover_resumes(tmp_path, start, whole):
    out, arguments = tmp_path / "out", []
    for number, stop in ((signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill)):
        launcher = start(*arguments)
        wait_for_steps(out, 10, launcher)
        workers = children(launcher.pid)
        stop(launcher.pid, number)
        output, _ = launcher.communicate(timeout=LIMIT)
        assert launcher.returncode != 0
        assert "stopped, and saved" in output
        assert not any(map(is_alive, workers))
        assert not (out / "weights.hdf5").exists()
        arguments = ["--recover"]
    end(start("--recover"))
    assert_same(out, whole)


def test_an_error_of_process_0_ends_all(tmp_path, launch, long):
    config = json.loads(long.read_text())
    config["train_data_path"] = str(tmp_path / "none.txt")
    (command,) = torchrun(written(config, tmp_path / "bad.json"), tmp_path / "out")
    launcher = launch(command)
    output, _ = launcher.communicate(timeout=LIMIT)
    assert launcher.returncode != 0
    assert "there is no text file" in output
