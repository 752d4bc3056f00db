"""Products with weights that train, and their gradients."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.prepacked_linear import onednn_linear

# `rows W^T + bias` without a gradient: rows of shape `(num_rows, input_dim)`, a weight of shape
# `(output_dim, input_dim)`, which may be the transposed view of a matrix, a bias or None.
Matmul = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]

plain_matmul: Matmul = functional.linear
# PyTorch carries oneDNN but calls it for half precision only: on AMD processors it takes half the
# time of PyTorch's own choice for float32, MKL, or less; on Intel's a fifth more.
onednn_matmul: Matmul = onednn_linear


def weight_gradient(
    grad_products: torch.Tensor, rows: torch.Tensor, matmul: Matmul
) -> torch.Tensor:
    """
    # Parameters

    grad_products : `torch.Tensor`
        Shape `(num_rows, output_dim)`.
    rows : `torch.Tensor`
        Shape `(num_rows, input_dim)`.
    matmul : `Matmul`

    # Returns

    `torch.Tensor`
        Shape `(output_dim, input_dim)`.
    """
    if not len(rows):  # which oneDNN refuses
        return rows.new_zeros(grad_products.shape[1], rows.shape[1])
    # A part of a wider matrix as the second factor would be many times slower in oneDNN.
    grad_products, rows = grad_products.contiguous(), rows.contiguous()
    # It copies its first factor where that is a transposed view: the smaller one is to be that.
    if grad_products.shape[1] > rows.shape[1]:
        return matmul(rows.t(), grad_products.t(), None).t()
    return matmul(grad_products.t(), rows.t(), None)


def rounded(tensor: torch.Tensor, training_dtype: str | None) -> torch.Tensor:
    """The tensor in the type in which its products are taken; `None` for its own."""
    return tensor if training_dtype is None else tensor.to(getattr(torch, training_dtype))


def matmul_of_rounded(
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    result_dtype: torch.dtype,
    matmul: Matmul,
) -> torch.Tensor:
    """`matmul` of what `rounded` gave, in the result's type, which `bias` already has."""
    if rows.dtype == result_dtype:
        return matmul(rows, weight, bias)
    products = matmul(rows, weight, None).to(result_dtype)
    return products if bias is None else products.add_(bias)


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """
    PyTorch's `once_differentiable`, with autocast off: a `backward` that is called in its reach
    would otherwise get products of another type than its kernels write.
    """

    @torch.autograd.function.once_differentiable
    @functools.wraps(backward)
    def exact(ctx: Any, *gradients: torch.Tensor) -> Any:
        with torch.autocast(gradients[0].device.type, enabled=False):
            return backward(ctx, *gradients)

    return exact


class TrainingLinear(torch.autograd.Function):
    """`matmul` with gradients, what is multiplied rounded in both passes."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> torch.Tensor:
        """`rows`, `weight`, `bias`, `training_dtype`, `matmul`, see `chooser.training_linear`."""
        rows, weight, bias, training_dtype, matmul = arguments
        result_dtype = rows.dtype
        # Contiguous: windows over characters may overlap, which oneDNN does not take.
        rows, weight = (rounded(one, training_dtype).contiguous() for one in (rows, weight))
        ctx.save_for_backward(rows, weight)
        ctx.matmul = matmul
        return matmul_of_rounded(rows, weight, bias, result_dtype, matmul)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_products: torch.Tensor) -> tuple[Any, ...]:
        """Gradients of the first three."""
        rows, weight = ctx.saved_tensors
        needs, dtype = ctx.needs_input_grad, grad_products.dtype
        grad_bias = grad_products.sum(dim=0) if needs[2] else None
        grad_products = grad_products.to(rows.dtype).contiguous()
        return (
            ctx.matmul(grad_products, weight.t(), None).to(dtype) if needs[0] else None,
            weight_gradient(grad_products, rows, ctx.matmul).to(dtype) if needs[1] else None,
            grad_bias,
            None,
            None,
        )
