"""
Which kernel runs. The only file that looks at a device, a precision, or at what a processor can do;
what it chooses changes how fast a number comes, not which.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from elmo_plugin.bilm.kernels import (
    int8,
    lstm_compiled,
    lstm_fused,
    prepacked_linear,
    processors,
    tuning,
)
from elmo_plugin.bilm.kernels.int8_linear import Int8Linear, TwoDigitLinear
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


def wants_gradient(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether autograd is to follow what is computed of these."""
    return torch.is_grad_enabled() and any(one.requires_grad for one in tensors)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """In the block products are taken as they are asked for, whatever autocast says outside."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


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
        Whether it is usually called with dozens of rows or more. Then a large float32 weight is not
        copied where it can be used as it lies.
    precise : `bool`, optional (default = `False`)
        Whether 8-bit integers are too few here: bfloat16 in their place.
    """
    weight = weight.detach()
    if dtype == "int8" and not precise:
        return Int8Linear(weight, *int8_kernels(weight))
    if weight.device.type != "cpu":
        rounded = {None: None, "float16": torch.float16}.get(dtype, torch.bfloat16)
        return prepacked_linear.RoundedLinear(weight, rounded) if rounded else LinearKernel(weight)
    for name in (_name_of_kernel(weight, dtype, many_rows), "onednn", "converted"):
        if kernel_works(name, weight):
            return LINEAR_KERNELS[name](weight)
    return LinearKernel(weight)


def _two_digits(weight: torch.Tensor) -> LinearKernel:
    return TwoDigitLinear(weight, int8.OneDnnInt8Kernel)


def _uncopied(weight: torch.Tensor) -> LinearKernel:
    if weight.numel() >= tuning.LARGE_WEIGHT:
        return prepacked_linear.UncopiedLinear(weight)
    return prepacked_linear.PrepackedLinear(weight)


# What the table of `processors.py` names.
LINEAR_KERNELS: dict[str, Callable[[torch.Tensor], LinearKernel]] = {
    "onednn": prepacked_linear.PrepackedLinear,
    "onednn_uncopied": _uncopied,
    "mkl": prepacked_linear.MklLinear,
    "fbgemm_float16": prepacked_linear.Float16Linear,
    "two_digits": _two_digits,
    "onednn_bfloat16": prepacked_linear.PrepackedBFloat16Linear,
    "steady_bfloat16": prepacked_linear.SteadyBFloat16Linear,
    "bfloat16": prepacked_linear.RoundedLinear,
    "converted": prepacked_linear.ConvertedLinear,
}


def _name_of_kernel(weight: torch.Tensor, dtype: str | None, many_rows: bool) -> str:
    row = processors.row()
    # 8 bits are too few where it is asked for them.
    kernels = getattr(row, {None: "float32", "int8": "bfloat16"}.get(dtype, dtype or ""))
    if kernels == processors.HALF and weight.numel() < tuning.LEAST_HALVED:
        kernels = row.float32
    output_dim, input_dim = weight.shape
    if many_rows:
        name = kernels.input
    else:
        name = kernels.state if output_dim > processors.WIDE * input_dim else kernels.narrow
    private = prepacked_linear.onednn_works("bfloat16")
    return "bfloat16" if name.endswith("_bfloat16") and not private else name


def kernel_works(name: str, weight: torch.Tensor) -> bool:
    """Whether a linear kernel can multiply with this weight here."""
    if weight.dtype != torch.float32:
        return name.endswith("bfloat16")
    if name == "two_digits":
        return prepacked_linear.onednn_works("float32") and int8.works(int8.OneDnnInt8Kernel)
    if name in ("mkl", "fbgemm_float16"):
        works = prepacked_linear.mkl_works if name == "mkl" else prepacked_linear.float16_works
        return prepacked_linear.onednn_works("float32") and works()
    if name == "converted":
        return prepacked_linear.conversion_works()
    return name == "bfloat16" or prepacked_linear.onednn_works(
        "bfloat16" if name.endswith("bfloat16") else "float32"
    )


