"""Products with weights that train, and their gradients."""

from typing import Any, Optional

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.prepacked_linear import onednn_works

TRAINING_DTYPES = ("bfloat16",)


def product(
    rows: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor] = None
) -> torch.Tensor:
    """
    `rows W^T + bias`, without a gradient. In float32 on a CPU by oneDNN, which PyTorch carries but
    calls for half precision only: on AMD processors it takes half the time of PyTorch's own choice,
    MKL, or less.

    # Parameters

    rows : `torch.Tensor`
        Shape `(num_rows, input_dim)`.
    weight : `torch.Tensor`
        Shape `(output_dim, input_dim)`; the transposed view of a matrix is as good.
    bias : `Optional[torch.Tensor]`, optional (default = `None`)
        Shape `(output_dim,)`.

    # Returns

    `torch.Tensor`
        Shape `(num_rows, output_dim)`.
    """
    on_cpu = rows.device.type == "cpu" and rows.dtype == torch.float32
    if on_cpu and onednn_works("float32"):
        return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return functional.linear(rows, weight, bias)


def weight_gradient(gradient: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """
    # Parameters

    gradient : `torch.Tensor`
        Of the products, shape `(num_rows, output_dim)`.
    rows : `torch.Tensor`
        Shape `(num_rows, input_dim)`.

    # Returns

    `torch.Tensor`
        Shape `(output_dim, input_dim)`.
    """
    # A part of a wider matrix as the second factor would be many times slower in oneDNN.
    gradient, rows = gradient.contiguous(), rows.contiguous()
    # It copies its first factor where that is a transposed view: the smaller one is to be that.
    if gradient.shape[1] > rows.shape[1]:
        return product(rows.t(), gradient.t()).t()
    return product(gradient.t(), rows.t())


def rounded(tensor: torch.Tensor, dtype: Optional[str]) -> torch.Tensor:
    """The tensor in the type that its products are taken in; `None` for its own."""
    return tensor if dtype is None else tensor.to(getattr(torch, dtype))


def product_of_rounded(
    rows: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor], kind: torch.dtype
) -> torch.Tensor:
    """`product` of what `rounded` gave, in the type `kind`, which `bias` already has."""
    if rows.dtype == kind:
        return product(rows, weight, bias)
    products = product(rows, weight).to(kind)
    return products if bias is None else products.add_(bias)


class _TrainedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> torch.Tensor:
        rows, weight, bias, dtype = arguments
        kind = rows.dtype
        # Contiguous: windows over characters may overlap, which oneDNN does not take.
        rows, weight = rounded(rows, dtype).contiguous(), rounded(weight, dtype).contiguous()
        ctx.save_for_backward(rows, weight)
        return product_of_rounded(rows, weight, bias, kind)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        rows, weight = ctx.saved_tensors
        needs = ctx.needs_input_grad
        kind = gradient.dtype
        for_bias = gradient.sum(dim=0) if needs[2] else None
        gradient = gradient.to(rows.dtype).contiguous()
        return (
            product(gradient, weight.t()).to(kind) if needs[0] else None,
            weight_gradient(gradient, rows).to(kind) if needs[1] else None,
            for_bias,
            None,
        )


def trained_linear(
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor] = None,
    dtype: Optional[str] = None,
) -> torch.Tensor:
    """
    `product` with gradients.

    # Parameters

    rows, weight, bias
        As for `product`.
    dtype : `Optional[str]`, optional (default = `None`)
        `"bfloat16"` rounds what is multiplied, in both passes; sums, bias and result keep the
        weight's type. `None` for exact products, or what autocast says (the trainer's `use_amp`).

    # Returns

    `torch.Tensor`
        Shape `(num_rows, output_dim)`.
    """
    device = rows.device.type
    if dtype is None and torch.is_autocast_enabled(device):
        dtype = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    with torch.autocast(device, enabled=False):
        return _TrainedLinear.apply(rows.to(weight.dtype), weight, bias, dtype)
