"""Optimizers, the learning rate schedule and gradient clipping."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from elmo_plugin.bilm.files.adagrad_state import INITIAL_ACCUMULATOR, restore_adagrad
from elmo_plugin.bilm.pretraining.vocabulary import check_fraction, check_least

# Optimizers by their names in configs, each with its default arguments.
OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adagrad": (torch.optim.Adagrad, {}),
    # Starts from a bilm-tf checkpoint's accumulators, written by `elmo-plugin convert-checkpoint`.
    "bilm_tf_adagrad": (
        torch.optim.Adagrad,
        {"lr": 0.2, "initial_accumulator_value": INITIAL_ACCUMULATOR},
    ),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
    # One kernel reads and writes each parameter once: several times faster for a large softmax.
    "fused_adamw": (torch.optim.AdamW, {"fused": True}),
    "sgd": (torch.optim.SGD, {}),
}


def make_optimizer(
    parameters: Iterable[tuple[str, torch.nn.Parameter]], settings: dict[str, Any]
) -> torch.optim.Optimizer:
    """
    Build an optimizer for named parameters from the config's `trainer.optimizer`.

    `settings` has the key `type`, one of `OPTIMIZERS`, and the arguments of that optimizer. The key
    `parameter_groups` holds pairs: a list of regular expressions, and the arguments for parameters
    whose names match one of them. `bilm_tf_adagrad` also needs `directory`, the folder with its
    saved state.
    """
    arguments = dict(settings)
    name = arguments.pop("type", "adam")
    if not isinstance(name, str) or name not in OPTIMIZERS:
        raise ValueError(f"optimizer.type is {name!r}, expected one of {sorted(OPTIMIZERS)}")
    parameters = list(parameters)
    directory = arguments.pop("directory", None) if name == "bilm_tf_adagrad" else None
    groups = _groups(parameters, arguments.pop("parameter_groups", None) or [])
    kind, more = OPTIMIZERS[name]
    try:
        # PyTorch does not check the arguments in parameter groups.
        for group in groups:
            small = {"params": [torch.nn.Parameter(torch.zeros(1))]}
            kind(**{**more, **arguments, **group, **small})
        optimizer = kind(groups, **{**more, **arguments})
    except (TypeError, IndexError, ValueError, RuntimeError) as error:
        raise ValueError(f"optimizer {name}: {error}") from error
    if name == "bilm_tf_adagrad":
        if directory is None:
            raise ValueError(f"optimizer {name}: the key 'directory' is missing")
        restore_adagrad(optimizer, parameters, directory)
    return optimizer


def check_takes_sparse(optimizer: torch.optim.Optimizer) -> None:
    """Raise a `ValueError` if the optimizer does not accept sparse gradients."""
    groups = optimizer.param_groups
    dense = [key for key in ("weight_decay", "fused") if any(group.get(key) for group in groups)]
    if dense or not isinstance(optimizer, (torch.optim.Adagrad, torch.optim.SGD)):
        raise ValueError(
            f"model.softmax.sparse with {type(optimizer).__name__}"
            f"{f' and {dense[0]}' if dense else ''}, expected adagrad or sgd without weight_decay "
            "and fused; without sparse every optimizer takes the gradients"
        )


def _groups(
    parameters: list[tuple[str, torch.nn.Parameter]], settings: Any
) -> list[dict[str, Any]]:
    """
    Return the optimizer's parameter groups. A parameter joins the first group with a matching
    regular expression; the others form the last group.
    """
    if not isinstance(settings, list):
        raise ValueError(f"parameter_groups is {settings!r}, expected a list")
    groups, rest = [], dict(parameters)
    for one in settings:
        match one:
            case [list() as regexes, dict() as arguments]:
                pass
            case _:
                raise ValueError(
                    f"parameter_groups has {one!r}, expected a list of regular expressions and "
                    "arguments"
                )
        try:
            own = [name for name in rest if any(re.search(regex, name) for regex in regexes)]
        except (re.error, TypeError) as error:
            raise ValueError(
                f"parameter_groups has {regexes}, expected regular expressions: {error}"
            ) from error
        if not own:
            raise ValueError(
                f"parameter_groups has {regexes}, expected a match in the name of a "
                "parameter that no earlier group has taken"
            )
        groups.append({"params": [rest.pop(name) for name in own], **arguments})
    return [*groups, *([{"params": list(rest.values())}] if rest else [])]


@dataclass(frozen=True)
class WarmupCosine:
    """
    Schedule of the learning rate: it rises linearly over `warmup_steps`, stays for
    `constant_steps`, then falls along half a cosine (Loshchilov and Hutter 2017).

    With a constant part, the length of a run need not be known when it starts (Hu et al. 2024,
    "MiniCPM", warmup-stable-decay).

    # Parameters

    warmup_steps : `int`
    constant_steps : `int`, optional (default = `0`)
    final_fraction : `float`, optional (default = `0.01`)
        Fraction of the learning rate at the run's last step.
    """

    warmup_steps: int
    constant_steps: int = 0
    final_fraction: float = 0.01

    def __post_init__(self) -> None:
        check_least(0, warmup_steps=self.warmup_steps, constant_steps=self.constant_steps)
        check_fraction("final_fraction", self.final_fraction)

    def factor(self, step: int, num_steps: int) -> float:
        """Return the factor on the learning rate in a step, which counts from 1 to `num_steps`."""
        if step <= self.warmup_steps:
            return max(1, step) / max(1, self.warmup_steps)
        constant = self.warmup_steps + self.constant_steps
        done = max(0, step - constant) / max(1, num_steps - constant)
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        return self.final_fraction + (1 - self.final_fraction) * cosine


def check_schedule(schedule: WarmupCosine | None, frozen_steps: int, num_steps: int) -> None:
    """
    Raise a `ValueError` if a run of `num_steps` would end while the biLM is frozen (in the first
    `frozen_steps`), in the schedule's warm-up, or in its constant part.
    """
    way_out = (
        f"the run has {num_steps} steps: expected fewer, or give more epochs, more text or a "
        "smaller batch_size"
    )
    if frozen_steps >= num_steps:
        raise ValueError(
            f"model.frozen_steps is {frozen_steps}, so the biLM would never be trained; {way_out}"
        )
    if schedule is not None and schedule.warmup_steps + schedule.constant_steps >= num_steps:
        raise ValueError(
            f"learning_rate_scheduler has {schedule.warmup_steps} warmup_steps and "
            f"{schedule.constant_steps} constant_steps, so the learning rate would never fall; "
            f"{way_out}"
        )


def clip_grad_norm(parameters: Iterable[torch.nn.Parameter], max_norm: float) -> torch.Tensor:
    """Clip gradients, dense or sparse, like `torch.nn.utils.clip_grad_norm_`; return their norm."""
    dense: list[torch.Tensor] = []
    for parameter in parameters:
        dense.append(parameter)
        if parameter.grad is not None and parameter.grad.is_sparse:
            # A row that was looked up twice has two entries, which must be summed first.
            parameter.grad = parameter.grad.coalesce()
            values = parameter.grad.values()
            dense[-1] = torch.empty_like(values)
            dense[-1].grad = values
    return torch.nn.utils.clip_grad_norm_(dense, max_norm)
