"""Data order and dropout after --recover as if the run had never stopped."""

from typing import Any, Dict

import torch
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer

from elmo_plugin.training.interrupt import is_skipping


@TrainerCallback.register("random_state", exist_ok=True)
class RandomState(TrainerCallback):
    """
    Makes a recovered run draw the random numbers that it would have drawn. A default callback, so
    it needs no key in a config.

    After --recover AllenNLP passes over the training batches that were seen before, which replays
    their shuffling (Python's `random`), but not that of the validation data, so that later epochs
    are shuffled differently, and not the dropout. Here the validation batches are passed over too,
    and PyTorch's generators are saved with each checkpoint and set at the first batch that is
    trained on; not so in distributed runs, as the state of the first process only is saved.

    # Parameters

    serialization_dir : `str`
        The run's directory.
    """

    def __init__(self, serialization_dir: str) -> None:
        super().__init__(serialization_dir)
        self._saved: Dict[str, Any] = {}

    def state_dict(self) -> Dict[str, Any]:
        """
        # Returns

        `Dict[str, Any]`
            The generators' states as tensors: `torch.load` refuses other forms.
        """
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return {"torch": torch.get_rng_state(), "cuda": cuda}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """
        # Parameters

        state_dict : `Dict[str, Any]`
            What `state_dict` gave; a run that was saved without this callback gives others.
        """
        self._saved = state_dict if "torch" in state_dict else {}

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        """
        Waits for the first batch that is trained on.

        # Parameters

        trainer : `GradientDescentTrainer`
            The trainer that starts.
        is_primary : `bool`, optional (default = `True`)
            Whether this process is the one that writes.
        """
        if trainer._start_after_epochs_completed and trainer._validation_data_loader is not None:
            self._pass_over_validation(trainer)
        if self._saved and not trainer._distributed:
            self._set_generators(trainer)

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

    def _set_generators(self, trainer: GradientDescentTrainer) -> None:
        def set_generators(*_: Any) -> None:
            if is_skipping(trainer):
                return
            torch.set_rng_state(self._saved["torch"])
            if len(self._saved["cuda"]) == torch.cuda.device_count():
                torch.cuda.set_rng_state_all(self._saved["cuda"])
            hook.remove()

        hook = trainer.model.register_forward_pre_hook(set_generators)
