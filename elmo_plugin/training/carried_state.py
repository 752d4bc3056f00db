"""The LSTM state that a task model's biLM carries from batch to batch, in a run."""

from typing import Any, Dict, List, Optional, Tuple

import torch
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.gradient_descent_trainer import GradientDescentTrainer

from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.training.process_state import ProcessState

# Both directions' hidden states and memory cells.
Rows = List[List[torch.Tensor]]


@TrainerCallback.register("carried_state", exist_ok=True)
class CarriedState(ProcessState):
    """
    Keeps the state of every biLM with `state: "carry"` in each checkpoint, so that a run that goes
    on does so as if it had not stopped. It is not in the state dict, which an archive is made of.

    Validation starts from zero, as `allennlp evaluate` does, so that both give one figure for one
    model; training goes on with the state it had before. AllenNLP's own ELMo takes training's state
    into validation and back.

    A default callback, so it needs no key in a config.

    # Parameters

    serialization_dir : `str`
        The run's directory.
    """

    def own_state(self) -> Dict[str, Any]:
        """For the name of each module that carries a state its tensors; see `carried_state`."""
        return {name: carried_state(bilm) for name, bilm in self._carriers().items()}

    def restore(self, state: Dict[str, Any]) -> None:
        """See `ProcessState`."""
        for name, bilm in self._carriers().items():
            set_carried_state(bilm, state.get(name))

    def on_start(self, trainer: GradientDescentTrainer, *args: Any, **kwargs: Any) -> None:
        """See `ProcessState`."""
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
        """Whatever the model is used for next (`evaluate_on_test`) starts from zero too."""
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
    Forward, then backward: hidden states and memory cells on the CPU, as many rows as were ever in
    one batch; `None` before the first batch.
    """
    if bilm.carried is None:
        return None
    # Clones: the biLM may write into its own.
    return [[tensor.detach().cpu().clone() for tensor in state] for state in bilm.carried]


def set_carried_state(bilm: BiLm, rows: Optional[Rows]) -> None:
    """What `carried_state` gave; `None` to start from zero."""
    if rows is None:
        bilm.carried = None
    else:
        forward, backward = (LstmState(*(t.to(bilm.device) for t in pair)) for pair in rows)
        bilm.carried = (forward, backward)
