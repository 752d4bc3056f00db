"""Ctrl-C and SIGTERM between batches, where model, optimizer and data agree."""

from contextlib import ExitStack
from typing import Any, Dict, Tuple

from allennlp.training.callbacks import TrainerCallback
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer

from elmo_plugin.bilm.training.stop_request import StopRequest
from elmo_plugin.bilm.training.watch import end_together
from elmo_plugin.training.checkpointer import AtomicCheckpointer


@TrainerCallback.register("interrupt", exist_ok=True)
class Interrupt(TrainerCallback):
    """
    Makes the first Ctrl-C or SIGTERM save a checkpoint at the end of the batch in hand and stop;
    the second stops at once. In a validation the checkpoint stands before it, and the recovered run
    validates anew. A default callback, so it needs no key in a config.

    Where nothing would be lost (the run is still skipping what a checkpoint holds) the first stops
    at once too. Distributed runs keep AllenNLP's behaviour: their processes need not see a signal
    at the same batch, so they continue from their last regular checkpoint.

    # Parameters

    serialization_dir : `str`
        The run's directory.
    """

    def __init__(self, serialization_dir: str) -> None:
        super().__init__(serialization_dir)
        self._entered = ExitStack()

    def on_start(self, trainer: GradientDescentTrainer, *args: Any, **kwargs: Any) -> None:
        """Takes over the signals."""
        self.trainer = trainer
        checkpointer = trainer._checkpointer
        if trainer._distributed:
            self._entered.enter_context(end_together())
        elif isinstance(checkpointer, AtomicCheckpointer):
            stop = StopRequest(act_at_once=lambda: is_skipping(trainer))
            checkpointer.stop = self._entered.enter_context(stop)
            self._stop_in_validation(trainer, checkpointer)

    def _stop_in_validation(
        self, trainer: GradientDescentTrainer, checkpointer: AtomicCheckpointer
    ) -> None:
        """
        Before its next batch. The checkpoint stands before the validation, and is saved when all
        that the validation put aside (averaged weights, say) is back in its place.
        """

        def stop(model: Any, inputs: Any) -> None:
            if checkpointer.stop.number is not None and not model.training:
                raise _Stopped

        trainer.model.register_forward_pre_hook(stop)
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
        """Gives the signals back."""
        self._entered.close()


class _Stopped(Exception):
    """A validation was stopped between two batches."""


def is_skipping(trainer: GradientDescentTrainer) -> bool:
    """
    Whether a recovered run is still passing over the batches that its checkpoint has seen; false
    from the first batch that is trained on.
    """
    done = (trainer._epochs_completed, trainer._batches_in_epoch_completed)
    start = (trainer._start_after_epochs_completed, trainer._start_after_batches_in_epoch_completed)
    return done < start
