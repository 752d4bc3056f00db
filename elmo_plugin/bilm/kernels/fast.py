"""
Default backend. It runs the C++ library on a CPU and Triton kernels on a GPU, and PyTorch's
operators where neither is available.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence, Set
from typing import TypeVar

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import library, machine, reference, tuning
from elmo_plugin.bilm.kernels.compiled import CompiledAffine, CompiledLstm, CompiledTokenLayer
from elmo_plugin.bilm.kernels.compiled_training import (
    CompiledLstmTraining,
    product_dtype,
    trained_format,
    trained_token_layer,
    training_linear,
)
from elmo_plugin.bilm.kernels.derived import derived
from elmo_plugin.bilm.kernels.gpu import lstm_fused
from elmo_plugin.bilm.kernels.gpu.lstm_directions import lstm_directions
from elmo_plugin.bilm.kernels.gpu.lstm_graph import GraphedLstm
from elmo_plugin.bilm.kernels.gradients import without_autocast
from elmo_plugin.bilm.kernels.interface import (
    Affine,
    BiLstmState,
    LstmOutput,
    LstmWeights,
    Precision,
    TokenWeights,
)
from elmo_plugin.bilm.kernels.lstm_inference import PlainLstm
from elmo_plugin.bilm.kernels.quantized import (
    DynamicInt8Linear,
    ExactLinear,
    Int8Linear,
    LinearKernel,
    has_dynamic_int8,
)
from elmo_plugin.bilm.kernels.token_cache import TokenCache, distinct_rows
from elmo_plugin.bilm.kernels.token_layer import (
    Linears,
    encode,
    encode_parts,
    filter_matrix,
    linears_of,
)

# Names under which `derived.py` caches values.
PREPACKED = "prepacked"
TOKEN_VECTORS = "token vectors"

Weights = TypeVar("Weights", LstmWeights, TokenWeights)


def token_layer(
    character_ids: torch.Tensor,
    weights: TokenWeights,
    precision: Precision,
    widths: Sequence[int] | None = None,
) -> torch.Tensor:
    """Compute token vectors, once for each distinct token, see `reference.token_layer`."""
    parameters, num_characters = weights.tensors, character_ids.shape[1]
    trains = wants_gradient(parameters)
    like = weights.embedding
    if trains and _is_half_on_cpu(like):
        return token_layer(character_ids, weights.float(), precision).to(like.dtype)
    if not trains and (_is_float32_on_cpu(like) or _is_half_on_cpu(like)):
        cache = derived(
            parameters,
            (TOKEN_VECTORS, precision.dtype, num_characters, weights.activation),
            lambda: _token_cache(weights, num_characters),
        )
        vectors = cache.vectors(
            character_ids,
            lambda ids: _without_nan(_encode_frozen(ids, weights, precision.dtype), ids, weights),
        )
        return vectors.to(like.dtype)
    if widths is not None:  # a GPU, which must not be asked for anything
        linears = _trained_linears(weights, precision.training_dtype)
        if precision.training_dtype is not None:  # the largest products stay as they are multiplied
            matrix = filter_matrix(weights).to(getattr(torch, precision.training_dtype))
            linears = linears._replace(convolve=functools.partial(training_linear, weight=matrix))
        return encode_parts(character_ids, weights, linears, widths)
    if not trains and like.is_cuda and len(character_ids) <= tuning.FEW_TOKENS_ON_GPU:
        return _encode_frozen(character_ids, weights, precision.dtype)
    distinct, inverse = distinct_rows(character_ids)
    if not trains:
        vectors = _encode_frozen(distinct, weights, precision.dtype)
        return functional.embedding(inverse, vectors)
    training_dtype = product_dtype(weights.embedding, precision.training_dtype)
    number_format = trained_format(weights.embedding, training_dtype)
    if number_format is not None:
        with without_autocast(character_ids.device):
            vectors = trained_token_layer(distinct, weights, number_format)
    else:
        linears = _trained_linears(weights, precision.training_dtype)
        vectors = encode(distinct, weights, linears, tokens_at_once(distinct, trains=True))
    vectors = _without_nan(vectors, distinct, weights)
    return functional.embedding(inverse, vectors)


def _trained_linears(weights: TokenWeights, training_dtype: str | None) -> Linears:
    return linears_of(
        weights,
        lambda weight, bias, _: functools.partial(
            training_linear, weight=weight, bias=bias, training_dtype=training_dtype
        ),
    )


def _without_nan(
    vectors: torch.Tensor, character_ids: torch.Tensor, weights: TokenWeights
) -> torch.Tensor:
    """Return the vectors; if they hold NaN, those of the definition, as in `_lstm_layer`."""
    if vectors.device.type != "cpu" or not _has_nan(vectors):
        return vectors
    wide = weights.float() if _is_half_on_cpu(weights.embedding) else weights
    with without_autocast(character_ids.device):
        return reference.token_layer(character_ids, wide)


def _encode_frozen(
    character_ids: torch.Tensor, weights: TokenWeights, dtype: str | None
) -> torch.Tensor:
    with without_autocast(character_ids.device):
        frozen = derived(
            weights.tensors,
            (PREPACKED, dtype, weights.activation),
            lambda: frozen_token_layer(weights, dtype),
        )
        return frozen(character_ids)


def linear(rows: torch.Tensor, weight: torch.Tensor, precision: Precision) -> torch.Tensor:
    """Compute `rows W^T`, see `reference.linear`."""
    if wants_gradient([rows, weight]):
        return training_linear(rows, weight, None, precision.training_dtype)
    with without_autocast(rows.device):
        multiply = derived(
            [weight],
            (PREPACKED, precision.dtype, "linear"),
            lambda: frozen_linear(weight, precision.dtype),
        )
        return multiply(rows)


def _token_cache(weights: TokenWeights, num_characters: int) -> TokenCache:
    width = sum(len(bias) for _, bias in weights.convolutions)
    if weights.projection is not None:
        width = len(weights.projection.bias)
    capacity = max(1, tuning.TOKEN_CACHE_BYTES // (4 * width + 4 * num_characters))
    return TokenCache(width, capacity)


def lstm_layer(
    inputs: torch.Tensor,
    batch_sizes: Sequence[int],
    hidden: torch.Tensor,
    cell: torch.Tensor,
    weights: LstmWeights,
    precision: Precision,
) -> LstmOutput:
    """Run one LSTM layer in one direction, see `reference.lstm_layer`."""
    dtype, is_half = weights.input.dtype, _is_half_on_cpu(weights.bias)
    trains = wants_gradient([inputs, *weights.tensors])
    if is_half and trains:
        weights = weights.float()
    states = (inputs, hidden.detach(), cell.detach().contiguous())
    inputs, hidden, cell = (one.float() if is_half else one.to(dtype) for one in states)
    with without_autocast(inputs.device):
        if trains:
            arguments = inputs, batch_sizes, hidden, cell, weights
            found = _train_lstm_layer(*arguments, precision.training_dtype)
            checked: torch.Tensor | None = found[1]  # once NaN, a sentence's state stays NaN
        else:
            layer = derived(
                weights.tensors,
                (PREPACKED, precision.dtype, weights.cell_clip, weights.projection_clip),
                lambda: frozen_lstm(weights, precision.dtype),
            )
            found = layer(inputs, batch_sizes, hidden, cell)
            checked = found[0] if layer.gave_nan else None
        # Padding, int8 and int16 turn infinite and huge numbers into NaN, where the definition has
        # none. On a GPU, to look would wait for all queued kernels.
        if checked is not None and checked.device.type == "cpu" and _has_nan(checked):
            wide = weights.float() if is_half else weights
            found = reference.lstm_layer(inputs, batch_sizes, hidden, cell, wide)
    outputs, hidden, cell = (one.to(dtype) for one in found)
    return outputs, hidden, cell


def _train_lstm_layer(
    inputs: torch.Tensor,
    batch_sizes: Sequence[int],
    hidden: torch.Tensor,
    cell: torch.Tensor,
    weights: LstmWeights,
    training_dtype: str | None,
) -> LstmOutput:
    number_format = trained_format(weights.input, training_dtype)
    if number_format is not None:
        return CompiledLstmTraining.apply(
            inputs, *weights.tensors, hidden, cell, batch_sizes, weights.cell_clip,
            weights.projection_clip, number_format,
        )  # fmt: skip
    if lstm_fused.usable(cell, training_dtype, training=True):
        found = lstm_directions(
            inputs[None], batch_sizes, hidden[None], cell[None], [weights], training_dtype
        )
        return found[0][0], found[1][0], found[2][0]
    _check_devices([inputs, *weights.tensors])
    return reference.lstm_layer(inputs, batch_sizes, hidden, cell, weights)


def _check_devices(tensors: Iterable[torch.Tensor]) -> None:
    """Raise a `ValueError` unless all are on one device; PyTorch accepts "meta" beside others."""
    devices = {one.device for one in tensors}
    if len(devices) > 1:
        raise ValueError(f"a layer's weights and inputs are on devices {devices}")


def frozen_bilstm(
    tokens: Sequence[torch.Tensor],
    lengths: torch.Tensor,
    start: BiLstmState,
    layers: Sequence[tuple[LstmWeights, LstmWeights]],
    precisions: Set[Precision],
    skips: bool,
) -> tuple[list[torch.Tensor], BiLstmState] | None:
    """
    Run a whole LSTM without gradients on a GPU, see `GraphedLstm`; `precisions` are those of its
    layers. Return `None` where `lstm_layer` has to run them one by one.
    """
    every = [weights for both in layers for weights in both]
    tensors = [one for weights in every for one in weights.tensors]
    like, dtype = layers[0][0].bias, next(iter(precisions)).dtype
    if (
        len(precisions) > 1
        or dtype == "int8"
        or {(one.device, one.dtype) for one in tensors} != {(lengths.device, like.dtype)}
        or len({(*(one.shape for one in each.tensors), *each[4:]) for each in every}) > 1
        or not tokens[0].numel()
        or wants_gradient([*tokens, *tensors, *start[0], *start[1]])
        or torch.compiler.is_compiling()
        or not lstm_fused.usable(like, dtype, training=False)
    ):
        return None
    with without_autocast(like.device):
        run = derived(
            tensors,
            (PREPACKED, dtype, *layers[0][0][4:], skips, "both directions"),
            lambda: GraphedLstm(layers, dtype, skips),
        )
        states = [one.map(lambda values: values.to(like.dtype)) for one in start]
        return run([one.to(like.dtype) for one in tokens], lengths, (states[0], states[1]))


def _has_nan(values: torch.Tensor) -> bool:
    # The sum is a quick first test; infinite values can make it NaN as well.
    return math.isnan(values.sum().item()) and bool(values.isnan().any())


def wants_gradient(tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether autograd must record operations on these tensors."""
    return torch.is_grad_enabled() and any(one.requires_grad for one in tensors)


