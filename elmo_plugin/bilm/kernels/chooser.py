"""
Which kernel runs. The only file that looks at a device, a precision, or at what a processor can do;
what it chooses changes how fast a number comes, not which.
"""

from collections.abc import Sequence

import torch

from elmo_plugin.bilm.kernels import int8, lstm_gpu, prepacked_linear, tuning
from elmo_plugin.bilm.kernels.interface import LstmWeights
from elmo_plugin.bilm.kernels.lstm_inference import FrozenLstm, PlainLstm
from elmo_plugin.bilm.kernels.lstm_training import PlainTrainingSteps, TrainingSteps
from elmo_plugin.bilm.kernels.prepacked_linear import LinearKernel
from elmo_plugin.bilm.kernels.training_linear import (
    Matmul,
    TrainingLinear,
    onednn_matmul,
    plain_matmul,
)
from elmo_plugin.bilm.kernels.training_linear import weight_gradient as _weight_gradient


def wants_gradient(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether autograd is to follow what is computed of these."""
    return torch.is_grad_enabled() and any(one.requires_grad for one in tensors)


# --- products with a frozen weight ---------------------------------------------------------------


def linear_kernel(
    weight: torch.Tensor, dtype: str | None = None, many_rows: bool = False, precise: bool = False
) -> LinearKernel:
    """
    The fastest linear kernel that works here.

    # Parameters

    weight : `torch.Tensor`
        Shape `(output_dim, input_dim)`.
    dtype : `str | None`, optional (default = `None`)
        See `Precision`.
    many_rows : `bool`, optional (default = `False`)
        Whether it is usually called with dozens of rows or more. Then a large weight is not copied
        where it can be used as it lies.
    precise : `bool`, optional (default = `False`)
        Whether 8-bit integers are too few here: bfloat16 in their place.
    """
    weight = weight.detach()
    on_cpu = weight.device.type == "cpu"
    if dtype == "int8" and not precise:
        return prepacked_linear.Int8Linear(weight, *int8_kernels(weight))
    if dtype is not None:
        if on_cpu and prepacked_linear.onednn_works("bfloat16"):
            return prepacked_linear.PrepackedBFloat16Linear(weight)
        return prepacked_linear.BFloat16Linear(weight)
    if on_cpu and weight.dtype == torch.float32:
        if prepacked_linear.onednn_works("float32"):
            if many_rows and weight.numel() >= tuning.LARGE_WEIGHT:
                return prepacked_linear.UncopiedLinear(weight)
            return prepacked_linear.PrepackedLinear(weight)
        if prepacked_linear.conversion_works():
            return prepacked_linear.ConvertedLinear(weight)
    return LinearKernel(weight)


def int8_kernels(weight: torch.Tensor) -> tuple[type[int8.Int8Kernel], type[int8.Int8Kernel]]:
    """For fewer than `tuning.INT8_MANY_ROWS` rows, and for more."""
    kernels: list[type[int8.Int8Kernel]] = [int8.FloatInt8Kernel]
    if weight.device.type == "cpu" and weight.dtype == torch.float32:
        candidates = (int8.FbgemmInt8Kernel, int8.OneDnnInt8Kernel)
        kernels = [kernel for kernel in candidates if int8.works(kernel)] or kernels
    output_dim, input_dim = weight.shape
    few = kernels[0]
    return few, kernels[-1] if output_dim > tuning.INT8_WIDE * input_dim else few


# --- products with a weight that trains -----------------------------------------------------------


def matmul_for(tensor: torch.Tensor, product_dtype: torch.dtype) -> Matmul:
    """For products in this type on the tensor's device."""
    on_cpu = tensor.device.type == "cpu" and product_dtype == torch.float32
    return onednn_matmul if on_cpu and prepacked_linear.onednn_works("float32") else plain_matmul


def linear(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """`functional.linear` of a matrix, without a gradient."""
    return matmul_for(rows, rows.dtype)(rows, weight, bias)


def weight_gradient(grad_products: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """See `training_linear.weight_gradient`."""
    matmul = matmul_for(rows, rows.dtype)
    return _weight_gradient(grad_products, rows, matmul)


def training_linear(
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    training_dtype: str | None = None,
) -> torch.Tensor:
    """
    `linear` with gradients.

    # Parameters

    rows, weight, bias : `torch.Tensor`
        Shapes `(num_rows, input_dim)`, `(output_dim, input_dim)`, `(output_dim,)`.
    training_dtype : `str | None`, optional (default = `None`)
        `"bfloat16"` rounds what is multiplied, in both passes; sums, bias and result keep the
        weight's type. `None` for exact products, or what autocast says (the trainer's `use_amp`).

    # Returns

    `torch.Tensor`
        Shape `(num_rows, output_dim)`.
    """
    device = rows.device.type
    if training_dtype is None and torch.is_autocast_enabled(device):
        training_dtype = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    product_dtype = getattr(torch, training_dtype) if training_dtype else weight.dtype
    with torch.autocast(device, enabled=False):
        return TrainingLinear.apply(
            rows.to(weight.dtype), weight, bias, training_dtype, matmul_for(rows, product_dtype)
        )


# --- the LSTM ------------------------------------------------------------------------------------


def frozen_lstm(weights: LstmWeights, dtype: str | None) -> FrozenLstm:
    """The fastest frozen layer that works here."""

    def prepack(weight: torch.Tensor, many_rows: bool) -> LinearKernel:
        return linear_kernel(weight, dtype, many_rows)

    bias = weights.bias
    sizes = (
        rows_in_steps_of(bias),
        (tuning.INPUT_PRODUCT_ELEMENTS_ON_GPU if bias.is_cuda else tuning.INPUT_PRODUCT_ELEMENTS),
    )
    product_dtype = torch.bfloat16 if dtype == "bfloat16" else bias.dtype
    if lstm_gpu.usable(bias, product_dtype, training=False):
        return lstm_gpu.FusedLstm(weights, prepack, *sizes, product_dtype=product_dtype)
    return PlainLstm(weights, prepack, *sizes)


def training_steps(
    cell: torch.Tensor, training_dtype: str | None
) -> tuple[type[TrainingSteps], Matmul]:
    """What computes a step in training and its gradient, and what multiplies in it."""
    product_dtype = getattr(torch, training_dtype) if training_dtype else cell.dtype
    fused = lstm_gpu.usable(cell, product_dtype, training=True)
    steps = lstm_gpu.FusedTrainingSteps if fused else PlainTrainingSteps
    return steps, matmul_for(cell, product_dtype)


# --- how much at a time --------------------------------------------------------------------------


def rows_in_steps_of(tensor: torch.Tensor) -> int:
    """What the number of a product's rows is padded to a multiple of."""
    return tuning.ROWS_IN_STEPS_OF if tensor.device.type == "cpu" else 1


def tokens_at_once(character_ids: torch.Tensor, trains: bool) -> int:
    """In the token layer."""
    if character_ids.is_cuda:
        return tuning.TOKENS_AT_ONCE_ON_GPU
    return tuning.TRAINED_TOKENS_AT_ONCE if trains else tuning.TOKENS_AT_ONCE


def remembers_tokens(weights: torch.Tensor) -> bool:
    """Whether vectors of the tokens seen last are worth remembering."""
    return weights.device.type == "cpu" and weights.dtype == torch.float32
