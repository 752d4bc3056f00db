"""Workers are given one shard after another; one that fails, dies or stands still is replaced."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tqdm import tqdm

from elmo_plugin.bilm.corpus.embed import Event

# A shard is given up after so many, and the run after so many in a row for each worker and four
# more: whatever fails is then not the shards.
MOST_TRIES = 3
# How often it is looked whether a worker stands still, in seconds.
TICK = 1.0


class Worker(Protocol):
    """A process somewhere."""

    def give(self, number: int) -> None:
        """A shard to embed; after its `"ready"` or `"done"`."""

    def kill(self) -> None:
        """Ends it, whatever it does."""


class Engine(Protocol):
    """Where workers come from."""

    @property
    def num_processors(self) -> int:
        """That it has for workers' threads."""

    def start(self) -> Worker:
        """Loads what it needs by itself, and says `"placed"`, then `"ready"`."""

    def wait(self, workers: Sequence[Worker], seconds: float) -> Iterable[tuple[Worker, Event]]:
        """What they tell, as soon as one tells something; nothing after some time."""

    def close(self) -> None:
        """When no worker is left."""


@dataclass(eq=False)
class _Member:
    """
    Of the crew. `silent`: seconds for which it should have told something; `None` where it need not
    yet.
    """

    worker: Worker
    name: str = "a worker"
    is_ready: bool = False
    shard: int | None = None
    tokens: int = 0
    silent: float | None = None


class Supervisor:
    """
    # Parameters

    engine : `Engine`
        Where workers come from.
    size : `int`
        Workers at most.
    timeout : `float`
        Seconds of silence after which a worker is taken to stand still.
    note : `Callable[[str], None]`
        Takes messages for people.
    progress : `tqdm`
        Moves on by one for every token, back for those of a shard that failed.
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
        self._crew: dict[Worker, _Member] = {}
        self._queue: deque[int] = deque()
        self._tries: dict[int, int] = {}
        self._failed: dict[int, str] = {}
        self._in_a_row = 0
        self.machines: list[dict[str, str]] = []

    def run(self, shards: Sequence[int], done: Callable[[int], None]) -> dict[int, str]:
        """
        # Parameters

        shards : `Sequence[int]`
            To be made.
        done : `Callable[[int], None]`
            Told of each that is.

        # Returns

        `dict[int, str]`
            Those that failed `MOST_TRIES` times, and why.

        # Raises

        `OSError`
            If nothing succeeds any more.
        """
        self._queue.extend(shards)
        last = time.monotonic()
        try:
            while self._queue or self._busy():
                self._fill()
                for worker, event in self._engine.wait(list(self._crew), TICK):
                    if worker in self._crew:
                        self._hear(self._crew[worker], event, done)
                now = time.monotonic()
                # Where this process itself stood still, that is not the workers' time.
                self._look(min(now - last, 2 * TICK))
                last = now
        finally:
            for worker in self._crew:
                worker.kill()
            self._crew.clear()
        return self._failed

    def _busy(self) -> int:
        return sum(member.shard is not None for member in self._crew.values())

    def _fill(self) -> None:
        for member in self._crew.values():
            if member.is_ready and member.shard is None and self._queue:
                member.shard, member.silent = self._queue.popleft(), 0.0
                member.worker.give(member.shard)
        while len(self._crew) < min(self._size, self._busy() + len(self._queue)):
            worker = self._engine.start()
            self._crew[worker] = _Member(worker)

    def _hear(self, member: _Member, event: Event, done: Callable[[int], None]) -> None:
        member.silent = 0.0
        if event.kind == "placed":
            member.name = event.value
        elif event.kind == "ready":
            member.is_ready, member.silent = True, None
            if event.value not in self.machines:
                self.machines.append(event.value)
        elif event.kind == "tokens":
            member.tokens += event.value
            self._progress.update(event.value)
        elif event.kind == "failed":
            self._lose(member, event.value)
        elif member.shard is not None:
            number, member.shard, member.tokens, member.silent = member.shard, None, 0, None
            self._in_a_row = 0
            done(number)

    def _look(self, elapsed: float) -> None:
        for member in list(self._crew.values()):
            if member.silent is not None:
                member.silent += elapsed
                if member.silent > self._timeout:
                    self._lose(member, f"nothing was heard of it for {self._timeout:g} s")

    def _lose(self, member: _Member, reason: str) -> None:
        member.worker.kill()
        del self._crew[member.worker]
        self._progress.update(-member.tokens)
        self._in_a_row += 1
        number = member.shard
        if number is None:
            self._note(f"{member.name}: {reason}")
        else:
            tries = self._tries[number] = self._tries.get(number, 0) + 1
            self._note(f"shard {number}, try {tries} of {MOST_TRIES}, {member.name}: {reason}")
            if tries < MOST_TRIES:
                self._queue.append(number)
            else:
                self._failed[number] = reason
        if self._in_a_row >= MOST_TRIES * (self._size + 4):
            raise OSError(f"{self._in_a_row} failures in a row, the last one: {reason}")
