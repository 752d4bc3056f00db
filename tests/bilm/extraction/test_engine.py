"""Workers that fail, die and hang: told by a script, and real processes."""

import functools
import io
import math
import multiprocessing.resource_tracker
import multiprocessing.util
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path

import pytest
from tqdm import tqdm

from elmo_plugin.bilm.extraction import engine
from elmo_plugin.bilm.extraction.chunks import layers_in_chunks
from elmo_plugin.bilm.extraction.engine import LocalWorkers, run_shards
from tests.fresh_process import python_environment
from tests.other_processes import LIMIT, is_alive, wait_until
from tests.tiny_bilm import random_bilm


class Scripted:
    """
    Workers. `script(number of worker, number of shard)` is the result, an exception, or `None` for
    a worker that hangs, with the progress that it writes before.
    """

    def __init__(self, script, machines=None):
        self.script, self.machines = script, machines
        self.started, self.killed, self.given, self.checks = 0, [], [], 0

    def start(self):
        self.started += 1
        return Told(self, self.started - 1)

    def check(self):
        self.checks += 1
        assert self.checks < 1000, "it waits for ever"


class Told:
    start_seconds = 0.0

    def __init__(self, workers, number):
        self.workers, self.number, self.future = workers, number, Future()

    def compute(self, shard, progress_file):
        self.workers.given.append(shard[0])
        progress, outcome = self.workers.script(self.number, shard[0])
        if isinstance(outcome, BrokenExecutor):
            raise outcome
        if progress == "stops in the write":
            Path(progress_file).touch()
        elif progress:
            Path(progress_file).write_text(f"{progress} worker {self.number}")
        self.future = Future()
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        elif outcome is not None:
            self.future.set_result(outcome)
        return self.future

    def kill(self):
        self.workers.killed.append(self.number)
        if not self.future.done():
            self.future.set_exception(BrokenExecutor("killed"))

    def describe(self, error):
        return f"{type(error).__name__}: {error}"


GOOD, BAD, HANGS = (7, {}), (3, OSError("why")), (3, None)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """What was done, in order; notes; tokens."""
    monkeypatch.setattr(engine, "TICK", 0.01)

    def run(workers, count, size=2, **more):
        done, bar = [], tqdm(file=io.StringIO())
        try:
            shards = ((number, None) for number in range(count))
            run_shards(shards, workers, size, tmp_path, bar, done=done.append, **more)
        finally:
            assert sorted(workers.killed) == list(range(workers.started))
            assert list(tmp_path.iterdir()) == []
        return done, capsys.readouterr().err.splitlines(), bar.n

    return run


def test_every_shard_is_computed_once(run):
    workers = Scripted(lambda worker, shard: GOOD)
    assert run(workers, 5) == ([0, 1, 2, 3, 4], [], 35)
    assert workers.started == 2


def test_few_workers_start_at_the_same_time(run, monkeypatch):
    monkeypatch.setattr(engine, "MOST_STARTING", 3)
    monkeypatch.setattr(Told, "start_seconds", 0.1)

    def script(worker, shard):
        assert worker - len(workers.killed) < 3 or worker > 5
        return (0, None) if worker < 5 else GOOD

    workers = Scripted(script)
    done, notes, _ = run(workers, 9, size=6, timeout=0.1)
    assert sorted(done) == list(range(9))
    assert len(notes) == 5


def test_no_more_workers_than_shards(run):
    workers = Scripted(lambda worker, shard: GOOD)
    assert run(workers, 1, size=9)[0] == [0]
    assert workers.started == 1


def test_shards_are_read_when_a_worker_is_free(tmp_path):
    read = []
    shards = ((read.append(number), (number, None))[1] for number in range(9))

    def script(worker, shard):
        assert len(read) <= shard + 2
        return GOOD

    run_shards(shards, Scripted(script), 2, tmp_path, tqdm(disable=True))
    assert read == list(range(9))


@pytest.mark.parametrize("outcome", [OSError("why"), BrokenExecutor("why")])
def test_worker_that_fails_is_replaced_and_its_shard_tried_again(run, outcome):
    progress = 3 if isinstance(outcome, OSError) else 0
    workers = Scripted(lambda worker, shard: GOOD if worker else (progress, outcome))
    done, notes, tokens = run(workers, 4)
    assert sorted(done) == [0, 1, 2, 3]
    name = "worker 0" if progress else "a worker"
    assert notes == [f"shard 0, try 1 of 3, {name}: {type(outcome).__name__}: why"]
    assert tokens == 28  # those of the failed try are taken back


