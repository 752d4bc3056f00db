"""Trainer callback that saves the LSTM state that a task model's biLM carries across batches."""

from typing import Any, Dict, List, Optional, Tuple

import torch
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer

from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.training.process_state import ProcessState

# Forward and backward direction, each as `[hidden states, cell states]`.
Rows = List[List[torch.Tensor]]


@TrainerCallback.register("carried_state", exist_ok=True)
class CarriedState(ProcessState):
    """
    Trainer callback that saves the LSTM state of every biLM with `state: "carry"` in each
    checkpoint, and restores it in a resumed run. Archives lack the state, because it is not in the
    state dict.

    Validation starts from a zero state, so that it gives the same result as `allennlp evaluate`.
    Training then continues from the state that it had before the validation. In AllenNLP's own
    ELMo, validation and training continue from each other's last state.

    It is active in every run, without a key in the config.
    """

    def own_state(self) -> Dict[str, Any]:
        """Return a dictionary from each biLM's module name to its result of `carried_state`."""
        return {name: carried_state(bilm) for name, bilm in self._carriers().items()}

    def restore(self, state: Dict[str, Any]) -> None:
        """Set each biLM's state to its entry in a result of `own_state`, or to zero without one."""
        for name, bilm in self._carriers().items():
            set_carried_state(bilm, state.get(name))

    def on_start(self, trainer: GradientDescentTrainer, *args: Any, **kwargs: Any) -> None:
        """Restore the saved state, and make every validation start from a zero state."""
        super().on_start(trainer, *args, **kwargs)
        validation_loss = trainer._validation_loss

        def validation_loss_from_zero(epoch: int) -> Tuple[Any, ...]:
            training = self.own_state()
            self.restore({})
            try:
                return validation_loss(epoch)
            finally:
                self.restore(training)

        trainer._validation_loss = validation_loss_from_zero  # type: ignore[method-assign]

    def on_end(self, *args: Any, **kwargs: Any) -> None:
        """Set the states to zero, so that an evaluation after training starts from zero too."""
        self.restore({})

    def _carriers(self) -> Dict[str, BiLm]:
        assert self.trainer is not None
        modules = self.trainer.model.named_modules()
        return {
            name: module
            for name, module in modules
            if isinstance(module, BiLm) and module.state == "carry"
        }


def carried_state(bilm: BiLm) -> Optional[Rows]:
    """
    Return a CPU copy of a biLM's carried state, as `[forward, backward]`, each `[hidden, cell]`; or
    `None` before the first batch. The batch dimension is the largest batch size so far.
    """
    if bilm.carried is None:
        return None
    # Copies, because the biLM may change its tensors in place.
    return [[tensor.detach().cpu().clone() for tensor in state] for state in bilm.carried]


def set_carried_state(bilm: BiLm, rows: Optional[Rows]) -> None:
    """Restore the LSTM state that `carried_state` returned; `None` resets it to zero."""
    if rows is None:
        bilm.carried = None
    else:
        forward, backward = (LstmState(*(t.to(bilm.device) for t in pair)) for pair in rows)
        bilm.carried = (forward, backward)
