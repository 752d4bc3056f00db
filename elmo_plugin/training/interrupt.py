"""Ctrl-C, SIGTERM and SIGUSR1 during training: save a checkpoint after the batch, then stop."""

import atexit
from contextlib import ExitStack
from typing import Any, Dict, Tuple

import torch.distributed as dist
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer

from elmo_plugin.bilm.training.stop_request import StopRequest
from elmo_plugin.training.checkpointer import AtomicCheckpointer


@TrainerCallback.register("interrupt", exist_ok=True)
class Interrupt(TrainerCallback):
    """
    Trainer callback that, at the first Ctrl-C, SIGTERM or SIGUSR1, saves a checkpoint after the
    current batch and stops the run.

    A second signal stops the run at once. So does the first signal while a resumed run is still
    skipping batches, because nothing is lost. A signal during a validation ends the validation. The
    checkpoint then has the state before the validation, which the resumed run repeats.

    Distributed runs handle signals as AllenNLP does, because their processes may receive a signal
    at different batches. Such a run resumes from its last regular checkpoint.

    It is active in every run, without a key in the config.
    """

    def on_start(self, trainer: GradientDescentTrainer, *args: Any, **kwargs: Any) -> None:
        """Install the signal handlers."""
        self.trainer = trainer
        self._entered = ExitStack()
        checkpointer = trainer._checkpointer
        if trainer._distributed:
            atexit.register(leave_process_group)
        elif isinstance(checkpointer, AtomicCheckpointer):
            stop = StopRequest(act_at_once=lambda: is_skipping(trainer))
            checkpointer.stop = self._entered.enter_context(stop)
            self._stop_in_validation(trainer, checkpointer)

    def _stop_in_validation(
        self, trainer: GradientDescentTrainer, checkpointer: AtomicCheckpointer
    ) -> None:
        """
        Patch the trainer to end a validation before its next batch after a signal. The checkpoint
        is saved after the validation, during which moving averages replace the weights.
        """

        def stop(model: Any, inputs: Any) -> None:
            if checkpointer.stop.number is not None and not model.training:
                raise _Stopped

        # Remove the hook at the end: a model cannot be pickled if a hook is a local function.
        self._entered.callback(trainer.model.register_forward_pre_hook(stop).remove)
        try_train = trainer._try_train

        def try_train_or_save() -> Tuple[Dict[str, Any], int]:
            try:
                return try_train()
            except _Stopped:
                checkpointer.maybe_save_checkpoint(
                    trainer, trainer._epochs_completed, trainer._batches_in_epoch_completed
                )
                raise AssertionError("a stop saves and raises") from None

        trainer._try_train = try_train_or_save  # type: ignore[method-assign]

    def on_end(self, *args: Any, **kwargs: Any) -> None:
        """Restore the signal handlers."""
        self._entered.close()


class _Stopped(Exception):
    """Exception that ends a validation between two batches."""


def is_skipping(trainer: GradientDescentTrainer) -> bool:
    """Return whether a resumed run is still skipping the batches before its checkpoint."""
    done = (trainer._epochs_completed, trainer._batches_in_epoch_completed)
    start = (trainer._start_after_epochs_completed, trainer._start_after_batches_in_epoch_completed)
    return done < start


def leave_process_group() -> None:
    """Destroy the gloo process group, whose threads must end before the interpreter does."""
    if dist.is_initialized() and dist.get_backend() == "gloo":
        dist.destroy_process_group()
