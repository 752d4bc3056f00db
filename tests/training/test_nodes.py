"""Several nodes, here two launchers on one machine, that share one folder."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from test_distributed_pretraining import config

pytestmark = pytest.mark.slow


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def launch():
    """Starts launchers; whatever is left of them at the end is killed."""
    started = []

    def launch(*command):
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        started.append(
            subprocess.Popen(
                [sys.executable, *map(str, command)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment,
                start_new_session=True,
            )
        )
        return started[-1]

    yield launch
    for process in started:
        for pid in [process.pid, *children(process.pid)]:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)


def children(pid):
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(one) for path in lists for one in path.read_text().split()]


def torchrun(launch, path, folder, *arguments, nodes=1, processes=4, options=()):
    port = free_port()
    return [
        launch(
            *("-m", "torch.distributed.run", "--nnodes", nodes, "--nproc-per-node", processes),
            *("--node-rank", node, "--master-addr", "127.0.0.1", "--master-port", port),
            *(*options, "-m", "elmo_plugin", "pretrain", path, "-s", folder, *arguments),
        )
        for node in range(nodes)
    ]


def end(launchers):
    for launcher in launchers:
        output, _ = launcher.communicate(timeout=280)
        assert launcher.returncode == 0, output[-3000:]


def written(config, path):
    path.write_text(json.dumps(config))
    return path


def small(repository, num_processes, **data_loader):
    params = config(repository, num_processes, softmax={"num_samples": 20, "sparse": True})
    del params["trainer"]["callbacks"]
    params["trainer"]["optimizer"] = {"type": "adagrad", "lr": 0.1}
    params["trainer"]["cuda_device"] = -1
    params["data_loader"] |= data_loader
    params.pop("distributed", None)
    return params


def weights(folder):
    return torch.load(folder / "best.th", weights_only=True)


def assert_near(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-5, rtol=1e-5)


@pytest.fixture
def one(repository, tmp_path):
    """A single process with all the streams."""
    path = written(small(repository, 1), tmp_path / "one.json")
    subprocess.run(
        [sys.executable, "-m", "elmo_plugin", "pretrain", path, "-s", tmp_path / "one"], check=True
    )
    return weights(tmp_path / "one")


def test_two_nodes_under_torchrun_are_one_process(repository, tmp_path, launch, one):
    path = written(small(repository, 4), tmp_path / "config.json")
    end(torchrun(launch, path, tmp_path / "out", nodes=2, processes=2))
    assert_near(weights(tmp_path / "out"), one)
    assert (tmp_path / "out" / "weights.hdf5").exists()
    assert not list((tmp_path / "out").glob(".*"))


def test_two_nodes_of_allennlp_are_one_process(repository, tmp_path, launch, one):
    params = small(repository, 4)
    del params["trainer"]["cuda_device"]
    params["distributed"] = {
        "cuda_devices": [-1, -1],
        "num_nodes": 2,
        "primary_port": free_port(),
    }
    path = written(params, tmp_path / "config.json")
    command = ("-m", "allennlp", "train", path, "-s", tmp_path / "out")
    more = ("--include-package", "elmo_plugin", "--node-rank")
    end([launch(*command, *more, node) for node in (0, 1)])
    assert_near(weights(tmp_path / "out"), one)
    assert (tmp_path / "out" / "model.tar.gz").exists()


def wait_for(condition, launchers, seconds=200):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "still waiting"
        assert all(launcher.poll() is None for launcher in launchers), "ended too early"
        time.sleep(0.05)


def has_steps(folder, number):
    return any(int(path.stem.split("_b")[1]) >= number for path in folder.glob("checkpoint_e0_b*"))


@pytest.fixture
def long(repository, tmp_path):
    params = small(repository, 2, batches_per_epoch=60)
    params["trainer"] |= {
        "num_epochs": 1,
        "checkpointer": {"save_every_num_batches": 5, "keep_most_recent_by_count": 2},
    }
    params["model"]["dropout"] = 0.1
    return written(params, tmp_path / "config.json")


@pytest.fixture
def whole(long, tmp_path, launch):
    end(torchrun(launch, long, tmp_path / "whole", processes=2))
    return weights(tmp_path / "whole")


def assert_same(found, expected):
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_torchrun_starts_again_what_was_killed(tmp_path, launch, long, whole):
    out = tmp_path / "out"
    launchers = torchrun(launch, long, out, processes=2, options=("--max-restarts", 1))
    wait_for(lambda: has_steps(out, 10), launchers)
    os.kill(children(launchers[0].pid)[-1], signal.SIGKILL)
    end(launchers)
    assert_same(weights(out), whole)


def test_sigterm_saves_and_recover_goes_on(tmp_path, launch, long, whole):
    out = tmp_path / "out"
    launchers = torchrun(launch, long, out, processes=2)
    wait_for(lambda: has_steps(out, 10), launchers)
    launchers[0].terminate()
    output, _ = launchers[0].communicate(timeout=100)
    assert launchers[0].returncode != 0
    assert "stopped, and saved" in output
    assert not (out / "weights.hdf5").exists()
    end(torchrun(launch, long, out, "--recover", processes=2))
    assert_same(weights(out), whole)