def test_shard_that_fails_three_times_is_named_and_the_rest_is_computed(run):
    workers = Scripted(lambda worker, shard: BAD if shard in (1, 4) else GOOD)
    done = []
    with pytest.raises(OSError, match=r"^2 shards failed 3 times: 1, 4; the 1st: OSError: why$"):
        run(workers, 6, size=1, describe=lambda one: f"the {one[0]}st")
    assert sorted(workers.given) == [0, 1, 1, 1, 2, 3, 4, 4, 4, 5], done


@pytest.mark.parametrize(
    ("shard", "progress", "start_seconds", "seconds"),
    [
        (0, 3, math.inf, 0.2),
        (0, "stops in the write", math.inf, 0.2),
        (0, 0, 0.1, 0.2),
        (0, 0, 0.3, 0.3),
        (1, 0, math.inf, 0.2),
    ],
    ids=["in a shard", "in its write", "before it", "while it starts", "between two"],
)
def test_worker_without_progress_is_replaced(
    run, monkeypatch, shard, progress, start_seconds, seconds
):
    monkeypatch.setattr(Told, "start_seconds", start_seconds)
    workers = Scripted(lambda worker, n: GOOD if worker or n != shard else (progress, None))
    done, notes, tokens = run(workers, 3, size=1, timeout=0.2)
    assert (sorted(done), tokens) == ([0, 1, 2], 21)
    name = "worker 0" if shard or progress == 3 else "a worker"
    assert notes == [f"shard {shard}, try 1 of 3, {name}: no progress for {seconds} s"]
    assert workers.checks > 3


def test_worker_that_waits_for_a_cpu_is_waited_for(run, monkeypatch):
    """A cluster that is busy: the first one has its CPU when the second one has ended."""
    monkeypatch.setattr(Told, "start_seconds", math.inf)
    workers = Scripted(lambda worker, shard: GOOD if worker else (0, None))
    compute, futures = Told.compute, []
    monkeypatch.setattr(Told, "compute", lambda *a: futures.append(compute(*a)) or futures[-1])

    def check():
        workers.checks += 1
        assert workers.checks < 500
        if workers.killed == [1] and workers.checks > 20:
            futures[0].set_result({})

    workers.check = check
    done, notes, _ = run(workers, 3, timeout=0.05)
    assert (done, notes) == ([1, 2, 0], [])


def test_where_nothing_succeeds_it_ends(run):
    workers = Scripted(lambda worker, shard: BAD)
    with pytest.raises(OSError, match=r"^15 failures in a row, the last one: OSError: why$"):
        run(workers, 99, size=1)
    assert workers.started == 15


def test_other_machines_are_noted_once(run):
    workers = Scripted(lambda worker, shard: (1, {"kernels": "ab"[shard % 2]}))
    _, notes, _ = run(workers, 6, machine={"kernels": "a"})
    assert len(notes) == 1
    assert notes[0].startswith("begun on {'kernels': 'a'}, a worker on {'kernels': 'b'}: vectors")


def test_lost_cluster_ends_the_run(run):
    workers = Scripted(lambda worker, shard: HANGS)

    def lost():
        raise OSError("the cluster is lost")

    workers.check = lost
    with pytest.raises(OSError, match="the cluster is lost"):
        run(workers, 3)


@pytest.mark.parametrize(("quota", "expected"), [(None, 64), (2, 2), (99, 64)])
def test_workers_keep_to_the_cpu_quota(quota, expected, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(64), raising=False)
    monkeypatch.setattr(engine, "cpu_quota", lambda: quota)
    assert LocalWorkers(b"", 1).num_processors() == expected


