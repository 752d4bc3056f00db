"""Threads of PyTorch that wait sleep soon, unless the user says otherwise."""

import os
import subprocess
import sys

import pytest

CODE = """
import os, sys
if len(sys.argv) > 1:
    import torch
import elmo_plugin
print("torch" in sys.modules, os.environ.get("GOMP_SPINCOUNT"))
"""


@pytest.mark.parametrize(
    ("arguments", "given", "expected"),
    [
        ([], {}, "False 1000"),
        ([], {"GOMP_SPINCOUNT": "7"}, "False 7"),
        ([], {"OMP_WAIT_POLICY": "active"}, "False None"),
        (["torch first"], {}, "True None"),
    ],
)
def test_they_spin_briefly_before_torch_is_loaded(arguments, given, expected):
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    child = subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        capture_output=True,
        text=True,
        env={**environment, **given},
    )
    assert child.stdout.strip() == expected, child.stderr


# `allennlp` loads torch first. The plugin then starts a second team of OpenMP threads.
LATE = """
import os, torch
from elmo_plugin.bilm.kernels.machine import let_waiting_threads_sleep
def count():
    return len(os.listdir("/proc/self/task"))
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:2])
before = count()
let_waiting_threads_sleep()
print(count() - before, flush=True)
def works():
    return torch.ones(2**20).exp().sum().item() > 2**20
if os.fork() == 0:  # as data loaders do
    os._exit(0 if works() else 1)
print(os.wait()[1], works())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
@pytest.mark.parametrize(
    ("given", "more"),
    [
        ({"OMP_NUM_THREADS": "2"}, True),
        ({"OMP_NUM_THREADS": "1"}, False),
        ({"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": "7"}, False),
        ({"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "active"}, False),
    ],
)
def test_they_spin_briefly_after_torch_is_loaded(given, more):
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LATE],
        capture_output=True,
        text=True,
        env={**environment, **given},
        timeout=300,
    )
    started, ended = child.stdout.splitlines()
    # The team has its own thread and at least one other.
    assert (int(started) >= 2) == more, child.stderr
    assert ended == "0 True"
    assert child.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_the_plugin_does_so():
    code = "import torch, threading, elmo_plugin.plugin; print(threading.active_count())"
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    child = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**environment, "OMP_NUM_THREADS": str(max(2, os.cpu_count()))},
    )
    assert int(child.stdout.splitlines()[-1]) > 1, child.stderr
