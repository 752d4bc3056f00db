"""How many threads run where the container has a CPU quota."""

import os
import subprocess
import sys

import pytest

from elmo_plugin.bilm.kernels import machine


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("max 100000\n", None),
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("50000 100000\n", 1),
        ("", None),
        ("many 3\n", None),
    ],
)
def test_the_quota_of_cgroups_2(tmp_path, content, expected):
    (tmp_path / "cpu.max").write_text(content)
    assert machine.cpu_quota(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [(-1, None), (250000, 3)])
def test_the_quota_of_cgroups_1(tmp_path, quota, expected):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert machine.cpu_quota(tmp_path) == expected


def test_no_control_groups(tmp_path):
    assert machine.cpu_quota(tmp_path) is None


def test_kernels_have_no_more_threads_than_the_quota(monkeypatch):
    monkeypatch.setattr(machine, "cpu_quota", lambda: 2)
    for name in machine.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert [machine.within_quota(count) for count in (1, 2, 8)] == [1, 2, 2]
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert machine.within_quota(8) == 8


PROGRAM = """
import os
from elmo_plugin.bilm.kernels import machine
machine.cpu_quota = lambda: 1
os.cpu_count = lambda: 4
machine.keep_to_cpu_quota()
import torch
print(torch.get_num_threads())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("variables", "expected"), [({}, "1"), ({"OMP_NUM_THREADS": "2"}, "2")])
def test_programs_keep_to_the_quota_unless_the_user_chose_otherwise(variables, expected):
    chosen = machine.THREAD_VARIABLES
    kept = {name: value for name, value in os.environ.items() if name not in chosen}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env={**kept, **variables}
    )
    assert done.stdout.strip() == expected, done.stderr
