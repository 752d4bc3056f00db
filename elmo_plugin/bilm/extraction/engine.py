"""
Compute shards with several workers, and replace workers that fail, die or hang.

A worker is an executor of one process, so that its death costs one shard. It writes a shard's
progress to a small file in the output folder, on this machine as in a cluster.
"""

import itertools
import multiprocessing
import multiprocessing.context
import os
import pickle
import signal
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from tqdm import tqdm

from elmo_plugin.bilm.files.stderr import stderr
from elmo_plugin.bilm.kernels.machine import cpu_quota, keep_freed_memory
from elmo_plugin.bilm.model.bilm import BiLm

# Attempts per shard. The run also ends after `MOST_TRIES * (number of workers + 4)` failures in a
# row, because then the shards are not the cause.
MOST_TRIES = 3
# Seconds between two looks at the workers.
TICK = 1.0
# Workers that start at the same time: this process holds a copy of the job for each of them.
MOST_STARTING = 8
# Seconds to wait for the end of processes that were killed; on a slow file system it comes late.
MOST_SECONDS_TO_END = 5.0
# Files with the progress of a shard; `files_of_earlier_run` takes this pattern.
PROGRESS_FILES = ".[0-9]*.progress"
MOST_TEXT = 1000
WORKER = "elmo_plugin worker"
UP_TO_ROUNDING = "vectors are the same up to rounding, files not to the byte"

# Number of a shard, and what its computation needs.
Shard = tuple[int, Any]
# Function that computes a shard and writes its file atomically. It calls `report` with the number
# of lines or tokens after each batch. It may return a description of its machine.
Compute = Callable[[BiLm, Shard, Callable[[int], Any]], Any]


class Worker(Protocol):
    """
    Handle of a process that computes shards after `start_worker`. It is replaced if it reports no
    progress in the first `start_seconds`.
    """

    start_seconds: float

    def compute(self, shard: Shard, progress_file: str) -> Future:
        """Call `compute_shard` in the process."""

    def kill(self) -> None:
        """End the process at once."""

    def describe(self, error: BaseException) -> str:
        """Describe an error of a future for a message."""


class Workers(Protocol):
    """Starts workers: processes of this machine, or actors of a cluster."""

    def num_processors(self) -> int:
        """Return the number of CPUs available to workers."""

    def start(self) -> Worker:
        """Start a worker."""

    def check(self) -> None:
        """Raise an `OSError` if no worker can be reached any more."""


def refuse_in_worker() -> None:
    """Raise a `RuntimeError` in a worker's process, which imports the script that started it."""
    if multiprocessing.current_process().name == WORKER:
        raise RuntimeError(
            "a worker process called the function that started it; put the call in the script "
            'under if __name__ == "__main__":'
        )


def pickled(bilm: BiLm, compute: Compute) -> bytes:
    """Pickle the `job` of `start_worker`, or raise a `ValueError` if the biLM has no pickle."""
    try:
        return pickle.dumps((bilm, compute))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"the biLM cannot be sent to worker processes ({error}); expected one that can be "
            "pickled, or one process"
        ) from error


_job: list[Any] = []


def start_worker(job: bytes, threads: int) -> None:
    """Prepare a worker's process for the `job` from `pickled`."""
    keep_freed_memory()
    torch.set_num_threads(threads)
    _job[:] = pickle.loads(job)


def _obey_parent() -> None:
    """Leave Ctrl-C to the parent, and end when it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def end_with_parent() -> None:
    """Start a thread that ends this process when the one that started it has ended."""

    def wait_and_end() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
            os._exit(1)

    threading.Thread(target=wait_and_end, daemon=True).start()


def compute_shard(shard: Shard, progress_file: str, *start: Any) -> Any:
    """Compute a shard in a worker's process, after `start_worker` with the arguments `start`."""
    if start:
        start_worker(*start)
    count, calls, path = 0, itertools.count(), Path(progress_file)
    name = f"process {os.getpid()} on {socket.gethostname()}"

    def report(more: int) -> None:
        nonlocal count
        count += more
        path.write_text(f"{count} {name}\n{next(calls)}")  # without a count, it is progress too

    report(0)
    bilm, compute = _job
    return compute(bilm, shard, report)


