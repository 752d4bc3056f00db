"""What the Ray engine says of Ray's errors, without Ray; with it, see `test_faults.py`."""

from types import SimpleNamespace

import pytest

from elmo_plugin.bilm.corpus import ray_engine
from elmo_plugin.bilm.corpus.embed import Event, WorkerFiles
from elmo_plugin.bilm.corpus.ray_engine import RayEngine


class RayError(Exception):
    pass


class FakeRay:
    """As much of Ray as the engine asks for; `told` is what each stream yields or raises."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self):
        self.alive, self.ready, self.closed = True, [], 0

    def is_initialized(self):
        return False

    def init(self, address, **more):
        self.address = address

    def get_runtime_context(self):
        return SimpleNamespace(get_node_id=lambda: "here")

    def remote(self, **options):
        return lambda cls: None

    def wait(self, streams, num_returns, timeout):
        return [one for one in streams if one in self.ready], []

    def get(self, told):
        if isinstance(told, Exception):
            raise told
        return told

    def nodes(self):
        return [{"NodeID": "there", "Alive": True}, {"NodeID": "here", "Alive": self.alive}]

    def shutdown(self):
        self.closed += 1


@pytest.fixture
def ray(monkeypatch):
    fake = FakeRay()
    monkeypatch.setattr(ray_engine, "ray_module", lambda: fake)
    return fake


def heard(ray, *told):
    """What one worker tells."""
    stream = iter(told)
    ray.ready = [stream] if told else []
    worker = SimpleNamespace(stream=stream)
    events = list(RayEngine(WorkerFiles("", "", None, None), "local").wait([worker], 0.0))
    return worker, [event for _, event in events]


@pytest.mark.parametrize("kind", ["ready", "done", "failed"])
def test_a_stream_ends_with_its_last_event(ray, kind):
    worker, events = heard(ray, Event(kind, "x"))
    assert (worker.stream, events) == (None, [Event(kind, "x")])


@pytest.mark.parametrize("kind", ["placed", "tokens"])
def test_and_not_before(ray, kind):
    worker, events = heard(ray, Event(kind, 1))
    assert worker.stream is not None
    assert events == [Event(kind, 1)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("The actor died.\n  why\n  and how", "RayError: The actor died."),
        ("It died in:\nTraceback\nKeyError: 'a'", "RayError: KeyError: 'a'"),
        ("", "RayError: "),
    ],
)
def test_a_worker_that_died_failed(ray, text, said):
    worker, events = heard(ray, RayError(text))
    assert (worker.stream, events) == (None, [Event("failed", said)])


def test_without_a_raylet_it_ends(ray):
    """Otherwise workers would wait for a place that there will never be."""
    assert heard(ray)[1] == []
    ray.alive = False
    with pytest.raises(OSError, match="Ray's daemon on this machine has ended"):
        heard(ray)


def test_a_cluster_that_is_lost_is_an_error_of_one_line(ray, monkeypatch):
    def lost(*_, **__):
        raise RayError("no GCS\nmore")

    monkeypatch.setattr(ray, "wait", lost)
    with pytest.raises(OSError, match=r"^the Ray cluster is lost: RayError: no GCS$"):
        heard(ray, Event("done"))


def test_only_a_cluster_of_this_run_is_ended(ray, monkeypatch):
    RayEngine(WorkerFiles("", "", None, None), "local").close()
    assert (ray.closed, ray.address) == (1, "local")
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    RayEngine(WorkerFiles("", "", None, None)).close()
    assert ray.closed == 1


def test_a_cluster_that_does_not_start_is_an_error_of_one_line(ray, monkeypatch):
    def busy(*_, **__):
        raise Exception("The node timed out.\nmore")

    monkeypatch.setattr(ray, "init", busy)
    with pytest.raises(OSError, match=r"^Ray did not start: Exception: The node timed out\.$"):
        heard(ray)
