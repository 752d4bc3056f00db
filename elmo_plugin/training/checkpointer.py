"""Checkpoints of task models that a kill, a full disk or Ctrl-C cannot damage."""

import logging
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Tuple

from allennlp.common.checks import ConfigurationError
from allennlp.training.checkpointer import Checkpointer
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer
from allennlp.training.trainer import Trainer, TrainerCheckpoint

from elmo_plugin.bilm.files.atomic_write import remove_temporary_files
from elmo_plugin.bilm.pretraining.checkpoints import (
    NOTHING_TO_RECOVER,
    UNREADABLE,
    load_checked,
    points_to_keep,
    save_atomically,
    warn_unreadable,
)
from elmo_plugin.bilm.pretraining.stop_request import StopRequest
from elmo_plugin.training.saved_interrupt import saved_interrupt

logger = logging.getLogger(__name__)

_FILE = re.compile(r"(?:model|training)_state_e(\d+)_b(\d+)((?:_w\d+)?)\.th")
# Key in the training state. Its value says whether the checkpoint is of the best epoch so far.
_IS_BEST = "elmo_plugin_is_best"


@Checkpointer.register("default", exist_ok=True)
class AtomicCheckpointer(Checkpointer):
    """
    AllenNLP's checkpointer with atomic writes: a kill leaves no truncated file. It is registered as
    "default", so every run uses it.

    * Each file is written to a temporary file, flushed to disk and renamed.
    * A checkpoint is a pair of files, `model_state_*` and `training_state_*`. `--recover` takes the
      newest pair whose checksums are right, and logs the files that it skipped.
    * A pair is removed only after a newer one is on disk.
    * After SIGINT or SIGTERM (see `ResumableTrainer`), the run ends the current batch, saves a
      checkpoint and stops.
    * `--recover` copies the best checkpoint to `best.th` if a kill came before that.

    The arguments are those of AllenNLP's `Checkpointer`.
    """

    stop = StopRequest()  # `ResumableTrainer` replaces it when training starts
    # Trainer state of the checkpoint that the run resumes from.
    loaded: Optional[Dict[str, Any]] = None

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
        Save a checkpoint if the settings or a signal ask for it, and return whether one was saved.
        The trainer calls this after each batch and epoch. After a signal, raise `KeyboardInterrupt`
        or `SigTermReceived`.
        """
        if self.stop.number is None:
            return super().maybe_save_checkpoint(
                trainer, num_epochs_completed, num_batches_in_epoch_completed
            )
        saved = self._save(trainer)
        if saved is not None:
            # The trainer would have written best.th next, but it stops here.
            self._restore_best(saved)
            if isinstance(trainer, GradientDescentTrainer):
                trainer._best_model_filename = saved.trainer_state["best_model_filename"]
        message = (
            f"Stopped after epoch {num_epochs_completed}, batch {num_batches_in_epoch_completed}, "
            "and saved; continue with --recover"
        )
        logger.warning(message)
        raise saved_interrupt(self.stop.number, message)

    def save_checkpoint(self, trainer: Trainer) -> None:
        """Save a checkpoint; if a file cannot be written, earlier ones stay intact."""
        self._save(trainer)

    def _save(self, trainer: Trainer) -> Optional[TrainerCheckpoint]:
        state = trainer.get_checkpoint_state()
        if state is None:
            # Another process writes the files. Record the save here too, because all processes must
            # make the next save at the same time: they then send their states to the writer.
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
        # After a kill between the two writes, an old training state must not pair with a new model.
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
        # Return the (epochs, batches) of this process's files; half a pair counts, to be removed.
        worker = f"_w{self._rank}" if self.state_is_sharded else ""
        matches = [_FILE.fullmatch(path.name) for path in self._directory.iterdir()]
        return {(int(m[1]), int(m[2])) for m in matches if m is not None and m[3] == worker}

    def _pair(self, point: Tuple[int, int]) -> Tuple[Path, Path]:
        return Path(self._model_state_path(*point)), Path(self._training_state_path(*point))

    def _find_all_checkpoints(self) -> Set[Tuple[int, int]]:
        return {p for p in self._points() if all(path.exists() for path in self._pair(p))}

    def _remove_checkpoint(self, epochs_completed: int, batches_in_epoch_completed: int) -> None:
        # Remove the files of all workers. Match whole names, as the prefix `b1` also matches `b10`.
        point = epochs_completed, batches_in_epoch_completed
        for path in self._directory.iterdir():
            match = _FILE.fullmatch(path.name)
            if match and (int(match[1]), int(match[2])) == point:
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
        Load the newest intact checkpoint to the CPU; return `None` if no checkpoint is complete.

        # Raises

        `ConfigurationError`
            If there are complete checkpoints, but none can be read. If `best.th` was removed, and
            the checkpoint of the best epoch, too.
        """
        if self._is_primary:
            remove_temporary_files(self._directory)
        unreadable: List[str] = []
        for point in sorted(self._points(), reverse=True):
            pair = self._pair(point)
            if missing := [path for path in pair if not path.exists()]:
                logger.warning("Skipping an incomplete checkpoint: there is no %s", missing[0])
                continue
            states: List[Dict[str, Any]] = []
            try:
                for path in pair:
                    states.append(load_checked(path))
            except UNREADABLE as error:
                unreadable.append(warn_unreadable(path, error))
                if self.state_is_sharded:
                    break  # an older one may not match that of other workers
                continue
            logger.info("Recovering from %s and %s", *pair)
            self._last_save_num_epochs_completed = point[0]
            self._last_save_num_batches_in_epoch_completed = point[1]
            checkpoint = TrainerCheckpoint(*states)
            if best := checkpoint.trainer_state.get("best_model_filename"):  # it may have moved
                best = str(self._directory / Path(best).name)
                checkpoint.trainer_state["best_model_filename"] = best
            if self._is_primary:
                self._restore_best(checkpoint)
                self._find_best(checkpoint.trainer_state)
            self.loaded = checkpoint.trainer_state
            return checkpoint
        if unreadable:
            raise ConfigurationError(NOTHING_TO_RECOVER + "; ".join(unreadable))
        return None

    def _restore_best(self, checkpoint: TrainerCheckpoint) -> None:
        # A kill may come between the best epoch's checkpoint and best.th, which is written next.
        model_state, training_state = checkpoint
        if self.state_is_sharded or not training_state.get(_IS_BEST):
            return
        averages = {
            # In distributed training they are named after the wrapped model.
            name if name in model_state else name.removeprefix("module."): average
            for name, average in training_state.get("moving_average", {}).get("shadows", {}).items()
        }
        best = self._directory / "best.th"
        save_atomically({**model_state, **averages}, best)
        training_state["best_model_filename"] = str(best)

    def _find_best(self, training_state: Dict[str, Any]) -> None:
        # Without best.th, training would go on, and end with an error.
        best = training_state.get("best_model_filename")
        if best is None or Path(best).exists():
            return
        epoch = training_state["metric_tracker"]["best_epoch"]
        paths = self._pair((epoch + 1, 0))
        with suppress(*UNREADABLE):
            self._restore_best(TrainerCheckpoint(*map(load_checked, paths)))
        if not Path(best).exists():
            raise ConfigurationError(
                f"there is no {best}, the weights of the best epoch, number {epoch}, and no "
                f"checkpoint of it ({paths[0].name}); expected one of them, or a new run"
            )
