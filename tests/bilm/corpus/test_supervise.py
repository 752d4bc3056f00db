"""Workers that fail, die and stand still, told by a script."""

import io
from types import SimpleNamespace

import pytest
from tqdm import tqdm

from elmo_plugin.bilm.corpus import supervise
from elmo_plugin.bilm.corpus.embed import Event
from elmo_plugin.bilm.corpus.supervise import Supervisor


class Scripted:
    """`script(worker's number, shard)`: what it tells of a shard, one event at a time."""

    num_processors = 1
    now = 0.0  # of the clock, which only a call of `wait` moves: a busy machine's pauses do not

    def __init__(self, script, start=lambda number: [Event("placed", "it"), Event("ready", {})]):
        self.script, self.at_start = script, start
        self.workers, self.killed = [], []

    def start(self):
        worker = Told(self, len(self.workers))
        self.workers.append(worker)
        return worker

    def wait(self, workers, seconds):
        Scripted.now += 0.01
        return [(worker, worker.events.pop(0)) for worker in workers if worker.events]


class Told:
    def __init__(self, engine, number):
        self.engine, self.number = engine, number
        self.events = list(engine.at_start(number))

    def give(self, shard):
        self.events += self.engine.script(self.number, shard)

    def kill(self):
        self.engine.killed.append(self.number)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(supervise, "time", SimpleNamespace(monotonic=lambda: Scripted.now))


GOOD = [Event("tokens", 3), Event("tokens", 4), Event("done")]
BAD = [Event("tokens", 3), Event("failed", "why")]


def supervise_with(engine, shards, size=2, timeout=60.0):
    """What failed; what was done, in order; notes; tokens."""
    done, notes = [], []
    bar = tqdm(file=io.StringIO())
    failed = Supervisor(engine, size, timeout, notes.append, bar).run(shards, done.append)
    assert sorted(engine.killed) == list(range(len(engine.workers)))
    return failed, done, notes, bar.n


def test_every_shard_is_given_once():
    engine = Scripted(lambda worker, shard: GOOD)
    assert supervise_with(engine, range(5)) == ({}, [0, 1, 2, 3, 4], [], 35)
    assert len(engine.workers) == 2


def test_no_more_workers_than_shards():
    engine = Scripted(lambda worker, shard: GOOD)
    assert supervise_with(engine, [7], size=9)[1] == [7]
    assert len(engine.workers) == 1


def test_a_worker_that_fails_is_replaced_and_its_shard_tried_again():
    engine = Scripted(lambda worker, shard: BAD if worker == 0 else GOOD)
    failed, done, notes, tokens = supervise_with(engine, range(4))
    assert failed == {}
    assert sorted(done) == [0, 1, 2, 3]
    assert notes == ["shard 0, try 1 of 3, it: why"]
    assert tokens == 28  # those of the failed try are taken back


def test_a_shard_that_fails_three_times_is_named_and_the_rest_goes_on():
    engine = Scripted(lambda worker, shard: BAD if shard == 1 else GOOD)
    failed, done, notes, tokens = supervise_with(engine, range(6), size=1)
    assert failed == {1: "why"}
    assert done == [0, 2, 3, 4, 5]
    assert notes[-1] == "shard 1, try 3 of 3, it: why"
    assert len(engine.workers) == 3
    assert tokens == 35


def test_an_idle_worker_takes_over_the_last_shard():
    """The others have nothing left when it fails."""
    engine = Scripted(lambda worker, shard: BAD if (worker, shard) == (0, 0) else GOOD)
    failed, done, *_ = supervise_with(engine, [0, 1], size=2)
    assert (failed, sorted(done)) == ({}, [0, 1])


def test_a_worker_that_stands_still_is_replaced():
    engine = Scripted(lambda worker, shard: GOOD[:1] if worker == 0 else GOOD)
    failed, done, notes, tokens = supervise_with(engine, range(3), size=1, timeout=0.2)
    assert (failed, sorted(done), tokens) == ({}, [0, 1, 2], 21)
    assert notes == ["shard 0, try 1 of 3, it: no message for 0.2 s"]
    assert engine.killed == [0, 1]


def test_one_that_stands_still_while_it_loads_is_replaced_too():
    ready = [Event("placed", "it"), Event("ready", {})]
    engine = Scripted(lambda *_: GOOD, lambda number: ready[:1] if number == 0 else ready)
    failed, done, notes, _ = supervise_with(engine, range(2), size=1, timeout=0.2)
    assert (failed, done) == ({}, [0, 1])
    assert notes == ["it: no message for 0.2 s"]


def test_one_that_waits_for_a_place_is_waited_for():
    """A cluster that is busy; the second worker has a place at once."""
    events = [Event("placed", "it"), Event("ready", {})]
    engine = Scripted(lambda *_: GOOD, lambda number: events if number else [])
    failed, done, notes, _ = supervise_with(engine, range(3), size=2, timeout=0.05)
    assert (failed, done, notes) == ({}, [0, 1, 2], [])


def test_time_in_which_nobody_listened_is_not_the_workers():
    """This process was stopped for an hour; what the worker told meanwhile comes after."""
    engine = Scripted(lambda worker, shard: GOOD)
    wait = engine.wait

    def stopped(workers, seconds):
        Scripted.now += 3600.0
        return wait(workers, seconds)

    engine.wait = stopped
    assert supervise_with(engine, range(3), size=1, timeout=10.0)[1:3] == ([0, 1, 2], [])


def test_where_nothing_succeeds_it_ends():
    engine = Scripted(lambda *_: GOOD, lambda number: [Event("failed", "no such biLM")])
    with pytest.raises(OSError, match=r"^15 failures in a row, the last one: no such biLM$"):
        supervise_with(engine, range(3), size=1)
    assert len(engine.killed) == 15


def test_machines_are_told():
    machines = [{"kernel": "a"}, {"kernel": "b"}, {"kernel": "a"}]
    engine = Scripted(lambda *_: GOOD, lambda n: [Event("placed", ""), Event("ready", machines[n])])
    supervisor = Supervisor(engine, 3, 9.0, print, tqdm(disable=True))
    supervisor.run(range(9), lambda number: None)
    assert supervisor.machines == machines[:2]