class _Spawn(multiprocessing.context.SpawnContext):
    """Context that names the process which it starts, and keeps it."""

    process: Any = None

    def Process(self, *arguments: Any, **more: Any) -> Any:  # type: ignore[override]
        self.process = super().Process(*arguments, **{**more, "name": WORKER})
        return self.process


class LocalWorker:
    """Worker on this machine: a spawned process, since a fork after PyTorch has run may hang."""

    start_seconds = 300.0  # a busy machine takes long to import PyTorch

    def __init__(self, job: bytes, threads: int) -> None:
        self._context = _Spawn()
        self._executor = ProcessPoolExecutor(1, self._context, _obey_parent)
        self._start: tuple[Any, ...] = (job, threads)

    def compute(self, shard: Shard, progress_file: str) -> Future:
        """Call `compute_shard` in the process; the first call starts it."""
        # The job is sent with the call, not at the start of the process: the start would wait until
        # it has been read, which a process that is stopped never does.
        start, self._start = self._start, ()
        return self._executor.submit(compute_shard, shard, progress_file, *start)

    def kill(self) -> None:
        """End the process at once. Do not wait: a second Ctrl-C would interrupt the wait."""
        process = self._context.process
        if process is not None and process.pid is not None:  # `None` if Ctrl-C came at its start
            process.kill()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def describe(self, error: BaseException) -> str:
        """Return an error's type and message, or how the process ended."""
        if not isinstance(error, BrokenExecutor) or self._context.process is None:
            return f"{type(error).__name__}: {error}"[:MOST_TEXT]
        # The executor's thread waits for the process, and knows how it ended.
        self._executor.shutdown()
        status = self._context.process.exitcode or 0
        how = f"killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"the process was {how}"


@dataclass
class LocalWorkers:
    """Starts workers as processes of this machine; see `start_worker`."""

    job: bytes
    threads: int

    def num_processors(self) -> int:
        """Return the number of CPUs that this process may use, within the container's quota."""
        has_affinity = hasattr(os, "sched_getaffinity")
        found = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
        return min(found, cpu_quota() or found)

    def start(self) -> LocalWorker:
        """Start a worker; its process starts with its first shard."""
        return LocalWorker(self.job, self.threads)

    def check(self) -> None:
        """Do nothing: processes that end are noticed without it."""


