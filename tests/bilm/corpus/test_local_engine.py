"""Worker processes of this machine: how many there are by default."""

import os

import pytest

from elmo_plugin.bilm.corpus import local_engine
from elmo_plugin.bilm.corpus.embed import WorkerFiles


@pytest.mark.parametrize(("quota", "expected"), [(None, 64), (2, 2), (99, 64)])
def test_workers_keep_to_the_cpu_quota(quota, expected, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(64), raising=False)
    monkeypatch.setattr(local_engine, "cpu_quota", lambda: quota)
    engine = local_engine.LocalEngine(WorkerFiles("out", ".", None, None))
    assert engine.num_processors == expected
