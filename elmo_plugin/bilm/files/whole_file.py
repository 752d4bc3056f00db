"""Files that are never half written."""

import contextlib
import hashlib
import itertools
import os
import re
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_numbers = itertools.count()
_being_written: set[Path] = set()


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """
    Makes an empty file in the same directory, to write to; when the block ends well, what was
    written there is on disk and takes the place of `path`. When it fails, `path` is as it was. What
    a process that was killed left of writing the same file is removed.

    # Parameters

    path : `str | Path`
        The file to make or replace; the new one has its mode. A link stays, and what it leads to is
        made or replaced.

    # Raises

    `ValueError`
        If it is no file but a folder, a pipe or a device, which a file would take the place of.
    `OSError`
        If it cannot be written, on a full disk for one; the text names `path`.
    """
    check_replaceable(Path(path))
    mode = _mode(Path(path))
    path = Path(os.path.realpath(path)) if Path(path).is_symlink() else Path(path)
    aside = path.with_name(f".{path.name}.{_host()}.{os.getpid()}-{next(_numbers)}.part")
    _being_written.add(aside)
    try:
        with contextlib.suppress(OSError):
            sweep(path.parent, path.name)
        # A new file, never what a link of this name leads to; nobody reads what is half written of
        # a file that is not theirs to read.
        first_mode = 0o666 if mode is None else 0o600
        os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, first_mode))
        try:
            yield aside
            if mode is not None:
                with contextlib.suppress(PermissionError):  # on file systems without modes
                    aside.chmod(mode & 0o777)
            _to_disk(aside)
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
    except Exception as error:
        # On a full disk HDF5 and PyTorch raise a RuntimeError while they handle the OSError.
        cause = error.__context__ if isinstance(error, RuntimeError) else error
        # Not those of other files, which the block may read.
        if not isinstance(cause, OSError) or cause.filename not in (None, str(aside)):
            raise
        if cause.errno is None:
            raise OSError(f"{path} could not be written: {cause}") from error
        reason = f"could not be written ({os.strerror(cause.errno)})"
        raise OSError(cause.errno, reason, str(path)) from error
    finally:
        _being_written.discard(aside)
    # The new name must be on disk too before an older file is removed.
    with contextlib.suppress(OSError):
        _to_disk(path.parent)


def check_replaceable(path: Path) -> None:
    """
    # Parameters

    path : `Path`
        What is about to be made or replaced, maybe after hours.

    # Raises

    `ValueError`
        If it is no file but a folder, a pipe or a device.
    """
    mode = _mode(path)
    if mode is not None and not stat.S_ISREG(mode):
        raise ValueError(
            f"{path} is a folder or a device, expected the name of a file to make or replace"
        )


def _mode(path: Path) -> int | None:
    """Of what is there, if anything is."""
    try:
        return path.stat().st_mode
    except OSError:  # if it is more than that there is none, making the file says so
        return None


def _host() -> str:
    # Of all of the name: workers' may differ in its end alone.
    return hashlib.blake2b(socket.gethostname().encode(), digest_size=6).hexdigest()


def check_no_folder(paths: Iterable[Path]) -> None:
    """
    # Parameters

    paths : `Iterable[Path]`
        What is about to be removed.

    # Raises

    `ValueError`
        If one is a folder, which no run makes.
    """
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            raise ValueError(f"{path} is a folder, expected a file; nothing was removed")


def sweep(folder: Path, name: str | None = None) -> None:
    """
    Removes what killed processes of this machine left of writing a file, or any file, in a folder.
    Processes of other machines, which may share the disk, are left alone.

    # Parameters

    folder : `Path`
        Where to look.
    name : `str | None`, optional (default = `None`)
        The file's name; `None` for all files.
    """
    leftover = re.compile(
        rf"\.{'.+' if name is None else re.escape(name)}"
        rf"\.(?:{re.escape(_host())}\.(\d+)-\d+|(\d+))\.part"  # without a host in version 0.2
    )
    for other in folder.iterdir():
        found = leftover.fullmatch(other.name)
        if (
            found
            and other not in _being_written
            and not _is_another_alive(int(found[1] or found[2]))
        ):
            other.unlink(missing_ok=True)


def _is_another_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return process != os.getpid()


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