# --- linear layers with a frozen weight ---------------------------------------------------------


def linear_kernel(
    weight: torch.Tensor, dtype: str | None = None, precise: bool = False
) -> LinearKernel:
    """
    Return a frozen linear layer for GPUs and machines without the C++ library. On a CPU, the
    weight's own dtype replaces float16 and bfloat16, because it is faster there and more exact.
    `precise` avoids int8, which would lose too much accuracy for this weight.
    """
    weight = weight.detach()
    if dtype == "int8" and not precise:
        # Bit for bit the same, and several times as fast.
        is_dynamic = weight.device.type == "cpu" and has_dynamic_int8()
        return DynamicInt8Linear(weight) if is_dynamic else Int8Linear(weight)
    if dtype is None or weight.device.type == "cpu":
        return ExactLinear(weight)
    return LinearKernel(weight.to(torch.float16 if dtype == "float16" else torch.bfloat16))


def frozen_linear(
    weight: torch.Tensor, dtype: str | None
) -> Callable[[torch.Tensor], torch.Tensor]:
    """
    Return the fastest function on this machine that computes `rows W^T`. It never uses int8, which
    is too coarse for the token layers that call it.
    """
    if not runs_in_library(weight):
        return linear_kernel(weight, dtype, precise=True)
    number_format = _number_format(dtype, weight.numel())
    bias = weight.new_zeros(len(weight))
    return CompiledAffine(
        Affine(weight, bias), "int16" if number_format == "int8" else number_format
    )


