"""
Checkpoints that a kill, a full disk or Ctrl-C cannot spoil.

AllenNLP's own checkpointer writes in place, so that a kill while it writes leaves a torn file that
`--recover` refuses, and Ctrl-C in the first epoch leaves nothing.
"""

import logging
import re
import signal
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Tuple

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import SigTermReceived
from allennlp.training.checkpointer import Checkpointer
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer
from allennlp.training.trainer import Trainer, TrainerCheckpoint

from elmo_plugin.bilm.files.whole_file import sweep
from elmo_plugin.bilm.training.run_files import (
    NOTHING_TO_RECOVER,
    UNREADABLE,
    passed_over,
    points_to_keep,
)
from elmo_plugin.bilm.training.save_atomically import save_atomically
from elmo_plugin.bilm.training.stop_request import StopRequest

logger = logging.getLogger(__name__)

_FILE = re.compile(r"(?:model|training)_state_e(\d+)_b(\d+)((?:_w\d+)?)\.th")
# Our key in the training state: this checkpoint ends the best epoch so far.
_IS_BEST = "elmo_plugin_is_best"


@Checkpointer.register("default", exist_ok=True)
class AtomicCheckpointer(Checkpointer):
    """
    AllenNLP's checkpointer, made safe. Registered as "default", so it needs no key in a config.

    * Each file is written aside, flushed to disk and renamed.
    * A checkpoint is a pair, `model_state_*` and `training_state_*`. A pair counts only if both are
      whole: `--recover` takes the newest that is, and names each file that it passed over.
    * A pair is removed only when its successor is on disk.
    * After a `stop` request the next end of a batch or epoch saves and ends the run (`Interrupt`).
    * `best.th` is brought back where a kill fell between a checkpoint and the copy of its weights.

    # Parameters

    serialization_dir : `Union[str, os.PathLike]`
        The run's directory.
    save_completed_epochs : `bool`, optional (default = `True`)
        Save at the end of each epoch.
    save_every_num_seconds : `float`, optional (default = `None`)
        Save at the first end of a batch so many seconds after the last save.
    save_every_num_batches : `int`, optional (default = `None`)
        Save at the first end of a batch so many batches after the last save.
    keep_most_recent_by_count : `int`, optional (default = `2`)
        How many checkpoints stay on disk. With `keep_most_recent_by_age`, those stay that either
        keeps; with both `None`, all.
    keep_most_recent_by_age : `int`, optional (default = `None`)
        For how many seconds a checkpoint stays on disk.
    """

    stop = StopRequest()  # `Interrupt` puts one in its place that is entered

    @property
    def _directory(self) -> Path:
        return Path(self._serialization_dir)

    def maybe_save_checkpoint(
        self,
        trainer: Trainer,
        num_epochs_completed: int,
        num_batches_in_epoch_completed: int,
    ) -> bool:
        """
        Saves if a setting or `stop` asks for it, and tells whether it did. The trainer calls this
        after each batch and epoch.

        # Raises

        `KeyboardInterrupt` or `SigTermReceived`
            After saving, if `stop` was asked for.
        """
        if self.stop.number is None:
            return super().maybe_save_checkpoint(
                trainer, num_epochs_completed, num_batches_in_epoch_completed
            )
        saved = self._save(trainer)
        if saved is not None:
            # The trainer would write best.th next.
            self._bring_back_best(saved)
            if isinstance(trainer, GradientDescentTrainer):
                trainer._best_model_filename = saved.trainer_state["best_model_filename"]
        logger.warning(
            "Stopped after epoch %d, batch %d, and saved; continue with --recover",
            num_epochs_completed,
            num_batches_in_epoch_completed,
        )
        raise KeyboardInterrupt if self.stop.number == signal.SIGINT else SigTermReceived

    def save_checkpoint(self, trainer: Trainer) -> None:
        """
        Saves now.

        # Raises

        `OSError`
            If a file cannot be written, say on a full disk; earlier checkpoints are intact then.
        """
        self._save(trainer)

    def _save(self, trainer: Trainer) -> Optional[TrainerCheckpoint]:
        state = trainer.get_checkpoint_state()
        if state is None:
            # Another process writes. This one must still agree with it on when the next save is:
            # all of them meet to send their states.
            assert isinstance(trainer, GradientDescentTrainer)
            self._note_save(trainer._epochs_completed, trainer._batches_in_epoch_completed)
            return None
        training_state = state.trainer_state
        point = (training_state["epochs_completed"], training_state["batches_in_epoch_completed"])
        training_state[_IS_BEST] = (
            point[1] == 0
            and getattr(trainer, "_should_validate_this_epoch", True)
            and training_state.get("metric_tracker", {}).get("is_best_so_far", False)
        )
        # One left by a run that was given up would make a pair with the new model state.
        Path(self._training_state_path(*point)).unlink(missing_ok=True)
        save_atomically(state.model_state, self._model_state_path(*point))
        save_atomically(training_state, self._training_state_path(*point))

        self._note_save(*point)
        if self._is_primary:
            self._remove_all_but_recent(point)
        return state

    def _note_save(self, num_epochs: int, num_batches: int) -> None:
        self._last_save_time = time.time()
        self._last_save_num_epochs_completed = num_epochs
        self._last_save_num_batches_in_epoch_completed = num_batches

    def _points(self) -> Set[Tuple[int, int]]:
        # Every point in training of which this process has a file, whole or not.
        worker = f"_w{self._rank}" if self.state_is_sharded else ""
        matches = [_FILE.fullmatch(path.name) for path in self._directory.iterdir()]
        return {(int(m[1]), int(m[2])) for m in matches if m is not None and m[3] == worker}

    def _pair(self, point: Tuple[int, int]) -> Tuple[Path, Path]:
        return Path(self._model_state_path(*point)), Path(self._training_state_path(*point))

    def _find_all_checkpoints(self) -> Set[Tuple[int, int]]:
        return {p for p in self._points() if all(path.exists() for path in self._pair(p))}

    def _remove_checkpoint(self, epochs_completed: int, batches_in_epoch_completed: int) -> None:
        # The files of all workers, and only those of this point: b1 is not b10.
        for path in self._directory.iterdir():
            match = _FILE.fullmatch(path.name)
            if match and (int(match[1]), int(match[2])) == (
                epochs_completed,
                batches_in_epoch_completed,
            ):
                path.unlink(missing_ok=True)

    def _remove_all_but_recent(self, newest: Tuple[int, int]) -> None:
        times = {
            point: max(path.stat().st_mtime for path in self._pair(point))
            for point in self._find_all_checkpoints()
        }
        count, age = self._keep_most_recent_by_count, self._keep_most_recent_by_age
        for point in self._points() - points_to_keep(times, newest, count, age):
            self._remove_checkpoint(*point)

    def load_checkpoint(self) -> Optional[TrainerCheckpoint]:
        """
        Loads the newest whole checkpoint, on the CPU; `None` if none was ever completed.

        # Raises

        `ConfigurationError`
            If there are checkpoints, but none can be read.
        """
        if self._is_primary:
            sweep(self._directory)
            for leftover in self._directory.glob("*.th.tmp"):  # of version 0.2
                leftover.unlink(missing_ok=True)
        unreadable: List[str] = []
        for point in sorted(self._points(), reverse=True):
            model_path, training_path = self._pair(point)
            missing = [path for path in (model_path, training_path) if not path.exists()]
            if missing:
                logger.warning("Passing over a checkpoint that is half there: no %s", missing[0])
                continue
            states: List[Dict[str, Any]] = []
            path = model_path
            try:
                for path in (model_path, training_path):
                    states.append(torch.load(path, map_location="cpu", weights_only=True))
            except UNREADABLE as error:
                unreadable.append(passed_over(path, error))
                if self.state_is_sharded:
                    break  # the workers could not agree on an older one
                continue
            logger.info("Recovering from %s and %s", model_path, training_path)
            self._last_save_num_epochs_completed = point[0]
            self._last_save_num_batches_in_epoch_completed = point[1]
            checkpoint = TrainerCheckpoint(*states)
            best = checkpoint.trainer_state.get("best_model_filename")
            if best is not None:  # the directory may have been moved since
                best = str(self._directory / Path(best).name)
                checkpoint.trainer_state["best_model_filename"] = best
            if self._is_primary:
                self._bring_back_best(checkpoint)
            return checkpoint
        if unreadable:
            raise ConfigurationError(NOTHING_TO_RECOVER + "; ".join(unreadable))
        return None

    def _bring_back_best(self, checkpoint: TrainerCheckpoint) -> None:
        # The trainer writes best.th after the best epoch's checkpoint: a kill may fall between.
        model_state, training_state = checkpoint
        if self.state_is_sharded or not training_state.get(_IS_BEST):
            return
        averages = training_state.get("moving_average", {}).get("shadows", {})
        best = self._directory / "best.th"
        save_atomically({**model_state, **averages}, best)
        training_state["best_model_filename"] = str(best)
