"""One process at a time in a folder."""

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
        If another process holds it.
    """
    file = (folder / NAME).open("ab")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # not on Windows
        pass
    except OSError as error:
        file.close()
        raise ValueError(f"{folder} is in use by another process, expected none") from error
    return file
