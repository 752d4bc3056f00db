"""Learning rate scheduler with staircase exponential decay over training steps."""

from typing import List, Optional

import torch
from allennlp.training.learning_rate_schedulers import LearningRateScheduler


@LearningRateScheduler.register("staircase_decay", exist_ok=True)
class StaircaseDecay(LearningRateScheduler):
    """
    Learning rate scheduler that multiplies the optimizer's rate by `decay_rate ** (n //
    decay_steps)` at step `n`, counted from 0. This is TensorFlow's `exponential_decay` with
    `staircase=True`, which e2e-coref uses (53c4116, experiments.conf). AllenNLP's schedulers `step`
    and `exponential` count epochs instead.

    # Parameters

    optimizer : `torch.optim.Optimizer`
        The trainer passes it; a config does not name it.
    decay_rate : `float`, optional (default = `0.999`)
        Factor by which the rate is multiplied after every `decay_steps` steps.
    decay_steps : `int`, optional (default = `100`)
    last_epoch : `int`, optional (default = `-1`)
        As in AllenNLP's schedulers.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        decay_rate: float = 0.999,
        decay_steps: int = 100,
        last_epoch: int = -1,
    ) -> None:
        super().__init__(optimizer, last_epoch)
        self.decay_rate = decay_rate
        self.decay_steps = decay_steps
        self._step = 0

    def step(self, metric: Optional[float] = None) -> None:
        """Do nothing: the rate does not depend on epochs."""

    def step_batch(self, batch_num_total: Optional[int] = None) -> None:
        """Set the learning rate of step `batch_num_total` (from 1); by default the next step."""
        self._step = self._step + 1 if batch_num_total is None else batch_num_total
        for group, rate in zip(self.optimizer.param_groups, self.get_values()):
            group[self.param_group_field] = rate

    def get_values(self) -> List[float]:
        """Return the learning rate of each parameter group at the current step."""
        factor = self.decay_rate ** (max(0, self._step - 1) // self.decay_steps)
        return [rate * factor for rate in self.base_values]
