"""Lock a folder, so that only one process at a time works in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

NAME = "lock"


@contextmanager
def locked_folder(folder: Path, wait: bool = False) -> Iterator[None]:
    """
    Context manager that locks an existing folder by a file `lock` in it, which is removed at the
    end. Forked processes do not hold the lock.

    Raise a `ValueError` if another process holds it (unless `wait`), if the file system has no
    locks, or if a file `lock` is another program's. Raise a `FileNotFoundError` if the folder is
    removed.
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
