"""Files and settings of an earlier run in an output folder: what may be removed or resumed."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from elmo_plugin.bilm.files.atomic_write import name_of_temporary
from elmo_plugin.bilm.files.folder_lock import NAME as LOCK

NOTHING_REMOVED = "nothing was removed"


def files_of_earlier_run(
    folder: str | Path,
    written: Iterable[str],
    marker: str,
    inputs: Iterable[str | Path] = (),
) -> list[Path]:
    """
    Return the files of an earlier run in an output folder, in the order to pass to `remove_files`.

    Nothing is removed here. Call this function before the work that may fail, and `remove_files`
    after the work. The lock file of `locked_folder` is not in the list.

    # Parameters

    folder : `str | Path`
        Output folder of the run; need not exist.
    written : `Iterable[str]`
        Glob patterns of the names of all files that a run writes. Temporary files of
        `atomic_write` and the lock file need not be named.
    marker : `str`
        The file that a run writes first. A folder that has files, but no marker, is refused. The
        marker comes last in the list, so that an interrupted removal can be repeated.
    inputs : `Iterable[str | Path]`, optional (default = `()`)
        Files and folders that the new run reads.

    # Raises

    `ValueError`
        If the folder holds an input, a file or folder that matches no pattern, or files but no
        marker; or if `folder` is a file.
    """
    folder = Path(folder)
    if not folder.exists():
        return []
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file, expected a folder; {NOTHING_REMOVED}")
    for path in inputs:
        if _is_inside(Path(path), folder):
            raise ValueError(
                f"{folder} holds {path}, which this command reads; expected an output folder "
                f"without inputs; {NOTHING_REMOVED}"
            )
    found = sorted(path for path in folder.iterdir() if path.name != LOCK)
    for path in found:
        name = name_of_temporary(path.name) or path.name
        is_folder = path.is_dir() and not path.is_symlink()
        if is_folder or not any(fnmatchcase(name, one) for one in (marker, *written)):
            raise ValueError(
                f"{folder} holds {path.name}, which an earlier run did not make; move it away, or "
                f"choose another folder; {NOTHING_REMOVED}"
            )
    others = [path for path in found if path.name != marker]
    if len(others) == len(found) and any(not name_of_temporary(path.name) for path in others):
        raise ValueError(
            f"{folder} holds {others[0].name} but no {marker}, so an earlier run may not have made "
            f"it; remove its files yourself, or choose another folder; {NOTHING_REMOVED}"
        )
    return [*others, *(path for path in found if path.name == marker)]


def check_same(
    path: Path, before: Mapping[str, Any], now: Mapping[str, Any], expected: str
) -> None:
    """Raise a `ValueError` about `path` if a setting of an earlier run has another value now."""
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            raise ValueError(
                f"{path}: {name} was {before.get(name)!r} when this run began and is "
                f"{now.get(name)!r} now; {expected}"
            )


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files that `files_of_earlier_run` listed."""
    for path in paths:
        path.unlink(missing_ok=True)


def _is_inside(path: Path, folder: Path) -> bool:
    path, folder = path.resolve(), folder.resolve()
    return path.exists() and (path == folder or folder in path.parents)
