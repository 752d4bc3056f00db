"""Files and settings of an earlier run in an output folder: what may be removed or resumed."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from elmo_plugin.bilm.files.atomic_write import name_of_temporary
from elmo_plugin.bilm.files.folder_lock import NAME as LOCK


def files_of_earlier_run(
    folder: str | Path, written: Iterable[str], marker: str, inputs: Iterable[str | Path] = ()
) -> list[Path]:
    """
    Return the files of an earlier run in an output folder, but for its lock, in the order to pass
    to `remove_files`. Call this before the work that may fail, and `remove_files` after it.

    `written` are glob patterns of all files that a run writes, but for its lock and temporary
    files. `marker` is the file that a run writes first; it comes last, so that an interrupted
    removal can be repeated. `inputs` are files and folders of the new run.

    Raise a `ValueError` if the folder holds an input, something that matches no pattern, or files
    but no marker; or if it is a file.
    """
    folder = Path(folder)

    def refused(why: str) -> ValueError:
        return ValueError(f"{folder} {why}; nothing was removed")

    if not folder.exists():
        return []
    if not folder.is_dir():
        raise refused("is a file, expected a folder")
    for path in map(Path, inputs):
        if path.exists() and path.resolve().is_relative_to(folder.resolve()):
            raise refused(
                f"holds {path}, which this command reads; expected an output folder without inputs"
            )
    found = sorted(path for path in folder.iterdir() if path.name != LOCK)
    for path in found:
        name = name_of_temporary(path.name) or path.name
        is_folder = path.is_dir() and not path.is_symlink()
        if is_folder or not any(fnmatchcase(name, one) for one in (marker, *written)):
            raise refused(
                f"holds {path.name}, which an earlier run did not make; move it away, or choose "
                "another folder"
            )
    others = [path for path in found if path.name != marker]
    if len(others) == len(found) and any(not name_of_temporary(path.name) for path in others):
        raise refused(
            f"holds {others[0].name} but no {marker}, so an earlier run may not have made it; "
            "remove its files yourself, or choose another folder"
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
