"""Ctrl-C, SIGTERM and warnings as requests to stop after the current training step."""

import logging
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

logger = logging.getLogger(__name__)

# Signals that come before an end: Slurm's `--signal`, which submitit sets to SIGUSR2, Grid Engine's
# `-notify`, a lost terminal, a limit on CPU time. Windows lacks them.
NAMES = ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGXCPU")
WARNINGS = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
SIGNALS = (signal.SIGINT, signal.SIGTERM, *WARNINGS)


class Stopped(Exception):
    """
    Exception that ends a run after a signal, once a checkpoint is saved.

    # Parameters

    number : `int`
        Number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__("stopped, and saved; --recover resumes the run")
        self.number = number


class StopRequest:
    """
    Context manager that records the first of `SIGNALS` in `number`; a second signal has its usual
    effect.

    Outside the main thread it does nothing.

    # Parameters

    act_at_once : `Callable[[], bool] | None`, optional (default = `None`)
        Function called at the first signal. If it returns true, that signal has its usual effect.
    """

    def __init__(self, act_at_once: Callable[[], bool] | None = None) -> None:
        self.number: int | None = None
        self._act_at_once = act_at_once or (lambda: False)
        self._previous: dict[int, Any] = {}
        self._process = os.getpid()

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:  # ignored under nohup: leave it so
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        while self._previous:
            signal.signal(*self._previous.popitem())

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # This is a data loader's worker, which inherited the handler. Signals to the whole
            # process group may reach it, but it must complete the batch. SIGTERM ends it.
            if number != signal.SIGTERM:
                return
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if self.number is not None or self._act_at_once():
            self.__exit__()
            signal.raise_signal(number)
            return
        self.number = number
        with suppress(RuntimeError):  # the signal has interrupted a write to stderr
            logger.warning("Stopping when this batch is done and saved; once more to stop at once")