def runs_in_library(like: torch.Tensor) -> bool:
    """Return whether the C++ library runs for frozen weights with `like`'s device and dtype."""
    return _is_float32_on_cpu(like) and library.variant() is not None


def lstm_format(weights: LstmWeights, dtype: str | None) -> str | None:
    """Return the library's number format for a frozen LSTM layer; `None` without the library."""
    weights, dtype = _widened(weights, dtype)
    if not runs_in_library(weights.bias):
        return None
    size = weights.state.numel()
    return "float32" if size <= tuning.MOST_EXACT else _number_format(dtype, size)


def _number_format(dtype: str | None, num_elements: int) -> str:
    if dtype is None or (dtype == "float16" and num_elements < tuning.LEAST_HALVED):
        return "float32"
    # int16 replaces float16 everywhere, and bfloat16 where the library has no format for it: it is
    # as fast and more exact.
    return dtype if dtype in library.formats() else "int16"


def auto_training_dtype(device: torch.device) -> str | None:
    """
    Return the fastest `training_dtype` on this device: `"bfloat16"`, or `None` for float32. Devices
    that were not measured get `None`.
    """
    on_cpu = device.type == "cpu"
    return "bfloat16" if on_cpu and machine.is_fast_in_bfloat16() else None


# --- the LSTM ------------------------------------------------------------------------------------


