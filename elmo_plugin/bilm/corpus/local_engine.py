"""Workers of `embed_corpus` as processes of this machine."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

from elmo_plugin.bilm.corpus.embed import Event, ShardEmbedder, WorkerFiles
from elmo_plugin.bilm.kernels.machine import cpu_quota, keep_freed_memory

SECONDS_TO_DIE = 10


class LocalWorker:
    """
    Worker process on this machine, which the constructor starts.

    # Parameters

    files : `WorkerFiles`
        Paths that the worker needs.
    """

    def __init__(self, files: WorkerFiles) -> None:
        # Spawned, because a fork of a process that has run PyTorch may hang.
        context = multiprocessing.get_context("spawn")
        self.connection, worker_end = context.Pipe()
        self.process = context.Process(target=work, args=(worker_end, files), daemon=True)
        self.process.start()
        worker_end.close()

    def give(self, number: int) -> None:
        """Send the number of a shard to the process."""
        with contextlib.suppress(OSError):  # the process has died; `next_event` reports it
            self.connection.send(number)

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        self.process.kill()
        self.process.join(SECONDS_TO_DIE)
        self.connection.close()

    def next_event(self) -> Event:
        """Return the process's next message, or a `"failed"` event if the process has ended."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join(SECONDS_TO_DIE)
            status = self.process.exitcode or 0
            how = f"killed by signal {-status}" if status < 0 else f"ended with status {status}"
            return Event("failed", f"the process was {how}")


class LocalEngine:
    """
    Engine that starts worker processes on this machine.

    # Parameters

    files : `WorkerFiles`
        Paths that the workers need.
    """

    def __init__(self, files: WorkerFiles) -> None:
        self._files = files

    @property
    def num_processors(self) -> int:
        """Number of CPUs that this process may use, within the container's CPU quota."""
        has_affinity = hasattr(os, "sched_getaffinity")
        found = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
        return min(found, cpu_quota() or found)

    def start(self) -> LocalWorker:
        """Start a worker process."""
        return LocalWorker(self._files)

    def wait(self, workers: Sequence[Any], seconds: float) -> Iterator[tuple[LocalWorker, Event]]:
        """Wait at most `seconds` for messages, and yield each message with its worker."""
        by_connection: dict[Any, LocalWorker] = {one.connection: one for one in workers}
        for connection in multiprocessing.connection.wait(list(by_connection), seconds):
            worker = by_connection[connection]
            yield worker, worker.next_event()

    def close(self) -> None:
        """Do nothing: killed workers leave nothing behind."""


def work(connection: Any, files: WorkerFiles) -> None:
    """
    Run a worker: send events and receive shard numbers, until the supervisor closes the connection.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor handles Ctrl-C
    keep_freed_memory()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        connection.send(Event("placed", f"process {os.getpid()}"))
        embedder = ShardEmbedder(files)
        for event in embedder.load():
            connection.send(event)
        while True:
            for event in embedder.embed(connection.recv()):
                connection.send(event)
