"""Hand-written gradients that support double backward, and a linear layer in mixed precision."""

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

    # Parameters

    definition : `Definition | None`, optional (default = `None`)
        Differentiable forward pass. Without it, both raise a `RuntimeError`.
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


def weight_gradient(grad_products: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """
    Return the gradient of a weight `W`, shape `(output_dim, input_dim)`, from that of its products
    `rows W^T`, shape `(num_rows, output_dim)`.
    """
    if not len(rows):  # oneDNN refuses an empty matrix
        return rows.new_zeros(grad_products.shape[1], rows.shape[1])
    # oneDNN is many times slower if the second factor is a slice of a wider matrix.
    grad_products, rows = grad_products.contiguous(), rows.contiguous()
    # oneDNN copies the first factor, as it is a transposed view: pass the smaller matrix first.
    if grad_products.shape[1] > rows.shape[1]:
        return functional.linear(rows.t(), grad_products.t()).t()
    return functional.linear(grad_products.t(), rows.t())


def sigmoid_backward(gradient: torch.Tensor, gate: torch.Tensor, out: torch.Tensor) -> None:
    """Write `gradient * gate * (1 - gate)` into `out`, in one pass over memory."""
    torch.ops.aten.sigmoid_backward.grad_input(gradient, gate, grad_input=out)


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
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, result_dtype: torch.dtype
) -> torch.Tensor:
    """Return `rows W^T + bias` in `result_dtype`, for rows and a weight that were `rounded`."""
    if rows.dtype == result_dtype:
        return functional.linear(rows, weight, bias)
    products = functional.linear(rows, weight).to(result_dtype)
    return products if bias is None else products.add_(bias)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context manager that turns off autocast, so that products keep their dtype."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


class TrainingLinear(torch.autograd.Function):
    """`functional.linear` by PyTorch's operators, with products in `training_dtype`."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> torch.Tensor:
        """Return the outputs. Arguments: rows, weight, bias and `training_dtype`."""
        rows, weight, bias, training_dtype = arguments
        result_dtype = rows.dtype
        exact = rows, weight, bias
        # Contiguous, because oneDNN cannot read the token layer's windows, which overlap in memory.
        rows, weight = (rounded(one, training_dtype).contiguous() for one in (rows, weight))
        ctx.save_for_backward(*exact, rows, weight)
        return linear_of_rounded(rows, weight, bias, result_dtype)

    @staticmethod
    @hand_written(lambda ctx, saved: (functional.linear, saved[:3]))
    def backward(ctx: Any, grad_products: torch.Tensor) -> tuple[Any, ...]:
        """Return the gradients of rows, weight and bias."""
        *_, rows, weight = ctx.saved_tensors
        needs, dtype = ctx.needs_input_grad, grad_products.dtype
        grad_bias = grad_products.sum(dim=0) if needs[2] else None
        grad_products = grad_products.to(rows.dtype).contiguous()
        return (
            functional.linear(grad_products, weight.t()).to(dtype) if needs[0] else None,
            weight_gradient(grad_products, rows).to(dtype) if needs[1] else None,
            grad_bias,
            None,
        )
