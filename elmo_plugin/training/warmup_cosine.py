"""A learning rate that rises, may stay, then falls along a cosine, by steps."""

import math
from typing import Any, Dict, List, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.training.learning_rate_schedulers import LearningRateScheduler


@LearningRateScheduler.register("warmup_cosine", exist_ok=True)
class WarmupCosine(LearningRateScheduler):
    """
    Rises linearly over `warmup_steps`, stays for `constant_steps`, then falls along half a cosine
    (Loshchilov and Hutter 2017) until the run's last step. AllenNLP's `cosine_with_warmup` counts
    epochs instead.

    With a constant part the length of a run need not be known when it starts (Hu et al. 2024,
    "MiniCPM", warmup-stable-decay): `num_epochs` and `constant_steps` may be others when a run goes
    on from a checkpoint, which holds the step alone.

    # Parameters

    optimizer : `torch.optim.Optimizer`
        Not in a config.
    num_epochs : `int`
        Not in a config.
    num_steps_per_epoch : `Optional[int]`
        Not in a config.
    warmup_steps : `int`
        Steps until the optimizer's own learning rate is reached.
    constant_steps : `int`, optional (default = `0`)
        Steps at that rate after them.
    final_fraction : `float`, optional (default = `0.01`)
        What is left of it at the end.
    last_epoch : `int`, optional (default = `-1`)
        As in AllenNLP's schedulers.

    # Raises

    `ConfigurationError`
        If the data loader does not know its length, or the run ends before the cosine begins.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        num_epochs: int,
        num_steps_per_epoch: Optional[int],
        warmup_steps: int,
        constant_steps: int = 0,
        final_fraction: float = 0.01,
        last_epoch: int = -1,
    ) -> None:
        if num_steps_per_epoch is None:
            raise ConfigurationError("warmup_cosine needs a data loader that knows its length")
        super().__init__(optimizer, last_epoch)
        self.warmup_steps = warmup_steps
        self.constant_steps = constant_steps
        self.total_steps = num_epochs * num_steps_per_epoch
        if constant_steps and warmup_steps + constant_steps >= self.total_steps:
            raise ConfigurationError(
                f"warmup_steps is {warmup_steps} and constant_steps {constant_steps}, expected "
                f"fewer together than the {self.total_steps} steps of the run"
            )
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
        step, falling_from = self.last_epoch, self.warmup_steps + self.constant_steps
        if step <= self.warmup_steps:
            factor = max(1, step) / max(1, self.warmup_steps)
        else:
            done = max(0, step - falling_from) / max(1, self.total_steps - falling_from)
            cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
            factor = self.final_fraction + (1 - self.final_fraction) * cosine
        return [rate * factor for rate in self.base_values]

    def state_dict(self) -> Dict[str, Any]:
        """The step: what the rate is there, the config says."""
        return {"last_epoch": self.last_epoch}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """
        # Parameters

        state_dict : `Dict[str, Any]`
            From `state_dict`; what else older checkpoints hold is passed over.
        """
        self.last_epoch = state_dict["last_epoch"]
