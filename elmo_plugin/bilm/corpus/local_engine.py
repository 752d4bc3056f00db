"""Workers on this machine, each a process of its own."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

from elmo_plugin.bilm.corpus.embed import Event, Place, ShardEmbedder
from elmo_plugin.bilm.kernels.allocator import keep_freed_memory

SECONDS_TO_DIE = 10


class LocalWorker:
    """
    # Parameters

    place : `Place`
        What it is to work on.
    """

    def __init__(self, place: Place) -> None:
        # Spawned: a fork of a process that has run PyTorch may hang.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, place), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, number: int) -> None:
        """See `Worker`."""
        with contextlib.suppress(OSError):  # it has died, of which `wait` tells
            self.connection.send(number)

    def kill(self) -> None:
        """See `Worker`."""
        self.process.kill()
        self.process.join(SECONDS_TO_DIE)
        self.connection.close()

    def heard(self) -> Event:
        """The next that it tells; its end, where it has come."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join(SECONDS_TO_DIE)
            status = self.process.exitcode or 0
            how = f"killed by signal {-status}" if status < 0 else f"ended with status {status}"
            return Event("failed", f"the process was {how}")


class LocalEngine:
    """
    # Parameters

    place : `Place`
        What its workers are to work on.
    """

    def __init__(self, place: Place) -> None:
        self._place = place

    @property
    def num_processors(self) -> int:
        """See `Engine`."""
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )

    def start(self) -> LocalWorker:
        """See `Engine`."""
        return LocalWorker(self._place)

    def wait(self, workers: Sequence[Any], seconds: float) -> Iterator[tuple[LocalWorker, Event]]:
        """See `Engine`."""
        by_connection: dict[Any, LocalWorker] = {one.connection: one for one in workers}
        for connection in multiprocessing.connection.wait(list(by_connection), seconds):
            worker = by_connection[connection]
            yield worker, worker.heard()

    def close(self) -> None:
        """See `Engine`."""


def work(connection: Any, place: Place) -> None:
    """A worker's life: it ends with the process at the other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other end
    keep_freed_memory()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        connection.send(Event("placed", f"process {os.getpid()}"))
        embedder = ShardEmbedder(place)
        for event in embedder.load():
            connection.send(event)
        while True:
            for event in embedder.embed(connection.recv()):
                connection.send(event)
