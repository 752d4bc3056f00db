"""A learning rate that falls by a factor after every so many steps."""

from typing import List, Optional

import torch
from allennlp.training.learning_rate_schedulers import LearningRateScheduler


@LearningRateScheduler.register("staircase_decay", exist_ok=True)
class StaircaseDecay(LearningRateScheduler):
    """
    The learning rate of step `n`, counted from 0, is the optimizer's times
    `decay_rate ** (n // decay_steps)`: TensorFlow's `exponential_decay` with `staircase=True`, as
    in e2e-coref (53c4116, experiments.conf). AllenNLP's `step` and `exponential` count epochs.

    Registered as a `LearningRateScheduler` with name "staircase_decay".

    # Parameters

    optimizer : `torch.optim.Optimizer`
        Not in a config.
    decay_rate : `float`, optional (default = `0.999`)
        What is left of the rate after `decay_steps` steps.
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
        """Nothing: epochs do not count."""

    def step_batch(self, batch_num_total: Optional[int] = None) -> None:
        """Before the step of this number, from 1, or the next one."""
        self._step = self._step + 1 if batch_num_total is None else batch_num_total
        for group, rate in zip(self.optimizer.param_groups, self.get_values()):
            group[self.param_group_field] = rate

    def get_values(self) -> List[float]:
        """One for each group of parameters."""
        factor = self.decay_rate ** (max(0, self._step - 1) // self.decay_steps)
        return [rate * factor for rate in self.base_values]
