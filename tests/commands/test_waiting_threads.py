"""Threads of PyTorch that wait sleep soon, unless the user says otherwise."""

import sys

import pytest

from elmo_plugin.bilm.kernels import library
from tests.fresh_process import python, run

UNSET = dict.fromkeys(("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"))
CODE = """
import os, sys
import elmo_plugin
print("torch" in sys.modules, os.environ.get("GOMP_SPINCOUNT"))
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "False 1000"),
        ({"GOMP_SPINCOUNT": "7"}, "False 7"),
        ({"OMP_WAIT_POLICY": "active"}, "False None"),
    ],
)
def test_they_spin_briefly_before_torch_is_loaded(given, expected):
    child = python("-c", CODE, **{**UNSET, **given})
    assert child.stdout.strip() == expected, child.stderr


def test_where_torch_is_loaded_the_variable_is_left_alone():
    child = run(CODE, **UNSET)
    assert child.stdout.strip() == "True None", child.stderr


# `allennlp` loads torch first. The plugin then starts a second team of OpenMP threads.
LATE = """
import os, torch
from elmo_plugin.bilm.kernels.machine import let_waiting_threads_sleep
def count():
    return len(os.listdir("/proc/self/task"))
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
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
    child = run(LATE, **{**UNSET, **given})
    started, ended = child.stdout.splitlines()
    # The team has its own thread and at least one other.
    assert (int(started) >= 2) == more, child.stderr
    assert ended == "0 True"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_the_plugin_does_so():
    code = "import os, threading, torch\ntorch.set_num_threads(max(2, os.cpu_count()))\n"
    child = run(code + "import elmo_plugin.plugin\nprint(threading.active_count())", **UNSET)
    assert int(child.stdout.splitlines()[-1]) > 1, child.stderr


TRAINING = """
import os, torch
torch.set_num_threads(2)
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:2])
from elmo_plugin.bilm.kernels import machine
from elmo_plugin.bilm.model.lstm import BiLstm
module = BiLstm(projection_dim=3, cell_size=6, num_layers=1)
for _ in range(2):
    module.stack("forward", torch.zeros(2, 3), [1, 1], module.initial_state(1))
print(machine.let_waiting_threads_sleep.cache_info().misses)
"""


@pytest.mark.skipif(library.variant() is None, reason="no library of kernels")
def test_they_spin_briefly_in_a_script_that_trains():
    assert run(TRAINING, **UNSET).stdout.split() == ["1"]
