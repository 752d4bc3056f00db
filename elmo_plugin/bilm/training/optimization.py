"""What a step does with its gradients: their norm, the optimizer, the learning rate by steps."""

import math
import re
from collections.abc import Iterable
from typing import Any

import torch

from elmo_plugin.bilm.files.adagrad_state import INITIAL_ACCUMULATOR, restore_adagrad

# What configs call them, and their arguments where a config gives no others.
OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adagrad": (torch.optim.Adagrad, {}),
    # From where a checkpoint of bilm-tf stopped, which `elmo-plugin convert-checkpoint` wrote.
    "bilm_tf_adagrad": (
        torch.optim.Adagrad,
        {"lr": 0.2, "initial_accumulator_value": INITIAL_ACCUMULATOR},
    ),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
    # One pass over each parameter: several times faster, which counts for a large softmax.
    "fused_adamw": (torch.optim.AdamW, {"fused": True}),
    "sgd": (torch.optim.SGD, {}),
}


def make_optimizer(
    parameters: Iterable[tuple[str, torch.nn.Parameter]], settings: dict[str, Any]
) -> torch.optim.Optimizer:
    """
    # Parameters

    parameters : `Iterable[tuple[str, torch.nn.Parameter]]`
        By name.
    settings : `dict[str, Any]`
        `type`, one of `OPTIMIZERS`; `parameter_groups`, pairs of a list of regular expressions and
        arguments for the parameters whose names one is found in; `directory` of
        `bilm_tf_adagrad`; the optimizer's own arguments.

    # Raises

    `ValueError`
        If it is another, or does not take an argument, or a group has no parameter; see
        `restore_adagrad` too.
    """
    arguments = dict(settings)
    name = arguments.pop("type", "adam")
    if name not in OPTIMIZERS:
        raise ValueError(f"optimizer.type is {name!r}, expected one of {sorted(OPTIMIZERS)}")
    parameters = list(parameters)
    directory = arguments.pop("directory", None) if name == "bilm_tf_adagrad" else None
    groups = _groups(parameters, arguments.pop("parameter_groups", None) or [])
    kind, more = OPTIMIZERS[name]
    try:
        optimizer = kind(groups, **{**more, **arguments})
    except TypeError as error:
        raise ValueError(f"optimizer {name}: {error}") from error
    # PyTorch keeps what it does not know.
    unknown = sorted({key for group in groups for key in group} - {"params", *optimizer.defaults})
    if unknown:
        raise ValueError(
            f"optimizer {name}: parameter_groups have {unknown}, expected of "
            f"{sorted(optimizer.defaults)}"
        )
    if name == "bilm_tf_adagrad":
        if directory is None:
            raise ValueError(f"optimizer {name}: the key 'directory' is missing")
        restore_adagrad(optimizer, parameters, directory)
    return optimizer


def check_takes_sparse(optimizer: torch.optim.Optimizer) -> None:
    """Raises a `ValueError` if a step with sparse gradients would fail."""
    dense = [
        key
        for group in optimizer.param_groups
        for key in ("weight_decay", "fused")
        if group.get(key)
    ]
    if dense or not isinstance(optimizer, (torch.optim.Adagrad, torch.optim.SGD)):
        raise ValueError(
            f"model.softmax.sparse with {type(optimizer).__name__}"
            f"{f' and {dense[0]}' if dense else ''}, expected adagrad or sgd without weight_decay "
            "and fused; without sparse every optimizer takes the gradients"
        )


