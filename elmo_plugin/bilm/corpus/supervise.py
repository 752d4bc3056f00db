"""Assign shards to workers; replace workers that fail, die or hang."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tqdm import tqdm

from elmo_plugin.bilm.corpus.embed import Event

# Attempts per shard. The run also ends after `MOST_TRIES * (number of workers + 4)` failures in a
# row, because then the shards are not the cause.
MOST_TRIES = 3
# Seconds between two checks of the workers' time limits.
TICK = 1.0


class Worker(Protocol):
    """Interface of a process that computes shards."""

    def give(self, number: int) -> None:
        """Assign a shard; allowed after the worker's event `"ready"` or `"done"`."""

    def kill(self) -> None:
        """End the process at once."""


class Engine(Protocol):
    """Interface for starting workers and receiving their events."""

    @property
    def num_processors(self) -> int:
        """Number of CPUs available to workers."""

    def start(self) -> Worker:
        """Start a worker, which then sends the events `"placed"` and `"ready"`."""

    def wait(self, workers: Sequence[Worker], seconds: float) -> Iterable[tuple[Worker, Event]]:
        """Return new events with their workers; wait at most `seconds` for the first event."""

    def close(self) -> None:
        """Release resources; called after all workers have ended."""


@dataclass(eq=False)
class _WorkerState:
    """
    State of a worker as its supervisor knows it.

    `silent`: seconds since its last event; `None` while no event is expected.
    """

    worker: Worker
    name: str = "a worker"
    is_ready: bool = False
    shard: int | None = None
    tokens: int = 0
    silent: float | None = None


class Supervisor:
    """
    Computes shards with several workers, and replaces workers that fail. `machines` lists the
    different results of `machine_of` that the workers have sent.

    # Parameters

    engine : `Engine`
        Engine that starts the workers.
    size : `int`
        Largest number of workers at a time.
    timeout : `float`
        Seconds without an event after which a worker is replaced.
    note : `Callable[[str], None]`
        Function called with each message for the user.
    progress : `tqdm`
        Progress bar that counts tokens; tokens of a failed shard are subtracted.
    """

    def __init__(
        self,
        engine: Engine,
        size: int,
        timeout: float,
        note: Callable[[str], None],
        progress: tqdm,
    ) -> None:
        self._engine = engine
        self._size = size
        self._timeout = timeout
        self._note = note
        self._progress = progress
        self._states: dict[Worker, _WorkerState] = {}
        self._queue: deque[int] = deque()
        self._tries: dict[int, int] = {}
        self._failed: dict[int, str] = {}
        self._failures_in_a_row = 0
        self.machines: list[dict[str, str]] = []

    def run(self, shards: Sequence[int], done: Callable[[int], None]) -> dict[int, str]:
        """
        Compute shards, and call `done` with the number of each finished shard.

        A shard that fails is tried again, `MOST_TRIES` times in all. The result maps each shard
        that failed every time to the reason of its last failure. An `OSError` is raised if many
        tries fail in a row, of any shards: then the shards are not at fault.
        """
        self._queue.extend(shards)
        last = time.monotonic()
        try:
            while self._queue or self._num_busy():
                self._assign()
                for worker, event in self._engine.wait(list(self._states), TICK):
                    if worker in self._states:
                        self._handle(self._states[worker], event, done)
                now = time.monotonic()
                # If this process was suspended, count only two ticks: the workers are not at fault.
                self._check_timeouts(min(now - last, 2 * TICK))
                last = now
        finally:
            for worker in self._states:
                worker.kill()
            self._states.clear()
        return self._failed

    def _num_busy(self) -> int:
        return sum(state.shard is not None for state in self._states.values())

    def _assign(self) -> None:
        for state in self._states.values():
            if state.is_ready and state.shard is None and self._queue:
                state.shard, state.silent = self._queue.popleft(), 0.0
                state.worker.give(state.shard)
        while len(self._states) < min(self._size, self._num_busy() + len(self._queue)):
            worker = self._engine.start()
            self._states[worker] = _WorkerState(worker)

    def _handle(self, state: _WorkerState, event: Event, done: Callable[[int], None]) -> None:
        state.silent = 0.0
        if event.kind == "placed":
            state.name = event.value
        elif event.kind == "ready":
            state.is_ready, state.silent = True, None
            if event.value not in self.machines:
                self.machines.append(event.value)
        elif event.kind == "tokens":
            state.tokens += event.value
            self._progress.update(event.value)
        elif event.kind == "failed":
            self._replace(state, event.value)
        elif state.shard is not None:
            number, state.shard, state.tokens, state.silent = state.shard, None, 0, None
            self._failures_in_a_row = 0
            done(number)

    def _check_timeouts(self, elapsed: float) -> None:
        for state in list(self._states.values()):
            if state.silent is not None:
                state.silent += elapsed
                if state.silent > self._timeout:
                    self._replace(state, f"no message for {self._timeout:g} s")

    def _replace(self, state: _WorkerState, reason: str) -> None:
        """Kill a worker and queue its shard again; many failures in a row raise an `OSError`."""
        state.worker.kill()
        del self._states[state.worker]
        self._progress.update(-state.tokens)
        self._failures_in_a_row += 1
        number = state.shard
        if number is None:
            self._note(f"{state.name}: {reason}")
        else:
            tries = self._tries[number] = self._tries.get(number, 0) + 1
            self._note(f"shard {number}, try {tries} of {MOST_TRIES}, {state.name}: {reason}")
            if tries < MOST_TRIES:
                self._queue.append(number)
            else:
                self._failed[number] = reason
        if self._failures_in_a_row >= MOST_TRIES * (self._size + 4):
            raise OSError(f"{self._failures_in_a_row} failures in a row, the last one: {reason}")