def int8_kernels(
    weight: torch.Tensor,
) -> tuple[type[int8.Int8Kernel], type[int8.Int8Kernel], int]:
    """For few rows, for many, and how many those are."""
    kernels: list[type[int8.Int8Kernel]] = [int8.FloatInt8Kernel]
    if weight.device.type == "cpu" and weight.dtype == torch.float32:
        candidates = (int8.FbgemmInt8Kernel, int8.OneDnnInt8Kernel)
        kernels = [kernel for kernel in candidates if int8.works(kernel)] or kernels
    output_dim, input_dim = weight.shape
    wide, narrow = processors.row().int8_many
    many_rows = wide if output_dim > processors.WIDE * input_dim else narrow
    return kernels[0], kernels[0] if many_rows == processors.NEVER else kernels[-1], many_rows


# --- products with a weight that trains -----------------------------------------------------------


def matmul_for(tensor: torch.Tensor, product_dtype: torch.dtype) -> Matmul:
    """For products in this type on the tensor's device."""
    on_cpu = tensor.device.type == "cpu" and product_dtype == torch.float32
    onednn = on_cpu and processors.row().training_onednn
    return onednn_matmul if onednn and prepacked_linear.onednn_works("float32") else plain_matmul


def auto_training_dtype(device: torch.device) -> str | None:
    """
    The `training_dtype` in which a step is the fastest on this device: `"bfloat16"`, or `None` for
    float32, and where it was not measured.
    """
    return processors.row().training_dtype if device.type == "cpu" else None


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
    with without_autocast(rows.device):
        return TrainingLinear.apply(
            rows.to(weight.dtype), weight, bias, training_dtype, matmul_for(rows, product_dtype)
        )


# --- the LSTM ------------------------------------------------------------------------------------


def frozen_lstm(weights: LstmWeights, dtype: str | None, in_cpp: bool | None = None) -> FrozenLstm:
    """
    The fastest frozen layer that works here.

    # Parameters

    weights : `LstmWeights`
    dtype : `str | None`
        See `Precision`.
    in_cpp : `bool | None`, optional (default = `None`)
        Whether all steps are to run in C++, where they can; by default as the table has it.
    """

    def prepack(weight: torch.Tensor, many_rows: bool) -> LinearKernel:
        return linear_kernel(weight, dtype, many_rows)

    bias = weights.bias
    on_gpu = bias.is_cuda
    elements = tuning.INPUT_PRODUCT_ELEMENTS_ON_GPU if on_gpu else tuning.INPUT_PRODUCT_ELEMENTS
    compiled = compiled_dtype(weights, dtype, in_cpp)
    if compiled is not None:
        return lstm_compiled.CompiledLstm(weights, compiled, elements)
    kind = lstm_fused.FusedLstm if fuses_steps(bias, dtype) else PlainLstm
    return kind(weights, prepack, rows_in_steps_of(bias), elements)


def compiled_dtype(
    weights: LstmWeights, dtype: str | None, in_cpp: bool | None = None
) -> torch.dtype | None:
    """The type in which a frozen layer's weights lie whose steps run in C++, if they do."""
    if in_cpp is False:
        return None
    size = weights.state.numel()
    name = "float32" if dtype is None or size <= tuning.MOST_EXACT else dtype
    if in_cpp is None:
        name = processors.row().compiled_layers.get(name, "")
    if name in ("float16", "int16") and size < tuning.LEAST_HALVED:
        name = "float32"
    if name not in processors.IN_CPP:
        return None
    wanted: torch.dtype = getattr(torch, name)
    return wanted if lstm_compiled.usable(weights, wanted) else None


def steps_by(weights: LstmWeights) -> str:
    """What takes the steps of a frozen layer in float32, in a word."""
    if compiled_dtype(weights, None) is not None:
        return "compiled"
    return "fused" if fuses_steps(weights.bias, None) else "plain"


def fuses_steps(like: torch.Tensor, dtype: str | None) -> bool:
    """Whether a frozen layer whose weights are like this one has fused steps."""
    # A CPU converts weights in half precision, and multiplies in float32.
    half = torch.float16 if like.is_cuda else like.dtype
    product_dtype = {"bfloat16": torch.bfloat16, "float16": half}.get(dtype or "", like.dtype)
    return lstm_fused.usable(like, product_dtype, training=False)


def training_steps(
    cell: torch.Tensor, training_dtype: str | None
) -> tuple[type[TrainingSteps], Matmul]:
    """What computes a step in training and its gradient, and what multiplies in it."""
    product_dtype = getattr(torch, training_dtype) if training_dtype else cell.dtype
    fused = lstm_fused.usable(cell, product_dtype, training=True)
    steps = lstm_fused.FusedTrainingSteps if fused else PlainTrainingSteps
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
