"""The processes of a distributed run end together, also where they wait for each other."""

import atexit
import contextlib
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch.distributed as dist

logger = logging.getLogger(__name__)

# How long a process that waits inside PyTorch is given to come back after a signal, in seconds.
GRACE = 10.0
# Looks at the others, a second apart, at which one has given no sign of life before it is gone;
# where the connection to one is lost, so few are enough.
SILENCE, SILENCE_AFTER_A_LOSS = 60, 4


@contextmanager
def end_together() -> Iterator[None]:
    """
    While the block runs, a thread ends this process where Python cannot: inside a collective
    operation, which waits for another process. It does so when Ctrl-C or SIGTERM came and the main
    thread has not taken it after `GRACE` seconds, when the process that started this one is gone,
    and when another process of the run has failed `GRACE` seconds ago or given no sign of life for
    `SILENCE` seconds, which it names. Nothing where there is one process.

    # Raises

    `RuntimeError`
        Where a collective operation in the block fails; the text names the process that is gone.
    """
    if not dist.is_initialized() or threading.current_thread() is not threading.main_thread():
        yield
        return
    atexit.register(_leave)
    watch = _Watch()
    try:
        yield
    except Exception as error:
        if not _is_of_a_collective(error):
            watch.say_failed(f"{type(error).__name__}: {error}")
            raise
        # What another's end has brought about is not said: it would hide whose end that was.
        reason = watch.reason()
        if reason is None:
            raise
        watch.say(reason)
        raise RuntimeError(f"{reason}, and with it the run ends") from error
    finally:
        watch.end()


def _leave() -> None:
    # gloo's threads must not outlive the interpreter: one that then lets go of a Python object is
    # ended in the middle of C++ ("terminate called without an active exception").
    if dist.is_initialized() and dist.get_backend() == "gloo":
        dist.destroy_process_group()


def _is_of_a_collective(error: Exception) -> bool:
    words = ("gloo", "connection closed", "timed out", "nccl")
    return isinstance(error, dist.DistError) or (
        type(error) is RuntimeError and any(word in str(error).lower() for word in words)
    )  # gloo's


