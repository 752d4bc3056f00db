"""Write a file atomically: readers see either the old content or all of the new content."""

import contextlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Until version 0.4, the process and a number came after the digits.
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{12}(?:\.\d+-\d+)?\.part")


class _OnlyTriedError(Exception):
    """Leaves the block of `atomic_write`, so that nothing is written."""


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """
    Context manager that yields an empty temporary file, and renames it to `path` if the block
    succeeds.

    The content is flushed to disk before the rename. If the block raises, `path` is unchanged and
    the temporary file is removed. A process that is killed leaves it, see `remove_temporary_files`.
    The mode of an existing file is kept; of a symbolic link, the target is replaced.

    Raise a `ValueError` if `path` is a folder, a pipe or a device. Raise an `OSError` that names
    `path` if it cannot be written, for example because the disk is full.
    """
    mode = check_replaceable(Path(path))
    path = Path(os.path.realpath(path)) if Path(path).is_symlink() else Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        # O_EXCL: refuse a link that somebody planted under this name. Until the temporary file gets
        # the mode of the file that it replaces, only its owner can read it.
        first_mode = 0o666 if mode is None else 0o600
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, first_mode))
        try:
            yield temporary
            if mode is not None:
                with contextlib.suppress(PermissionError):  # on file systems without modes
                    temporary.chmod(mode & 0o777)
            _flush_to_disk(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except Exception as error:
        # On a full disk, HDF5 and PyTorch raise a RuntimeError, whose context is the OSError.
        cause = error.__context__ if isinstance(error, RuntimeError) else error
        # The block may read other files; their errors are not about `path`.
        if not isinstance(cause, OSError) or cause.filename not in (None, str(temporary)):
            raise
        if cause.errno is None:
            raise OSError(f"{path} could not be written: {cause}") from error
        reason = f"could not be written ({os.strerror(cause.errno)})"
        raise OSError(cause.errno, reason, str(path)) from error
    # The new name should be on disk before the caller removes an older file. File systems that
    # cannot flush a folder are left alone.
    with contextlib.suppress(OSError):
        _flush_to_disk(path.parent)


def write_json(path: str | Path, content: Any, indent: int | None = 2) -> None:
    """Write a JSON file with `atomic_write`; `indent=None` writes one line without a newline."""
    text = json.dumps(content, indent=indent) + ("" if indent is None else "\n")
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def check_replaceable(path: Path) -> int | None:
    """
    Return the mode of a file that a new one may replace, `None` if there is none. Raise a
    `ValueError` if `path` is a folder, a pipe or a device.
    """
    try:
        mode = path.stat().st_mode
    except OSError:  # no file, or an error that creating the file will report
        return None
    if not stat.S_ISREG(mode):
        raise ValueError(
            f"{path} is a folder or a device, expected the name of a file to make or replace"
        )
    return mode


def check_output_path(path: Path) -> None:
    """
    Raise a `FileNotFoundError` if `path` has no folder, and the errors of `atomic_write` if it
    cannot write there. For example, a link may lead nowhere, or the name be too long.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to")
    with contextlib.suppress(_OnlyTriedError), atomic_write(path):
        raise _OnlyTriedError


def remove_temporary_files(folder: Path, name: str | None = None) -> None:
    """
    Remove temporary files of `atomic_write` from a folder, or those of the file `name` in it. No
    other process may write to them now.
    """
    for path in folder.iterdir():
        if (found := name_of_temporary(path.name)) and name in (None, found):
            path.unlink(missing_ok=True)


def name_of_temporary(name: str) -> str | None:
    """Return the name of the file that a temporary file of `atomic_write` becomes, or `None`."""
    found = _TEMPORARY.fullmatch(name)
    return found[1] if found else None


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
