"""Data order and dropout after --recover as if the run had never stopped."""

from typing import Any, Dict, Tuple

import torch
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer

from elmo_plugin.training.interrupt import is_skipping
from elmo_plugin.training.process_state import ProcessState


@TrainerCallback.register("random_state", exist_ok=True)
class RandomState(ProcessState):
    """
    Makes a recovered run draw the random numbers that it would have drawn. A default callback, so
    it needs no key in a config.

    After --recover AllenNLP passes over the training batches that were seen before, which replays
    their shuffling (Python's `random`), but not that of the validation data, so that later epochs
    are shuffled differently, and not the dropout. Here the validation batches are passed over too,
    and PyTorch's generators are saved with each checkpoint and set at the first batch that is
    trained on.

    # Parameters

    serialization_dir : `str`
        The run's directory.
    """

    def own_state(self) -> Dict[str, Any]:
        """The generators' states as tensors."""
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return {"torch": torch.get_rng_state(), "cuda": cuda}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """What `state_dict` gave, or one process's state alone, as earlier versions kept it."""
        super().load_state_dict(
            {"processes": [state_dict]} if "torch" in state_dict else state_dict
        )

    def on_start(self, trainer: GradientDescentTrainer, *args: Any, **kwargs: Any) -> None:
        """See `ProcessState`."""
        super().on_start(trainer, *args, **kwargs)
        if trainer._start_after_epochs_completed and trainer._validation_data_loader is not None:
            self._pass_over_validation(trainer)
        self._keep_where_validation_stops(trainer)

    def _pass_over_validation(self, trainer: GradientDescentTrainer) -> None:
        train_epoch = trainer._train_epoch

        def train_epoch_then_pass_over(epoch: int) -> Dict[str, float]:
            metrics = train_epoch(epoch)
            if trainer._epochs_completed < trainer._start_after_epochs_completed:
                assert trainer._validation_data_loader is not None
                for _ in trainer._validation_data_loader:
                    pass
            return metrics

        trainer._train_epoch = train_epoch_then_pass_over  # type: ignore[method-assign]

    def _keep_where_validation_stops(self, trainer: GradientDescentTrainer) -> None:
        """One that is stopped is run again from its beginning."""
        validation_loss = trainer._validation_loss

        def validation_loss_or_as_before(epoch: int) -> Tuple[Any, ...]:
            before = self.own_state()
            try:
                return validation_loss(epoch)
            except BaseException:
                _set_generators(before)
                raise

        trainer._validation_loss = validation_loss_or_as_before  # type: ignore[method-assign]

    def restore(self, state: Dict[str, Any]) -> None:
        """Sets the generators at the first batch that is not passed over."""
        trainer = self.trainer
        assert trainer is not None

        def set_generators(*_: Any) -> None:
            if not is_skipping(trainer):
                _set_generators(state)
                hook.remove()

        hook = trainer.model.register_forward_pre_hook(set_generators)


def _set_generators(state: Dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
