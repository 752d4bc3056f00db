"""Trainer callback that gives a resumed run the data order and dropout of an uninterrupted run."""

from typing import Any, Dict, Optional, Tuple

import torch
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer

from elmo_plugin.training.interrupt import is_skipping
from elmo_plugin.training.process_state import ProcessState


@TrainerCallback.register("random_state", exist_ok=True)
class RandomState(ProcessState):
    """
    Trainer callback that makes a resumed run draw the same random numbers as an uninterrupted run.

    After `--recover`, AllenNLP reads the batches before the checkpoint again without training on
    them, so that Python's `random` shuffles as before. It does not read the validation batches
    again, although shuffling them advances the same generator. This callback reads them.

    AllenNLP does not restore PyTorch's generators either, which dropout uses. This callback saves
    them in each checkpoint and restores them before the first batch of training.

    It is active in every run, without a key in the config.
    """

    _hook: Optional[torch.utils.hooks.RemovableHandle] = None

    def own_state(self) -> Dict[str, Any]:
        """Return PyTorch's generator states: `torch` for the CPU, and a list `cuda` for GPUs."""
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return {"torch": torch.get_rng_state(), "cuda": cuda}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """
        Store the saved states; `on_start` restores them. An old checkpoint has only one state,
        which the first process gets.
        """
        super().load_state_dict(
            {"processes": [state_dict]} if "torch" in state_dict else state_dict
        )

    def on_start(self, trainer: GradientDescentTrainer, *args: Any, **kwargs: Any) -> None:
        """
        Restore the saved state. Patch the trainer to repeat the random draws of earlier
        validations, and to undo those of a validation that is stopped.
        """
        super().on_start(trainer, *args, **kwargs)
        if trainer._start_after_epochs_completed and trainer._validation_data_loader is not None:
            self._replay_validation_shuffling(trainer)
        self._undo_draws_of_stopped_validation(trainer)

    def on_end(self, *args: Any, **kwargs: Any) -> None:
        """Remove the model's hook if it is still there: a model with a hook cannot be pickled."""
        if self._hook is not None:
            self._hook.remove()

    def _replay_validation_shuffling(self, trainer: GradientDescentTrainer) -> None:
        train_epoch = trainer._train_epoch

        def train_epoch_then_iterate(epoch: int) -> Dict[str, float]:
            metrics = train_epoch(epoch)
            if trainer._epochs_completed < trainer._start_after_epochs_completed:
                assert trainer._validation_data_loader is not None
                for _ in trainer._validation_data_loader:
                    pass
            return metrics

        trainer._train_epoch = train_epoch_then_iterate  # type: ignore[method-assign]

    def _undo_draws_of_stopped_validation(self, trainer: GradientDescentTrainer) -> None:
        """Restore the generators when a validation is stopped, since the resumed run repeats it."""
        validation_loss = trainer._validation_loss

        def validation_loss_or_restore(epoch: int) -> Tuple[Any, ...]:
            before = self.own_state()
            try:
                return validation_loss(epoch)
            except BaseException:
                _set_generators(before)
                raise

        trainer._validation_loss = validation_loss_or_restore  # type: ignore[method-assign]

    def restore(self, state: Dict[str, Any]) -> None:
        """Set the generators to a result of `own_state` before the first batch of training."""
        trainer = self.trainer
        assert trainer is not None

        def set_generators(*_: Any) -> None:
            if not is_skipping(trainer):
                _set_generators(state)
                hook.remove()

        hook = self._hook = trainer.model.register_forward_pre_hook(set_generators)


def _set_generators(state: Dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
