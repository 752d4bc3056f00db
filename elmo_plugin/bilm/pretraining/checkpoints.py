"""Checkpoints of a run: written atomically, verified by checksum when read, removed when old."""

import json
import logging
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from elmo_plugin.bilm.files.atomic_write import atomic_write, remove_temporary_files
from elmo_plugin.bilm.files.plain_tensors import UNREADABLE, first_line, load_checked
from elmo_plugin.bilm.pretraining.vocabulary import check_least

logger = logging.getLogger(__name__)

CHECKPOINT = re.compile(r"checkpoint_e(\d+)_b(\d+)\.th")
# Version 0.4 and before wrote format 1, see `StreamPosition.from_dict`.
FORMAT, READABLE = 2, (1, 2)
NOTHING_TO_RECOVER = (
    "no checkpoint can be read, so there is nothing to recover from; to start from the beginning "
    "move these files away: "
)
# Position of a checkpoint: (completed epochs, completed steps of the current epoch).
Point = tuple[int, int]


def save_atomically(state: Any, path: str | os.PathLike) -> None:
    """Save an object with `torch.save`, atomically; raise an `OSError` that names `path`."""
    path = Path(path)
    try:
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            torch.save(state, file)
    except OSError as error:
        raise OSError(
            error.errno,
            f"could not write {path} ({os.strerror(error.errno or 0)}); files written before it "
            "are intact, and --recover continues from them",
        ) from error


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file that a run wrote; raise a `ValueError` if it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it is not an object")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return content


@dataclass(frozen=True)
class CheckpointSettings:
    """
    Settings that say when checkpoints are saved, and how many are kept.

    # Parameters

    save_completed_epochs : `bool`, optional (default = `True`)
        Save at the end of each epoch.
    save_every_num_seconds : `float | None`, optional (default = `None`)
        Save after a step if this many seconds have passed since the last save.
    save_every_num_batches : `int | None`, optional (default = `None`)
        Save after this many optimizer steps since the last save.
    keep_most_recent_by_count : `int | None`, optional (default = `2`)
        Number of newest checkpoints to keep.
    keep_most_recent_by_age : `float | None`, optional (default = `None`)
        Age in seconds up to which checkpoints are kept. A checkpoint stays if either setting keeps
        it; if both are `None`, all stay.
    """

    save_completed_epochs: bool = True
    save_every_num_seconds: float | None = None
    save_every_num_batches: int | None = None
    keep_most_recent_by_count: int | None = 2
    keep_most_recent_by_age: float | None = None

    def __post_init__(self) -> None:
        check_least(1, save_every_num_batches=self.save_every_num_batches)
        check_least(1, keep_most_recent_by_count=self.keep_most_recent_by_count)
        check_least(0, save_every_num_seconds=self.save_every_num_seconds)
        check_least(0, keep_most_recent_by_age=self.keep_most_recent_by_age)


class RunFiles:
    """Checkpoint files in the folder of a run, and the file with the weights of its best epoch."""

    def __init__(self, directory: Path, settings: CheckpointSettings) -> None:
        self.directory = directory
        self.settings = settings
        self.best = directory / "best.th"

    def save(self, epochs: int, batches: int, state: dict[str, Any]) -> None:
        """
        Save a checkpoint, named by completed epochs and steps of the current one, then remove old
        ones. `state` may hold tensors and Python's basic types.
        """
        save_atomically(
            {"format": FORMAT, **state}, self.directory / f"checkpoint_e{epochs}_b{batches}.th"
        )
        points = points_in(self.directory)
        times = {point: path.stat().st_mtime for point, path in points.items()}
        limits = self.settings.keep_most_recent_by_count, self.settings.keep_most_recent_by_age
        keep = points_to_keep(times, (epochs, batches), *limits)
        for point in points.keys() - keep:
            points[point].unlink(missing_ok=True)

    def newest(self, clean: bool) -> dict[str, Any] | None:
        """
        Load the newest intact checkpoint to the CPU; return `None` if there is no checkpoint.

        With `clean`, first remove temporary files that killed processes have left. Raise a
        `ValueError` if there are checkpoints, but none can be read.
        """
        if not self.directory.is_dir():
            return None
        if clean:
            remove_temporary_files(self.directory)
        unreadable = []
        for _, path in sorted(points_in(self.directory).items(), reverse=True):
            try:
                state = load_checked(path)
                if state["format"] not in READABLE:
                    raise ValueError(f"its format is {state['format']}, expected {READABLE}")
            except UNREADABLE as error:
                unreadable.append(warn_unreadable(path, error))
                continue
            logger.info("Resuming from %s", path)
            return state
        if unreadable:
            raise ValueError(NOTHING_TO_RECOVER + "; ".join(unreadable))
        return None

    def save_best(self, weights: dict[str, torch.Tensor]) -> None:
        """Save the model weights of the best epoch so far."""
        save_atomically(weights, self.best)

    def load_best(self) -> dict[str, torch.Tensor]:
        """Load them to the CPU; raise a `ValueError` if the file is damaged."""
        try:
            return load_checked(self.best)
        except UNREADABLE as error:
            raise ValueError(f"{self.best} cannot be read: {error}") from error


def points_in(folder: Path) -> dict[Point, Path]:
    """Return the checkpoint files in a folder by their (epoch, batch)."""
    found = ((CHECKPOINT.fullmatch(path.name), path) for path in folder.iterdir())
    return {(int(match[1]), int(match[2])): path for match, path in found if match}


def points_to_keep(
    times: dict[Point, float], newest: Point, count: int | None, age: float | None
) -> set[Point]:
    """
    Return the checkpoints to keep, given the modification time of each in seconds, the one that was
    just saved, and `keep_most_recent_by_count` and `keep_most_recent_by_age`. Those of later steps
    are not kept: they were unreadable when the run resumed.
    """
    older = sorted((point for point in times if point <= newest), reverse=True)
    keep = {newest, *(older if count is None and age is None else older[: count or 0])}
    if age is not None:
        keep.update(point for point in older if times[point] >= time.time() - age)
    return keep


def warn_unreadable(path: Path, error: Exception) -> str:
    """Log that an unreadable checkpoint is skipped; return its path with the reason."""
    reason = first_line(error)
    logger.warning("Skipping a checkpoint that cannot be read: %s: %s", path, reason)
    return f"{path}: {reason}"