def _groups(
    parameters: list[tuple[str, torch.nn.Parameter]], settings: list[Any]
) -> list[dict[str, Any]]:
    """Each parameter in the first group that names it; a last one takes the rest."""
    groups: list[tuple[list[str], dict[str, Any]]] = []
    for one in settings:
        match one:
            case [list() as regexes, dict() as more]:
                groups.append((regexes, {"params": [], **more}))
            case _:
                raise ValueError(
                    f"parameter_groups has {one!r}, expected a list of regular expressions and "
                    "arguments"
                )
    rest: dict[str, Any] = {"params": []}
    try:
        for name, parameter in parameters:
            own = (group for regexes, group in groups if any(re.search(r, name) for r in regexes))
            next(own, rest)["params"].append(parameter)
    except (re.error, TypeError) as error:
        raise ValueError(
            f"parameter_groups has {[regexes for regexes, _ in groups]}, expected regular "
            f"expressions: {error}"
        ) from error
    for regexes, group in groups:
        if not group["params"]:
            raise ValueError(
                f"parameter_groups has {regexes}, expected what is found in the name of a "
                "parameter that no group before it has taken"
            )
    return [*(group for _, group in groups), *([rest] if rest["params"] else [])]


def rate_factor(settings: dict[str, Any] | None, step: int, num_steps: int) -> float:
    """
    What the learning rate is multiplied with.

    `warmup_cosine` rises linearly over `warmup_steps`, stays for `constant_steps`, then falls along
    half a cosine (Loshchilov and Hutter 2017) to `final_fraction` at the run's last step. With a
    constant part the length of a run need not be known when it starts (Hu et al. 2024, "MiniCPM",
    warmup-stable-decay).

    # Parameters

    settings : `dict[str, Any] | None`
        `type: warmup_cosine`, `warmup_steps`, `constant_steps` (default = `0`), `final_fraction`
        (default = `0.01`); `None` for a rate that stays.
    step : `int`
        The step that comes, from 1.
    num_steps : `int`
        Of the whole run.

    # Raises

    `ValueError`
        If it is another schedule, or the run ends in its constant part.
    """
    if settings is None:
        return 1.0
    arguments = {"constant_steps": 0, "final_fraction": 0.01, **settings}
    name = arguments.pop("type", None)
    names = {"warmup_steps", "constant_steps", "final_fraction"}
    if name != "warmup_cosine" or arguments.keys() != names:
        raise ValueError(
            f"learning_rate_scheduler is {settings}, expected type 'warmup_cosine' with "
            f"{sorted(names)}"
        )
    warmup, constant = arguments["warmup_steps"], arguments["constant_steps"]
    if constant and warmup + constant >= num_steps:
        raise ValueError(
            f"warmup_steps is {warmup} and constant_steps {constant}, expected fewer together than "
            f"the {num_steps} steps of the run"
        )
    if step <= warmup:
        return max(1, step) / max(1, warmup)
    done = max(0, step - warmup - constant) / max(1, num_steps - warmup - constant)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    final = float(arguments["final_fraction"])
    return final + (1 - final) * cosine


def clip_grad_norm(parameters: Iterable[torch.nn.Parameter], max_norm: float) -> torch.Tensor:
    """
    `torch.nn.utils.clip_grad_norm_`, for sparse gradients too.

    # Parameters

    parameters : `Iterable[torch.nn.Parameter]`
    max_norm : `float`
        Largest norm of all gradients together.

    # Returns

    `torch.Tensor`
        The norm before.
    """
    parameters = list(parameters)
    if not any(p.grad is not None and p.grad.is_sparse for p in parameters):
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    gradients: list[torch.Tensor] = []
    for parameter in parameters:
        if parameter.grad is not None:
            if parameter.grad.is_sparse:
                # A row that was looked up twice has two entries until they are summed.
                parameter.grad = parameter.grad.coalesce()
                gradients.append(parameter.grad.values())
            else:
                gradients.append(parameter.grad)
    norms = [torch.linalg.vector_norm(gradient) for gradient in gradients]
    norm = torch.linalg.vector_norm(torch.stack([n.to(norms[0].device) for n in norms]))
    # As in torch.nn.utils.clip_grad_norm_.
    scale = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for gradient in gradients:
        gradient.detach().mul_(scale.to(gradient.device))
    return norm
