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
    and when another process of the run has given no sign of life for `SILENCE` seconds, which it
    names. Nothing where there is one process.

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
        lost = watch.lost() if _is_of_a_collective(error) else None
        if lost is None:
            watch.say(f"failed: {type(error).__name__}: {error}")
            raise
        raise RuntimeError(f"{lost}, and with it the run ends") from error
    finally:
        watch.end()


def _leave() -> None:
    # gloo's threads must not outlive the interpreter: one that then lets go of a Python object is
    # ended in the middle of C++ ("terminate called without an active exception").
    if dist.is_initialized() and dist.get_backend() == "gloo":
        dist.destroy_process_group()


def _is_of_a_collective(error: Exception) -> bool:
    # gloo raises a plain RuntimeError.
    return isinstance(error, dist.DistError) or any(
        word in str(error).lower() for word in ("gloo", "connection closed", "timed out", "nccl")
    )


class _Watch:
    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        # A connection of its own: the main thread may wait on the other.
        default: Any = dist.distributed_c10d._get_default_store()
        self.store = default.clone()
        self.signs: dict[int, str] = {}
        self.silent: dict[int, int] = dict.fromkeys(range(self.size), 0)
        self.taken = threading.Event()
        self.said = "0"
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
        self.store.set(f"name {self.rank}", f"on {socket.gethostname()}, pid {os.getpid()}")
        self.thread = threading.Thread(target=self._watch, name="end_together", daemon=True)
        self.thread.start()

    def _take(self, number: int, frame: FrameType | None) -> Any:
        self.taken.set()
        handler = self.handlers[signal.Signals(number)]
        return handler(number, frame) if callable(handler) else None

    def _watch(self) -> None:
        looks = 0
        while not self.ended.is_set():
            if os.getppid() != self.parent:
                self.taken.wait(GRACE)  # it may be in the middle of writing a file
                self._end("the process that started it is gone")
            readable, _, _ = select.select([self.reading], [], [], 1.0)
            numbers = self.reading.recv(64) if readable else b""
            came = [number for number in self.handlers if number in numbers]
            if came and not self.ended.is_set() and not self.taken.wait(GRACE):
                self._end(f"{came[0].name} came while it waited for another process")
            looks += 1
            try:
                self._look(str(looks))
            except dist.DistError as error:
                if self.silent[0] >= SILENCE:
                    self._end(f"process 0 holds the run's store, which is gone: {error}")
                self.silent[0] += 1
            gone = self._gone(SILENCE)
            if gone and not self.ended.is_set():
                self._end(f"{gone} has given no sign of life for {SILENCE} s")

    def _look(self, own_sign: str) -> None:
        self.store.set(f"alive {self.rank}", own_sign if self.said == "0" else self.said)
        for rank in range(self.size):
            key = f"alive {rank}"
            sign = self.store.get(key).decode() if self.store.check([key]) else ""
            # Counted in looks, not in seconds: a machine that stood still saw nothing either. One
            # that has not yet begun is waited for.
            unchanged = sign and self.signs.get(rank) == sign
            self.silent[rank] = self.silent[rank] + 1 if unchanged else 0
            self.signs[rank] = sign

    def _gone(self, looks: int) -> str | None:
        for rank, silent in self.silent.items():
            if rank != self.rank and silent >= looks and self.signs.get(rank) != "done":
                return self._name(rank)
        return None

    def _name(self, rank: int) -> str:
        with contextlib.suppress(dist.DistError):
            if self.store.check([f"name {rank}"]):
                return f"process {rank} ({self.store.get(f'name {rank}').decode()})"
        return f"process {rank}"

    def lost(self) -> str | None:
        """Which process the others lost, once that is known."""
        end = time.monotonic() + 4 * SILENCE_AFTER_A_LOSS
        while time.monotonic() < end and self.thread.is_alive():
            failed = [(r, s) for r, s in self.signs.items() if s.startswith("failed")]
            if failed:
                return f"{self._name(failed[0][0])} {failed[0][1]}"
            gone = self._gone(SILENCE_AFTER_A_LOSS)
            if gone:
                return f"{gone} is gone"
            time.sleep(0.2)
        return None

    def say(self, sign: str) -> None:
        self.said = sign
        with contextlib.suppress(dist.DistError, RuntimeError):
            self.store.clone().set(f"alive {self.rank}", sign)

    def _end(self, reason: str) -> None:
        logger.error("Process %d of the run ends: %s", self.rank, reason)
        os._exit(1)

    def end(self) -> None:
        if self.said == "0":
            self.say("done")
        self.ended.set()
        signal.set_wakeup_fd(self.wakeup)
        for number, handler in self.handlers.items():
            if callable(handler):
                signal.signal(number, handler)
        with contextlib.suppress(OSError):
            self.writing.send(b"\0")
        self.thread.join()
        self.reading.close()
        self.writing.close()