def frozen_lstm(weights: LstmWeights, dtype: str | None) -> CompiledLstm | PlainLstm:
    """Return the fastest LSTM layer without gradients; `dtype` is that of `BiLm`."""
    weights, dtype = _widened(weights, dtype)
    number_format = lstm_format(weights, dtype)
    bias = weights.bias
    if number_format is not None:
        return CompiledLstm(weights, number_format)
    _check_devices(weights.tensors)
    elements = (
        tuning.INPUT_PRODUCT_ELEMENTS_ON_GPU if bias.is_cuda else tuning.INPUT_PRODUCT_ELEMENTS
    )
    return PlainLstm(weights, lambda weight: linear_kernel(weight, dtype), elements)


def frozen_token_layer(
    weights: TokenWeights, dtype: str | None
) -> Callable[[torch.Tensor], torch.Tensor]:
    """
    Return the fastest frozen token layer on this machine. See `Precision` for `dtype`; of its
    matrices, only the highways are ever in int8.
    """
    weights, dtype = _widened(weights, dtype)
    if not runs_in_library(weights.embedding):
        _check_devices(weights.tensors)
        with torch.no_grad():
            linears = linears_of(
                weights,
                lambda weight, bias, precise: functools.partial(
                    linear_kernel(weight, dtype, precise),
                    bias=None if bias is None else bias.clone(),
                ),
            )
        return lambda ids: encode(ids, weights, linears, tokens_at_once(ids, trains=False))
    size = max((weight.numel() for weight, _ in weights.highways), default=0)
    number_format = _number_format(dtype, size)
    precise_format = "int16" if number_format == "int8" else number_format
    return CompiledTokenLayer(weights, number_format, precise_format)


def kernels_of(weights: LstmWeights, dtype: str | None) -> dict[str, str]:
    """
    Describe the kernels of a frozen biLM. Two runs with the same weights, inputs and description
    give bitwise identical vectors.

    For the C++ kernels, the description is the number format: their results do not depend on the
    processor or the number of threads, except in bfloat16 (AMX, ARM). For PyTorch's operators, it
    also has PyTorch's version, the number of threads and the instruction set.
    """
    number_format = lstm_format(weights, dtype)
    if number_format is not None:
        return {"kernels": f"library {library.ABI}, {dtype or 'float32'} as {number_format}"}
    about = {"kernels": "PyTorch", "torch": torch.__version__}
    if (device := weights.tensors[0].device).type == "cuda":
        return about | {
            "kernels": "Triton and PyTorch",
            "processor": torch.cuda.get_device_name(device),
            "precision": torch.get_float32_matmul_precision(),
        }
    return about | {
        "processor": machine.model_name(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
    }


def tokens_at_once(character_ids: torch.Tensor, trains: bool) -> int:
    """Return the number of tokens that the token layer computes at a time."""
    if character_ids.is_cuda:
        return tuning.TOKENS_AT_ONCE_ON_GPU
    return tuning.TRAINED_TOKENS_AT_ONCE if trains else tuning.TOKENS_AT_ONCE


def _is_float32_on_cpu(like: torch.Tensor) -> bool:
    return like.device.type == "cpu" and like.dtype == torch.float32


def _is_half_on_cpu(like: torch.Tensor) -> bool:
    return like.device.type == "cpu" and like.dtype in (torch.float16, torch.bfloat16)


def _widened(weights: Weights, dtype: str | None) -> tuple[Weights, str | None]:
    """
    Return the weights and the `dtype` to compute with. On a CPU, weights in half precision are
    converted to float32: PyTorch's operators would be slow, and would round every step's sums.
    """
    if not _is_half_on_cpu(weights.tensors[0]):
        return weights, dtype
    return weights.float(), dtype or "float16"
