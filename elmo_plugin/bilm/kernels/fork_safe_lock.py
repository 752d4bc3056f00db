"""Locks that no thread holds in a forked child, whose parent's other threads do not exist there."""

import os
import threading
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
    _forking.acquire()  # two threads that fork at a time could each wait for a lock of the other
    for lock in list(_locks):
        lock.acquire()
        _acquired.append(lock)


def _release_all() -> None:
    while _acquired:
        _acquired.pop().release()
    _forking.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_acquire_all, after_in_parent=_release_all, after_in_child=_release_all
    )
