"""Lock a folder, so that only one process at a time works in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

NAME = "lock"


@contextmanager
def locked_folder(folder: Path, wait: bool = False) -> Iterator[None]:
    """
    Context manager that locks an existing folder through a file named `lock` in it, which is
    removed when the block ends. Forked processes do not hold the lock.

    Raise a `ValueError` if another process holds the lock, unless `wait`, or if the file system
    does not support locks. A non-empty file `lock` belongs to another program; raise the same error
    for it. Raise a `FileNotFoundError` if the folder is removed while this process waits.
    """
    path = folder / NAME
    if path.is_file() and (size := path.stat().st_size):
        raise ValueError(f"{path} has {size} bytes, expected none or an empty lock file")
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    try:
        # A lock that is only a file would stay after a kill, so no fallback to it.
        lock = FileLock(path, timeout=-1 if wait else 0, fallback_to_soft=False).acquire()
    except Timeout as error:
        raise ValueError(f"{folder} is in use by another process, expected none") from error
    except FileNotFoundError as error:  # removed since `is_dir`
        raise FileNotFoundError(f"there is no folder {folder}") from error
    except OSError as error:
        raise ValueError(f"{folder} cannot be locked: {error}; expected another folder") from error
    with lock:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