def test_ctrl_c_while_a_worker_starts_ends_the_run(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    multiprocessing.resource_tracker.ensure_running()
    monkeypatch.setattr("multiprocessing.util.spawnv_passfds", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_shards([(0, None)], LocalWorkers(b"", 1), 1, tmp_path, tqdm(disable=True))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGSTOP")
def test_worker_that_stops_while_it_starts_is_waited_for_by_nobody(monkeypatch):
    """It never reads a job that is longer than a pipe's memory."""
    spawn = multiprocessing.util.spawnv_passfds

    def stopped(*arguments):
        process = spawn(*arguments)
        os.kill(process, signal.SIGSTOP)
        return process

    multiprocessing.resource_tracker.ensure_running()
    monkeypatch.setattr("multiprocessing.util.spawnv_passfds", stopped)
    worker = LocalWorkers(bytes(1 << 20), 1).start()
    future = worker.compute((0, None), "")
    worker.kill()
    with pytest.raises(BrokenExecutor):
        future.result(LIMIT)


def test_report_of_nothing_is_progress_too(tmp_path, monkeypatch):
    """As of the first pass over a very long line."""

    def compute(bilm, shard, report):
        texts.append(len(next(layers_in_chunks(random_bilm(), ["a"] * 20, 5, report=report))))

    texts = []
    monkeypatch.setattr(engine, "_job", [None, compute])
    monkeypatch.setattr(Path, "write_text", lambda path, text: texts.append(text))
    engine.compute_shard((0, None), str(tmp_path / "progress"))
    assert len(set(texts[:-1])) == 1 + 5  # at its start, and for each chunk
    assert texts[-1] == 3


def test_killed_worker_that_ends_late_leaves_no_file(tmp_path, monkeypatch):
    """It was in a system call, which it ends: it makes a file after it was killed."""
    file, killed = tmp_path / ".000000.progress", []

    def kill(worker):
        def end():
            file.touch()
            worker.future.set_exception(BrokenExecutor("killed"))

        killed.append(threading.Timer(0.2, end))
        killed[-1].start()

    def shards():
        yield 0, None
        raise ValueError("the input is bad")

    monkeypatch.setattr(Told, "kill", kill)
    with pytest.raises(ValueError, match="the input is bad"):
        run_shards(shards(), Scripted(lambda *_: HANGS), 2, tmp_path, tqdm(disable=True))
    left = list(tmp_path.iterdir())
    killed[0].join()
    assert left == list(tmp_path.iterdir()) == []


def test_second_ctrl_c_leaves_no_worker(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    def shards():
        yield from enumerate(["hang", "hang"])
        raise KeyboardInterrupt

    workers = LocalWorkers(pickle.dumps((None, functools.partial(misbehave, folder=tmp_path))), 1)
    with monkeypatch.context() as patch:
        patch.setattr("concurrent.futures.process._ExecutorManagerThread.join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_shards(shards(), workers, 3, tmp_path, tqdm(disable=True))
    wait_until(lambda: engine.WORKER not in [one.name for one in multiprocessing.active_children()])


# --- real processes ----------------------------------------------------------------------------


def misbehave(bilm, shard, report, folder):
    """The shard says what happens the first time; every time for `always`."""
    number, what = shard
    report(1)
    first = not (folder / f"tried{number}").exists()
    (folder / f"tried{number}").touch()
    if what == "die" and first:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "hang" and first:
        time.sleep(1000)
    if what == "stop" and first:
        os.kill(os.getpid(), signal.SIGSTOP)
    if what == "fail" and first:
        raise ValueError("a bad line")
    if what == "exit" and first:
        os._exit(3)
    (folder / f"done{number}").touch()
    return {}


@pytest.mark.slow
def test_real_workers_that_die_hang_stop_and_fail_are_replaced(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    job = pickle.dumps((None, functools.partial(misbehave, folder=tmp_path / "out")))
    kinds = ["die", "hang", "well", "stop", "fail", "exit", "well"]
    bar = tqdm(file=io.StringIO())
    workers = LocalWorkers(job, 1)
    run_shards(enumerate(kinds), workers, 3, tmp_path, bar, timeout=2.0, machine={})
    assert bar.n == len(kinds)
    assert len(list((tmp_path / "out").glob("done*"))) == len(kinds)
    notes = capsys.readouterr().err
    for said in (
        "shard 0, try 1 of 3, process ",
        ": the process was killed by signal 9\n",
        ": no progress for 2 s\n",
        ": ValueError: a bad line\n",
        ": the process was ended with status 3\n",
    ):
        assert said in notes
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


ENDS = """
import os, pickle, time
from elmo_plugin.bilm.extraction.engine import LocalWorkers

def compute(bilm, shard, report):
    return os.getpid()

if __name__ == "__main__":
    worker = LocalWorkers(pickle.dumps((None, compute)), 1).start()
    print(worker.compute((0, None), "progress").result(), flush=True)
    time.sleep(1000)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the process is found in /proc")
def test_worker_ends_with_its_parent(tmp_path):
    (tmp_path / "script.py").write_text(ENDS)
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "script.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env=python_environment(),
    )
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    wait_until(lambda: not is_alive(worker))