class _Slot:
    """
    A worker and its current shard. `silent` is the time in seconds since the last progress, and
    `started` says that there was any.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker, self.started, self.name = worker, False, "a worker"
        self.future: Future = Future()
        self.future.cancel()  # done, if Ctrl-C comes while the worker starts

    def begin(self, shard: Shard, folder: Path) -> None:
        self.shard, self.count, self._text, self.silent = shard, 0, "", 0.0
        self.file = folder / f".{shard[0]:06d}.progress"
        self.file.unlink(missing_ok=True)
        try:
            self.future = self.worker.compute(shard, str(self.file))
        except BrokenExecutor as error:  # the process has died since its last shard
            self.future = Future()
            self.future.set_exception(error)

    def progress(self, elapsed: float) -> int:
        """Return the count since the last call."""
        self.silent += elapsed
        try:
            text = self.file.read_text()
        except OSError:
            return 0
        self.started = True
        count, _, name = text.partition("\n")[0].partition(" ")
        if text == self._text or not name:  # an empty text is about to be written, or never
            return 0
        self.silent, self._text, self.name = 0.0, text, name
        before, self.count = self.count, int(count)
        return self.count - before

    def most_silent(self, timeout: float) -> float:
        return timeout if self.started else max(timeout, self.worker.start_seconds)

    def kill(self) -> None:
        self.worker.kill()
        self.file.unlink(missing_ok=True)


def run_shards(
    shards: Iterable[Shard],
    workers: Workers,
    size: int,
    folder: Path,
    progress: tqdm,
    timeout: float = 600.0,
    done: Callable[[int], Any] = lambda number: None,
    machine: dict[str, str] | None = None,
    describe: Callable[[Shard], str] = lambda shard: f"shard {shard[0]}",
) -> None:
    """
    Compute shards with `size` workers at most, which all can write to the output `folder`.

    A shard that fails is tried again by another worker; all others are computed before the error is
    raised. `shards` are read when a worker is free, and `done` gets the number of each that is
    done. A worker without progress for `timeout` seconds is replaced. `progress` counts what shards
    report, without those that failed. A worker's `machine`, as `Compute` returns it, is noted on
    stderr if it differs. `describe` describes a shard in the error.

    Raise an `OSError` if shards failed `MOST_TRIES` times, or many failures in a row show that the
    shards are not at fault.
    """
    source, again = iter(shards), deque[Shard]()
    tries: Counter[int] = Counter()
    failed: list[tuple[Shard, str]] = []
    busy: list[_Slot] = []
    idle: list[_Slot] = []
    row = 0

    def replace(slot: _Slot, reason: str) -> None:
        nonlocal row
        slot.kill()
        busy.remove(slot)
        progress.update(-slot.count)
        number = slot.shard[0]
        row, tries[number] = row + 1, tries[number] + 1
        note(
            progress, f"shard {number}, try {tries[number]} of {MOST_TRIES}, {slot.name}: {reason}"
        )
        if tries[number] < MOST_TRIES:
            again.append(slot.shard)
        else:
            failed.append((slot.shard, reason))
        if row >= MOST_TRIES * (size + 4):
            raise OSError(f"{row} failures in a row, the last one: {reason}")

    try:
        last = time.monotonic()
        while True:
            while len(busy) < size and (
                idle or sum(not slot.started for slot in busy) < MOST_STARTING
            ):
                shard = again.popleft() if again else next(source, None)
                if shard is None:
                    break
                busy.append(idle.pop() if idle else _Slot(workers.start()))
                busy[-1].begin(shard, folder)
            while idle:  # nothing is left for them, and another may wait for their CPU
                idle.pop().kill()
            if not busy:
                break
            ready, _ = wait([slot.future for slot in busy], TICK, FIRST_COMPLETED)
            if not ready:
                workers.check()
            now = time.monotonic()
            # If this process was suspended, count only two ticks: the workers are not at fault.
            elapsed, last = min(now - last, 2 * TICK), now
            for slot in list(busy):
                progress.update(slot.progress(elapsed))
                if not slot.future.done():
                    if slot.silent > (limit := slot.most_silent(timeout)):
                        replace(slot, f"no progress for {limit:g} s")
                elif (error := slot.future.exception()) is not None:
                    replace(slot, slot.worker.describe(error))
                else:
                    busy.remove(slot)
                    idle.append(slot)
                    slot.file.unlink(missing_ok=True)
                    row = 0
                    if machine is not None and (found := slot.future.result()) != machine:
                        note(progress, f"begun on {machine}, a worker on {found}: {UP_TO_ROUNDING}")
                        machine = None
                    done(slot.shard[0])
    finally:
        for slot in (*busy, *idle):
            slot.worker.kill()
        # A killed process ends its system call first: it may still make a file in the folder.
        wait([slot.future for slot in busy if not slot.future.done()], MOST_SECONDS_TO_END)
        for slot in busy:
            slot.file.unlink(missing_ok=True)
    if failed:
        numbers = ", ".join(map(str, sorted(number for (number, _), _ in failed)))
        shard, reason = failed[0]
        raise OSError(
            f"{len(failed)} shards failed {MOST_TRIES} times: {numbers}; {describe(shard)}: "
            f"{reason}"
        )


def note(progress: tqdm, text: str) -> None:
    """Print a message to stderr, above the progress bar."""
    progress.write(text, file=stderr())


def parse_share(text: str | None, force: bool) -> tuple[int, int]:
    """
    Parse `i/n`: the run computes each nth shard, from the ith on. Return `i - 1`, the number of the
    first shard, and `n`; for `None`, which means all shards, 0 and 1.

    Raise a `ValueError` unless `1 <= i <= n`, and with `force`, which removes other runs' files.
    """
    if text is None:
        return 0, 1
    if force:
        raise ValueError("shard was given with force, which removes the other shards' files")
    left, _, right = text.partition("/")
    if left.isdecimal() and right.isdecimal() and 1 <= int(left) <= int(right):
        return int(left) - 1, int(right)
    raise ValueError(f"shard is {text!r}, expected i/n, from 1/n to n/n")
