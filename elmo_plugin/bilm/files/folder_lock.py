"""One process at a time in a folder."""

import os
from pathlib import Path
from typing import BinaryIO

NAME = "lock"


def lock_folder(folder: Path) -> BinaryIO:
    """
    # Parameters

    folder : `Path`
        Is there. A file of the name `lock` is made in it.

    # Returns

    `BinaryIO`
        Holds the lock until it is closed; it goes with the process.

    # Raises

    `ValueError`
        If another process holds it, or the file system has no locks.
    """
    path = folder / NAME
    file = path.open("ab")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # not on Windows
        return file
    except BlockingIOError as error:
        file.close()
        raise ValueError(f"{folder} is in use by another process, expected none") from error
    except OSError as error:
        file.close()
        raise ValueError(f"{folder} cannot be locked: {error}; expected another folder") from error
    try:
        is_there = os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        is_there = False
    if is_there:
        return file
    file.close()  # the process that held it took it away when it ended
    return lock_folder(folder)
