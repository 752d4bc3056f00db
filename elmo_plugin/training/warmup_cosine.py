"""A learning rate that rises, then falls along a cosine, by steps."""

import math
from typing import List, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.training.learning_rate_schedulers import LearningRateScheduler


@LearningRateScheduler.register("warmup_cosine", exist_ok=True)
class WarmupCosine(LearningRateScheduler):
    """
    Rises linearly over `warmup_steps`, then falls along half a cosine (Loshchilov and Hutter 2017)
    until the run's last step. AllenNLP's `cosine_with_warmup` counts epochs instead.

    # Parameters

    optimizer : `torch.optim.Optimizer`
        Not in a config.
    num_epochs : `int`
        Not in a config.
    num_steps_per_epoch : `Optional[int]`
        Not in a config.
    warmup_steps : `int`
        Steps until the optimizer's own learning rate is reached.
    final_fraction : `float`, optional (default = `0.01`)
        What is left of it at the end.
    last_epoch : `int`, optional (default = `-1`)
        As in AllenNLP's schedulers.

    # Raises

    `ConfigurationError`
        If the data loader does not know its length.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        num_epochs: int,
        num_steps_per_epoch: Optional[int],
        warmup_steps: int,
        final_fraction: float = 0.01,
        last_epoch: int = -1,
    ) -> None:
        if num_steps_per_epoch is None:
            raise ConfigurationError("warmup_cosine needs a data loader that knows its length")
        super().__init__(optimizer, last_epoch)
        self.warmup_steps = warmup_steps
        self.total_steps = num_epochs * num_steps_per_epoch
        self.final_fraction = final_fraction
        self.step_batch(0)

    def step(self, metric: Optional[float] = None) -> None:
        """Nothing: epochs do not count."""

    def step_batch(self, batch_num_total: Optional[int] = None) -> None:
        """
        # Parameters

        batch_num_total : `Optional[int]`
            The step that comes, from 1.
        """
        self.last_epoch = self.last_epoch + 1 if batch_num_total is None else batch_num_total
        for group, rate in zip(self.optimizer.param_groups, self.get_values()):
            group[self.param_group_field] = rate

    def get_values(self) -> List[float]:
        """
        # Returns

        `List[float]`
            One for each group of parameters.
        """
        step = self.last_epoch
        if step <= self.warmup_steps:
            factor = max(1, step) / max(1, self.warmup_steps)
        else:
            done = (step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps)
            cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
            factor = self.final_fraction + (1 - self.final_fraction) * cosine
        return [rate * factor for rate in self.base_values]
