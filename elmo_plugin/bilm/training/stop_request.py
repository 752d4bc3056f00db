"""Ctrl-C and SIGTERM as a request to stop where nothing is lost."""

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

logger = logging.getLogger(__name__)


class Stopped(Exception):
    """
    A run that was asked to stop, and is saved.

    # Parameters

    number : `int`
        The signal that asked.
    """

    def __init__(self, number: int) -> None:
        super().__init__("stopped, and saved; --recover goes on")
        self.number = number


class StopRequest:
    """
    While it is entered, the first Ctrl-C or SIGTERM is noted in `number`, and the second acts at
    once. Nothing outside the main thread.

    # Parameters

    act_at_once : `Callable[[], bool] | None`, optional (default = `None`)
        Asked at the first signal whether nothing would be lost.
    """

    def __init__(self, act_at_once: Callable[[], bool] | None = None) -> None:
        self.number: int | None = None
        self._act_at_once = act_at_once or (lambda: False)
        self._previous: dict[int, Any] = {}
        self._process = os.getpid()

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) != signal.SIG_IGN:  # nohup, a shell's background job
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        while self._previous:
            signal.signal(*self._previous.popitem())

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A data loader's worker, forked with this handler. Ctrl-C reaches it too, but the batch
            # in hand needs it; SIGTERM is how the loader ends it.
            if number == signal.SIGINT:
                return
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if self.number is not None or self._act_at_once():
            self.__exit__()
            signal.raise_signal(number)
            return
        self.number = number
        logger.warning("Stopping when this batch is done and saved; once more to stop at once")
