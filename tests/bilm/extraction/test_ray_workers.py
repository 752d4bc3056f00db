"""What is said of Ray's errors, without Ray; with it, see `tests/bilm/corpus/test_faults.py`."""

from concurrent.futures import Future
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from elmo_plugin.bilm.extraction import ray_workers
from elmo_plugin.bilm.extraction.ray_workers import RayWorker, RayWorkers


class FakeRay:
    """As much of Ray as is asked for; an actor's method returns what it is called with."""

    def __init__(self):
        self.alive, self.closed, self.killed = True, 0, []

    def is_initialized(self):
        return False

    def init(self, address, **more):
        self.address = address

    def get_runtime_context(self):
        return SimpleNamespace(get_node_id=lambda: "here")

    def put(self, value):
        return value

    def remote(self, **options):
        self.options = options
        return lambda cls: SimpleNamespace(remote=self.actor)

    def actor(self, *arguments):
        self.arguments = arguments

        def call(*called):
            future = Future()
            future.set_result(called)
            return SimpleNamespace(future=lambda: future)

        return SimpleNamespace(compute=SimpleNamespace(remote=call))

    def kill(self, actor):
        self.killed.append(actor)

    def cluster_resources(self):
        return {"CPU": 12.0}

    def nodes(self):
        return [{"NodeID": "there", "Alive": True}, {"NodeID": "here", "Alive": self.alive}]

    def shutdown(self):
        self.closed += 1


@pytest.fixture
def ray(monkeypatch):
    fake = FakeRay()
    monkeypatch.setattr(ray_workers, "ray_module", lambda: fake)
    return fake


def test_worker_is_an_executor(ray):
    workers = RayWorkers(b"job", 3)
    worker = workers.start()
    assert worker.compute((1, None), "file").result() == ((1, None), "file")
    worker.kill()
    assert len(ray.killed) == 1
    assert ray.arguments == (b"job", 3)
    assert ray.options == {"num_cpus": 3, "max_restarts": 0, "max_task_retries": 0}
    assert workers.num_processors() == 12


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("The actor died.\n  why\n  and how", "OSError: The actor died."),
        ("It died in:\nTraceback\nKeyError: 'a'", "OSError: KeyError: 'a'"),
        ("", "OSError: "),
    ],
)
def test_error_is_one_line(text, said):
    assert RayWorker(None).describe(OSError(text)) == said


def test_without_a_raylet_it_ends(ray):
    """Otherwise workers would wait for a place that there will never be."""
    workers = RayWorkers(b"", 1)
    workers.check()
    ray.alive = False
    with pytest.raises(OSError, match="Ray's daemon on this machine has ended"):
        workers.check()


def test_only_a_cluster_of_this_run_is_ended(ray, monkeypatch):
    RayWorkers(b"", 1, "local").close()
    assert (ray.closed, ray.address) == (1, "local")
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    RayWorkers(b"", 1).close()
    assert ray.closed == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("init", r"^Ray did not start: Exception: no GCS$"),
        ("nodes", r"^the Ray cluster is lost: Exception: no GCS$"),
    ],
)
def test_an_error_of_the_cluster_is_one_line(ray, monkeypatch, name, message):
    monkeypatch.setattr(ray, name, Mock(side_effect=Exception("no GCS\nmore")))
    with pytest.raises(OSError, match=message):
        RayWorkers(b"", 1).check()
