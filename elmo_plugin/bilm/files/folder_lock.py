"""Lock a folder, so that only one process at a time works in it."""

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

NAME = "lock"
_held: "weakref.WeakSet[BinaryIO]" = weakref.WeakSet()


def _close_in_child() -> None:
    # A forked process, such as a data worker, may outlive its parent and would keep the lock.
    for file in list(_held):
        file.close()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_close_in_child)


def lock_folder(folder: Path, wait: bool = False) -> BinaryIO:
    """
    Lock an existing folder through a file named `lock` in it; return the open lock file.

    The lock is held until the file is closed or the process ends; forked processes do not hold it.
    Raise a `ValueError` if another process holds the lock, or the file system does not support
    locks. A non-empty file `lock` belongs to another program; raise the same error for it.
    """
    path = folder / NAME
    file = path.open("ab")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except ImportError:  # Windows has no fcntl
        return file
    except BlockingIOError as error:
        file.close()
        raise ValueError(f"{folder} is in use by another process, expected none") from error
    except OSError as error:
        file.close()
        raise ValueError(f"{folder} cannot be locked: {error}; expected another folder") from error
    about = os.fstat(file.fileno())
    if about.st_size:
        file.close()
        raise ValueError(f"{path} has {about.st_size} bytes, expected none or an empty lock file")
    try:
        is_there = os.path.samestat(about, path.stat())
    except FileNotFoundError:
        is_there = False
    if is_there:
        _held.add(file)
        return file
    file.close()  # another process has just released the lock and removed the file: try again
    return lock_folder(folder, wait)


@contextmanager
def locked_folder(folder: Path, wait: bool = False) -> Iterator[None]:
    """Context manager that holds a folder's lock, and removes the lock file when the block ends."""
    with lock_folder(folder, wait):
        try:
            yield
        finally:
            (folder / NAME).unlink(missing_ok=True)
