"""Remove the files of an earlier run, and no others, from an output folder (`--force`)."""

import fnmatch
import os
from collections.abc import Iterable
from pathlib import Path, PurePath

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
    after the work. The lock file of `lock_folder` is not in the list.

    # Parameters

    folder : `str | Path`
        Output folder of the run; need not exist.
    written : `Iterable[str]`
        Glob patterns, relative to `folder`, of every file that a run writes: `"best.th"`,
        `"log/*/events.*"`. `*` does not match `/`. Temporary files of `atomic_write` and the lock
        file need not be named.
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
    patterns = [PurePath(pattern).parts for pattern in (marker, *written)]
    found = []
    for name, is_folder in sorted(_content(folder)):
        if str(name) == LOCK:
            continue
        parts = name.with_name(name_of_temporary(name.name) or name.name).parts
        folders = [pattern[: len(parts)] for pattern in patterns if len(pattern) > len(parts)]
        if not any(_matches(parts, one) for one in (folders if is_folder else patterns)):
            raise ValueError(
                f"{folder} holds {name}, which an earlier run did not make; move it away, or "
                f"choose another folder; {NOTHING_REMOVED}"
            )
        if not is_folder:
            found.append(name)
    others = [name for name in found if str(name) != marker]
    if len(others) == len(found) and any(not name_of_temporary(name.name) for name in others):
        raise ValueError(
            f"{folder} holds {others[0]} but no {marker}, so an earlier run may not have made it; "
            f"remove its files yourself, or choose another folder; {NOTHING_REMOVED}"
        )
    return [folder / name for name in others] + [folder / marker] * (len(found) - len(others))


def remove_files(paths: Iterable[Path], folder: str | Path) -> None:
    """
    Remove files that `files_of_earlier_run` listed, and the subfolders of `folder` that become
    empty.
    """
    parents: set[Path] = set()
    for path in paths:
        path.unlink(missing_ok=True)
        parents.update(one for one in path.parents if Path(folder) in one.parents)
    for parent in sorted(parents, key=lambda one: -len(one.parts)):
        if not any(parent.iterdir()):
            parent.rmdir()


def _content(folder: Path) -> Iterable[tuple[PurePath, bool]]:
    """
    Yield each path in `folder`, and whether it is a folder; a link to a folder counts as a file.
    """
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent) / name
            yield path.relative_to(folder), path.is_dir() and not path.is_symlink()


def _matches(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    return len(parts) == len(pattern) and all(map(fnmatch.fnmatchcase, parts, pattern))


def _is_inside(path: Path, folder: Path) -> bool:
    path, folder = path.resolve(), folder.resolve()
    return path.exists() and (path == folder or folder in path.parents)
