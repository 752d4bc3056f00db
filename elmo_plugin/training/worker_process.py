"""The processes of a distributed run end when the run does, also where they wait for each other."""

import logging
import multiprocessing
import os
import select
import signal
import socket
import threading
from types import FrameType
from typing import Any, Optional

logger = logging.getLogger(__name__)

# How long a process that waits inside PyTorch is given to come back after a signal, in seconds.
GRACE = 10.0


def end_with_the_run(rank: int) -> None:
    """
    Lets Ctrl-C and the end of the process that started it end this process.

    Python acts on a signal between two of its instructions, so a process that waits for another one
    inside a collective operation never does, and stays behind for ever. A thread watches here: a
    Ctrl-C that the main thread has not taken after `GRACE` seconds ends the process.

    # Parameters

    rank : `int`
        This process's, for the message.
    """
    if (
        multiprocessing.parent_process() is None
        or threading.current_thread() is not threading.main_thread()
    ):
        return  # started by something else, which looks after it
    taken = threading.Event()
    handler = signal.getsignal(signal.SIGINT)

    def take(number: int, frame: Optional[FrameType]) -> Any:
        taken.set()
        return handler(number, frame) if callable(handler) else None

    if callable(handler):
        signal.signal(signal.SIGINT, take)
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    # The interpreter writes each signal's number here at once, whatever the main thread does.
    signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    # The pair lives as long as the thread that has it among its arguments.
    threading.Thread(
        target=_watch,
        args=(rank, os.getppid(), (reading, writing), taken),
        name="end_with_the_run",
        daemon=True,
    ).start()


def _watch(rank: int, parent: int, pair: Any, taken: threading.Event) -> None:
    reading = pair[0]
    while os.getppid() == parent:
        readable, _, _ = select.select([reading], [], [], 1.0)
        if readable and signal.SIGINT in reading.recv(64) and not taken.wait(GRACE):
            _end(rank, "Ctrl-C came while it waited for another process")
    # It may be in the middle of writing a file.
    taken.wait(GRACE)
    _end(rank, "the process that started it is gone")


def _end(rank: int, reason: str) -> None:
    logger.error("Process %d of the run ends: %s", rank, reason)
    os._exit(1)
