"""Locks that no thread holds in a forked child, whose parent's other threads do not exist there."""

import os
import threading
import time
import weakref
from typing import Any

_locks: "weakref.WeakSet[Any]" = weakref.WeakSet()
# Held while locks are added or acquired; reentrant, as a signal's handler may fork meanwhile.
_forking = threading.RLock()
_acquired: list[Any] = []


def fork_safe_lock() -> Any:
    """
    Return a new `threading.RLock`. A fork waits until no other thread holds it, so that in the
    child the lock is free and what it guards is whole.
    """
    lock = threading.RLock()
    with _forking:
        _locks.add(lock)
    return lock


def _acquire_all() -> None:
    # Waiting for one lock with another in hand, it could wait for a thread that wants the other.
    while not _try_all():
        time.sleep(0.001)


def _try_all() -> bool:
    _forking.acquire()  # two threads that fork at a time take turns
    for lock in list(_locks):
        if not lock.acquire(blocking=False):
            _release_all()
            return False
        _acquired.append(lock)
    return True


def _release_all() -> None:
    while _acquired:
        _acquired.pop().release()
    _forking.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_acquire_all, after_in_parent=_release_all, after_in_child=_release_all
    )
