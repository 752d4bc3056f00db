"""Ctrl-C and SIGTERM between batches, where model, optimizer and data agree."""

import logging
import os
import signal
import threading
from types import FrameType
from typing import Any, Dict, Optional, Tuple

from allennlp.training.callbacks import TrainerCallback
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer

from elmo_plugin.training.checkpointer import AtomicCheckpointer
from elmo_plugin.training.worker_process import end_with_the_run

logger = logging.getLogger(__name__)


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
        self._previous: Dict[int, Any] = {}
        self._process = os.getpid()

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        """
        Takes over the signals.

        # Parameters

        trainer : `GradientDescentTrainer`
            The trainer that starts.
        is_primary : `bool`, optional (default = `True`)
            Whether this process is the one that writes.
        """
        self.trainer = trainer
        if trainer._distributed:
            end_with_the_run(trainer._rank)
            return
        if (
            not isinstance(trainer._checkpointer, AtomicCheckpointer)
            or threading.current_thread() is not threading.main_thread()
        ):
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup, a shell's background job
                self._previous[number] = signal.signal(number, self._handle)
        self._stop_in_validation(trainer, trainer._checkpointer)

    def _stop_in_validation(
        self, trainer: GradientDescentTrainer, checkpointer: AtomicCheckpointer
    ) -> None:
        """
        Before its next batch. The checkpoint stands before the validation, and is saved when all
        that the validation put aside (averaged weights, say) is back in its place.
        """

        def stop(model: Any, inputs: Any) -> None:
            if checkpointer.stop_signal is not None and not model.training:
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

    def on_end(
        self,
        trainer: GradientDescentTrainer,
        metrics: Optional[Dict[str, Any]] = None,
        epoch: Optional[int] = None,
        is_primary: bool = True,
        **kwargs: Any,
    ) -> None:
        """
        Gives the signals back.

        # Parameters

        trainer : `GradientDescentTrainer`
            The trainer that ends.
        metrics : `Dict[str, Any]`, optional (default = `None`)
            Its metrics.
        epoch : `int`, optional (default = `None`)
            Its last epoch.
        is_primary : `bool`, optional (default = `True`)
            Whether this process is the one that writes.
        """
        self._give_back()

    def _give_back(self) -> None:
        while self._previous:
            signal.signal(*self._previous.popitem())

    def _handle(self, number: int, frame: Optional[FrameType]) -> None:
        if os.getpid() != self._process:
            # A data loader's worker, forked with this handler. Ctrl-C reaches it too, but the batch
            # in hand needs it; SIGTERM is how the loader ends it.
            if number == signal.SIGINT:
                return
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        assert self.trainer is not None
        checkpointer = self.trainer._checkpointer
        assert isinstance(checkpointer, AtomicCheckpointer)
        if checkpointer.stop_signal is not None or is_skipping(self.trainer):
            self._give_back()
            signal.raise_signal(number)
            return
        checkpointer.stop(number)
        logger.warning("Stopping when this batch is done and saved; once more to stop at once")


class _Stopped(Exception):
    """A validation was stopped between two batches."""


def is_skipping(trainer: GradientDescentTrainer) -> bool:
    """
    Whether a recovered run is still passing over the batches that its checkpoint has seen.

    # Parameters

    trainer : `GradientDescentTrainer`
        The trainer of the run.

    # Returns

    `bool`
        False from the first batch that is trained on.
    """
    done = (trainer._epochs_completed, trainer._batches_in_epoch_completed)
    start = (trainer._start_after_epochs_completed, trainer._start_after_batches_in_epoch_completed)
    return done < start
