"""Hand-written gradients that support double backward; mixed precision."""

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import torch_private

# Function that makes second derivatives possible. From `ctx` and its saved tensors, it returns a
# differentiable version of the forward pass, and the tensors to call it with. These tensors are the
# first arguments of `apply`.
Definition = Callable[
    [Any, Sequence[torch.Tensor]],
    tuple[Callable[..., torch.Tensor], Sequence[torch.Tensor | None]],
]


def hand_written(
    definition: Definition | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """
    Return a decorator for the hand-written `backward` of a `torch.autograd.Function`.

    `backward` runs without autocast, because its kernels rely on the tensors' dtypes. For double
    backward (`create_graph=True`) and for many gradients at once (`is_grads_batched=True`),
    autograd differentiates `definition` instead. PyTorch's `once_differentiable` is not enough: for
    a loss that is linear in the outputs, it loses the second derivative without an error.
    Without a definition, both raise a `RuntimeError`.
    """

    def decorate(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def run(ctx: Any, *gradients: torch.Tensor) -> Any:
            devices = [one.device.type for one in gradients if one is not None]
            with torch.autocast(devices[0] if devices else "cpu", enabled=False):
                if torch.is_grad_enabled() or not all(
                    one is None or torch_private.has_storage(one) for one in gradients
                ):
                    return _gradients_by_autograd(ctx, definition, gradients[0])
                return backward(ctx, *gradients)

        return run

    return decorate


def _gradients_by_autograd(
    ctx: Any, definition: Definition | None, gradient: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    if definition is None:
        name = type(ctx).__name__.removesuffix("Backward")
        raise RuntimeError(
            f"the gradient of {name} is written by hand and cannot be differentiated again, as "
            "create_graph=True asks for, nor take many gradients at once (is_grads_batched=True)"
        )
    creates_graph = torch.is_grad_enabled()
    function, arguments = definition(ctx, ctx.saved_tensors)
    # Use views, because an input may itself depend on a weight: this gradient excludes that path.
    with torch.enable_grad():
        views: list[Any] = [None if one is None else one.view_as(one) for one in arguments]
        outputs = function(*views)
    needed = [index for index in range(len(views)) if ctx.needs_input_grad[index]]
    found = torch.autograd.grad(
        outputs,
        [views[index] for index in needed],
        gradient,
        create_graph=creates_graph,
        allow_unused=True,
    )
    gradients: list[torch.Tensor | None] = [None] * len(ctx.needs_input_grad)
    for index, value in zip(needed, found):
        gradients[index] = value
    return tuple(gradients)


def rounded(tensor: torch.Tensor, training_dtype: str | None) -> torch.Tensor:
    """Convert a tensor to `training_dtype`; `None` leaves it unchanged."""
    return tensor if training_dtype is None else tensor.to(getattr(torch, training_dtype))


def stored_clip(clip: float | None, dtype: torch.dtype) -> float | None:
    """
    Return `clip` rounded as the clipped values are, in `dtype`. The backward pass compares both,
    and an unrounded clip would let the gradient of clipped values through.
    """
    return None if clip is None else torch.tensor(clip, dtype=dtype, device="cpu").item()


def linear_of_rounded(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, training_dtype: str | None
) -> torch.Tensor:
    """Return `rows W^T + bias` in the dtype of `rows`, with products in `training_dtype`."""
    # Contiguous, because oneDNN cannot read the token layer's windows, which overlap in memory.
    rows, dtype = rows.contiguous(), rows.dtype
    if training_dtype is None:
        return functional.linear(rows, weight, bias)
    products = functional.linear(rounded(rows, training_dtype), rounded(weight, training_dtype))
    return products.to(dtype) if bias is None else products.to(dtype) + bias


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context manager that turns off autocast, so that products keep their dtype."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()