class _Watch:
    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        # Connections of its own, for the thread and for `say`: the main thread may wait on the
        # other, and where the store is gone a new one would be waited for.
        default: Any = dist.distributed_c10d._get_default_store()
        self.store, self.saying_store = default.clone(), default.clone()
        self.lost_store: dist.DistError | None = None
        self.signs: dict[int, str] = {}
        self.names = {self.rank: f"on {socket.gethostname()}, pid {os.getpid()}"}
        self.silent: dict[int, int] = dict.fromkeys(range(self.size), 0)
        self.looks_after_a_failure = 0
        self.taken = threading.Event()
        self.said = "0"
        self.saying = threading.Lock()
        self.handlers = {
            number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
        }
        for number, handler in self.handlers.items():
            if callable(handler):
                signal.signal(number, self._take)
        self.reading, self.writing = socket.socketpair()
        self.writing.setblocking(False)
        # The interpreter writes each signal's number here at once, whatever the main thread does.
        self.wakeup = signal.set_wakeup_fd(self.writing.fileno(), warn_on_full_buffer=False)
        self.ended = threading.Event()
        self.parent = os.getppid()
        self.store.set(f"name {self.rank}", self.names[self.rank])
        # At once: it may be gone before the thread's first look.
        self.store.set(f"alive {self.rank}", "0")
        self.thread = threading.Thread(target=self._watch, name="end_together", daemon=True)
        self.thread.start()

    def _take(self, number: int, frame: FrameType | None) -> Any:
        self.taken.set()
        handler = self.handlers[signal.Signals(number)]
        return handler(number, frame) if callable(handler) else None

    def _meet(self) -> None:
        """Learns the names before the first look: soon one may be gone, and the store with it."""
        end = time.monotonic() + GRACE
        with contextlib.suppress(dist.DistError):
            while len(self.names) < self.size and time.monotonic() < end:
                for rank in set(range(self.size)) - set(self.names):
                    if self.store.check([f"name {rank}"]):
                        self.names[rank] = self.store.get(f"name {rank}").decode()
                if self.ended.wait(0.02):
                    return

    def _watch(self) -> None:
        self._meet()
        looks, came = 0, None
        while not self.ended.is_set():
            if os.getppid() != self.parent:
                self.taken.wait(GRACE)  # it may be in the middle of writing a file
                self._end("the process that started it is gone")
            readable, _, _ = select.select([self.reading], [], [], 1.0)
            numbers = self.reading.recv(64) if readable else b""
            for number in self.handlers:
                if number in numbers and came is None:
                    came = (number, time.monotonic() + GRACE)
            taken = self.taken.is_set() or self.ended.is_set()
            if came and time.monotonic() > came[1] and not taken:
                reason = f"{came[0].name} came while it waited for another process"
                self.say_failed(reason)
                self._end(reason)
            looks += 1
            try:
                if self.lost_store is None:
                    self._look(str(looks))
            except dist.DistError as error:
                self.lost_store = error
            if self.lost_store is not None:
                if self.silent[0] >= GRACE:
                    reason = "process 0 holds the run's store, which is gone"
                    self._end(f"{reason}: {self.lost_store}")
                self.silent[0] += 1
            why, gone = self._said_by_another(), self._gone(SILENCE)
            self.looks_after_a_failure += why is not None
            if self.ended.is_set():
                return
            if self.looks_after_a_failure > GRACE:
                self._end(f"{why}")
            if gone:
                self._end(f"{gone} has given no sign of life for {SILENCE} s")

    def _look(self, own_sign: str) -> None:
        with self.saying:  # or it would write over what was said meanwhile
            if self.said == "0":
                self.store.set(f"alive {self.rank}", own_sign)
        for rank in range(self.size):
            key = f"alive {rank}"
            sign = self.store.get(key).decode() if self.store.check([key]) else ""
            # Counted in looks, not in seconds: a machine that stood still saw nothing either. One
            # that has not yet begun is waited for.
            unchanged = sign and self.signs.get(rank) == sign
            self.silent[rank] = self.silent[rank] + 1 if unchanged else 0
            self.signs[rank] = sign

    def _said_by_another(self) -> str | None:
        """Why the run ends."""
        reasons = (sign for rank, sign in self.signs.items() if rank != self.rank)
        return next((sign for sign in reasons if sign.startswith("process")), None)

    def _gone(self, looks: int) -> str | None:
        """The first of those that are; others may have ended since because of it."""
        others = {r: n for r, n in self.silent.items() if r != self.rank}
        silent = [r for r, n in others.items() if n >= looks and self.signs.get(r) != "done"]
        return self._name(max(silent, key=others.__getitem__)) if silent else None

    def _name(self, rank: int) -> str:
        return f"process {rank} ({self.names.get(rank, 'not yet begun')})"

    def reason(self) -> str | None:
        """Which process failed or is gone, once that is known."""
        end = time.monotonic() + 4 * SILENCE_AFTER_A_LOSS
        while time.monotonic() < end and self.thread.is_alive():
            gone = self._gone(SILENCE_AFTER_A_LOSS)
            reason = self._said_by_another() or (gone and f"{gone} is gone")
            if reason:
                return reason
            time.sleep(0.2)
        return None

    def say_failed(self, how: str) -> None:
        self.say(f"{self._name(self.rank)} failed: {how}")

    def say(self, sign: str) -> None:
        with self.saying, contextlib.suppress(dist.DistError, RuntimeError):
            self.said = sign
            self.saying_store.set(f"alive {self.rank}", sign)

    def _end(self, reason: str) -> None:
        logger.error("Process %d of the run ends: %s", self.rank, reason)
        os._exit(1)

    def end(self) -> None:
        if self.said == "0":
            self.say("done")
        elif self.rank == 0:
            # The store may end with this process; first the others look at what was said. Their
            # own operations may fail only when this process is gone.
            time.sleep(3)
        self.ended.set()
        signal.set_wakeup_fd(self.wakeup)
        for number, handler in self.handlers.items():
            if signal.getsignal(number) == self._take:  # a second one may have put back another
                signal.signal(number, handler)
        with contextlib.suppress(OSError):
            self.writing.send(b"\0")
        self.thread.join()
        self.reading.close()
        self.writing.close()
