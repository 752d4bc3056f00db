"""The files of a pretraining run: checkpoints, the best weights, figures."""

import json
import logging
import pickle
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from elmo_plugin.bilm.files.whole_file import sweep, whole_file
from elmo_plugin.bilm.training.save_atomically import save_atomically

logger = logging.getLogger(__name__)

CHECKPOINT = re.compile(r"checkpoint_e(\d+)_b(\d+)\.th")
# What `torch.load` raises on torn, foreign or unsafe files.
UNREADABLE = (
    OSError,
    RuntimeError,
    EOFError,
    pickle.UnpicklingError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
)
FORMAT = 1
NOTHING_TO_RECOVER = (
    "no checkpoint can be read, so there is nothing to recover from; to start from the beginning "
    "move these files away: "
)
# Whole epochs that are done, and batches of the next.
Point = tuple[int, int]


@dataclass(frozen=True)
class CheckpointSettings:
    """
    # Parameters

    save_completed_epochs : `bool`, optional (default = `True`)
        Save at the end of each epoch.
    save_every_num_seconds : `float | None`, optional (default = `None`)
        Save at the first end of a step so many seconds after the last save, by the first process's
        clock.
    save_every_num_batches : `int | None`, optional (default = `None`)
        Save at the first end of a step so many steps after the last save.
    keep_most_recent_by_count : `int | None`, optional (default = `2`)
        How many checkpoints stay on disk. With `keep_most_recent_by_age`, those stay that either
        keeps; with both `None`, all.
    keep_most_recent_by_age : `float | None`, optional (default = `None`)
        For how many seconds a checkpoint stays on disk.
    """

    save_completed_epochs: bool = True
    save_every_num_seconds: float | None = None
    save_every_num_batches: int | None = None
    keep_most_recent_by_count: int | None = 2
    keep_most_recent_by_age: float | None = None


class RunFiles:
    """
    # Parameters

    directory : `Path`
        The run's.
    settings : `CheckpointSettings`
    """

    def __init__(self, directory: Path, settings: CheckpointSettings) -> None:
        self.directory = directory
        self.settings = settings
        self.best = directory / "best.th"

    def save(self, epochs: int, batches: int, state: dict[str, Any]) -> None:
        """
        A checkpoint, whole or not at all; then older ones go.

        # Parameters

        epochs, batches : `int`
            That are done: whole epochs, and steps of the next.
        state : `dict[str, Any]`
            What `torch.load` reads with `weights_only`.

        # Raises

        `OSError`
            If it cannot be written, on a full disk for one; earlier ones are intact then.
        """
        save_atomically(
            {"format": FORMAT, **state}, self.directory / f"checkpoint_e{epochs}_b{batches}.th"
        )
        points = self._points()
        times = {point: path.stat().st_mtime for point, path in points.items()}
        count = self.settings.keep_most_recent_by_count
        keep = points_to_keep(
            times, (epochs, batches), count, self.settings.keep_most_recent_by_age
        )
        for point in points.keys() - keep:
            points[point].unlink(missing_ok=True)

    def _points(self) -> dict[Point, Path]:
        found = ((CHECKPOINT.fullmatch(path.name), path) for path in self.directory.iterdir())
        return {(int(match[1]), int(match[2])): path for match, path in found if match}

    def newest(self, clean: bool) -> dict[str, Any] | None:
        """
        # Parameters

        clean : `bool`
            Whether to remove what killed processes left.

        # Returns

        `dict[str, Any] | None`
            The newest checkpoint that is whole, on the CPU; `None` if there was never one.

        # Raises

        `ValueError`
            If there are checkpoints, but none can be read.
        """
        if not self.directory.is_dir():
            return None
        if clean:
            sweep(self.directory)
        unreadable = []
        for _, path in sorted(self._points().items(), reverse=True):
            try:
                state = torch.load(path, map_location="cpu", weights_only=True)
                if state["format"] != FORMAT:
                    raise ValueError(f"its format is {state['format']}, expected {FORMAT}")
            except UNREADABLE as error:
                unreadable.append(passed_over(path, error))
                continue
            logger.info("Recovering from %s", path)
            return state
        unreadable += map(str, self.directory.glob("training_state_*.th"))  # of version 0.2
        if unreadable:
            raise ValueError(NOTHING_TO_RECOVER + "; ".join(unreadable))
        return None

    def save_best(self, weights: dict[str, torch.Tensor]) -> None:
        """The best epoch's weights, under the names that an AllenNLP archive has."""
        save_atomically(weights, self.best)

    def load_best(self) -> dict[str, torch.Tensor]:
        """What `save_best` wrote, on the CPU."""
        return torch.load(self.best, map_location="cpu", weights_only=True)

    def write_figures(self, name: str, figures: dict[str, Any]) -> None:
        """JSON, in place of an older file of that name when it is whole."""
        with whole_file(self.directory / name) as aside:
            aside.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def points_to_keep(
    times: dict[Point, float], newest: Point, count: int | None, age: float | None
) -> set[Point]:
    """
    Of the checkpoints made at these times those that stay, see `CheckpointSettings`. What is newer
    than the newest was passed over: this run took its place.
    """
    older = sorted((point for point in times if point <= newest), reverse=True)
    keep = {newest, *(older if count is None and age is None else older[: count or 0])}
    if age is not None:
        keep.update(point for point in older if times[point] >= time.time() - age)
    return keep


def passed_over(path: Path, error: Exception) -> str:
    """Warns of a checkpoint that cannot be read, and gives its name and the reason."""
    reason = str(error).split("\n")[0] or type(error).__name__
    logger.warning("Passing over a checkpoint that cannot be read: %s: %s", path, reason)
    return f"{path}: {reason}"
