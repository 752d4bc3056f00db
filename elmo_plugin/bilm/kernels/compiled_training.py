"""Layers of a biLM that trains on a CPU, whose passes are calls of the C++ library."""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import library, machine, reference, tuning
from elmo_plugin.bilm.kernels.compiled import (
    COLUMNS,
    CompiledAffine,
    Convolutions,
    LstmOperands,
    c_struct,
    check_shapes,
    narrowed,
    on_large_pages,
    padded,
    padded_rows,
    pointer,
    pointers,
    steps_of,
)
from elmo_plugin.bilm.kernels.gpu.lstm_directions import definition
from elmo_plugin.bilm.kernels.gradients import hand_written, linear_of_rounded, without_autocast
from elmo_plugin.bilm.kernels.interface import Affine, LstmWeights, TokenWeights


class CompiledLstmTraining(torch.autograd.Function):
    """`reference.lstm_layer` with a hand-written gradient; each pass is one call of C++."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        Run the layer, see `reference.lstm_layer`. Arguments: `inputs`, the tensors of
        `LstmWeights`, `hidden`, `cell`, `batch_sizes`, both clips, and the products' number format.
        """
        # PyTorch's threads run between two calls. While they spun, they would take the processor.
        machine.let_waiting_threads_sleep()
        machine.reuse_freed_memory()
        *tensors, batch_sizes, cell_clip, projection_clip, ctx.number_format = arguments
        ctx.batch_sizes, ctx.clips = batch_sizes, (cell_clip, projection_clip)
        inputs, *_, hidden, cell = tensors
        operands = _operands(ctx, tensors)
        width = operands.padded_widths[2]
        # In blocks of 32 columns, see `lstm.h`.
        activations = _memory((len(inputs), 4 * width), getattr(torch, ctx.number_format))
        cells = _memory((len(inputs), width), torch.float32)
        _, results = operands.run(
            library.function("lstm_forward", ctx.number_format), inputs, batch_sizes, hidden, cell,
            activations, cells,
        )  # fmt: skip
        ctx.save_for_backward(*tensors, results[0], activations, cells)
        ctx.mark_non_differentiable(*results[1:])
        return results

    @staticmethod
    @hand_written(definition)
    def backward(ctx: Any, grad_outputs: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        """Return the gradients of `inputs` and of the four weights."""
        *tensors, outputs, activations, cells = ctx.saved_tensors
        one = _operands(ctx, tensors)
        rows = one.padded(tensors[0], *tensors[5:])
        dim, width = one.padded_widths[1:]
        outputs, grad_outputs = (
            padded_rows(each, one.widths[1], dim) for each in (outputs, grad_outputs)
        )
        by_input, by_state, project = (weight.data for weight in one.weights)
        operands = rows[0], by_input, by_state, one.bias, project
        gradients = _memory_of(operands, ctx.needs_input_grad)
        shape = -(-len(outputs) // COLUMNS) * COLUMNS, 5 * width + 2 * dim
        memory = _memory(shape, torch.float32)
        library.function("lstm_backward", ctx.number_format)(
            one.struct, c_struct(*pointers(*rows, outputs, activations, cells)),
            c_struct(*pointers(memory, grad_outputs, *gradients)), *steps_of(ctx.batch_sizes),
            library.num_threads(),
        )  # fmt: skip
        return *_without_padding(gradients, tensors, (1, 4, 4, 4, 1)), *[None] * 6


def _operands(ctx: Any, tensors: Sequence[Any]) -> LstmOperands:
    return LstmOperands(LstmWeights(*tensors[1:5], *ctx.clips), None, None)


def _memory(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return memory, which glibc reuses if it is small: new memory takes time to clear."""
    if math.prod(shape) * dtype.itemsize > tuning.MOST_REUSED:
        return on_large_pages(shape, dtype)
    return torch.empty(shape, dtype=dtype, device="cpu")


def _memory_of(operands: Sequence[Any], needed: Sequence[bool]) -> list[torch.Tensor | None]:
    """Return memory for the gradients that are needed."""
    return [
        torch.empty_like(one) if one is not None and need else None
        for one, need in zip(operands, needed)
    ]


def _without_padding(
    gradients: Sequence[Any], tensors: Sequence[torch.Tensor], blocks: Sequence[int]
) -> Iterator[torch.Tensor | None]:
    """Yield gradients in the shape of `tensors`; each of their blocks of rows was padded."""
    for grad, like, count in zip(gradients, tensors, blocks):
        if grad is None or grad.shape == like.shape:
            yield grad
            continue
        places = (slice(None), *(slice(size) for size in (len(like) // count, *like.shape[1:])))
        yield grad.unflatten(0, (count, -1))[places].flatten(0, 1)


# --- linear layers and the token layer -----------------------------------------------------------


def training_linear(
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    training_dtype: str | None = None,
) -> torch.Tensor:
    """
    Compute `functional.linear` for training. In `training_dtype` `"bfloat16"`, factors and results
    of products are rounded, forward and backward; the bias is added in the weight's dtype. `None`
    means autocast's dtype, else the weight's.
    """
    training_dtype = product_dtype(weight, training_dtype)
    number_format = trained_format(weight, training_dtype)
    with without_autocast(rows.device):
        rows = rows.to(weight.dtype)
        if number_format is not None:
            return CompiledAffineTraining.apply(rows, weight, bias, number_format, "linear")
        return linear_of_rounded(rows, weight, bias, training_dtype)


def product_dtype(weight: torch.Tensor, training_dtype: str | None) -> str | None:
    """Return `training_dtype`, or if it is `None` and autocast is on, autocast's dtype."""
    device = weight.device.type
    # Like PyTorch's autocast, leave float64 as it is.
    if training_dtype or weight.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return training_dtype
    return str(torch.get_autocast_dtype(device)).removeprefix("torch.")


def trained_format(like: torch.Tensor, training_dtype: str | None) -> str | None:
    """
    Return the library's number format for training with weights of `like`'s device and dtype;
    `None` if PyTorch's operators train them. Processors without bfloat16 products get float32,
    which is faster there and more exact.
    """
    known = library.trained_formats()
    if like.device.type != "cpu" or like.dtype != torch.float32 or not known:
        return None
    return training_dtype if training_dtype in known else "float32"


class CompiledAffineTraining(torch.autograd.Function):
    """`functional.linear`, or a layer of `reference.highways`, with a hand-written gradient."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> torch.Tensor:
        """
        Return the outputs. Arguments: rows, weight, bias (or `None`), number format, and
        `"linear"` or `"highway"`.
        """
        *tensors, ctx.number_format, ctx.kind = arguments
        rows, layer = tensors[0], _affine(ctx, tensors)
        gates = [rows.new_empty(len(rows), layer.weight.output_dim)][: ctx.kind == "highway"]
        outputs = layer(rows, *gates)
        ctx.save_for_backward(*tensors, *gates)
        return outputs

    @staticmethod
    @hand_written(
        lambda ctx, saved: (_highway if ctx.kind == "highway" else functional.linear, saved[:3])
    )
    def backward(ctx: Any, grad_outputs: torch.Tensor) -> tuple[Any, ...]:
        """Return the gradients of rows, weight and bias."""
        saved = ctx.saved_tensors  # with gradient checkpointing they can be read only once
        tensors, gates = saved[:3], saved[3:]
        layer = _affine(ctx, tensors)
        rows, width = tensors[0], layer.weight.input_dim
        rows = padded_rows(rows, rows.shape[1], width)
        width = width if gates else layer.weight.output_dim
        grad_outputs = padded_rows(grad_outputs, grad_outputs.shape[1], width)
        gradients = _memory_of((rows, layer.weight.data, layer.bias), ctx.needs_input_grad)
        library.function(f"{ctx.kind}_backward", ctx.number_format)(
            layer.struct, pointer(rows), gates[0].data_ptr() if gates else None,
            pointer(grad_outputs), c_struct(*pointers(*gradients)), len(rows),
            library.num_threads(),
        )  # fmt: skip
        blocks = 2 if gates else 1
        return *_without_padding(gradients, tensors, (1, blocks, blocks)), None, None


def _affine(ctx: Any, tensors: Sequence[torch.Tensor]) -> CompiledAffine:
    return CompiledAffine(Affine(*tensors[1:3]), ctx.number_format, ctx.kind, packs=False)


def _highway(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return reference.highways(rows, [lambda x: functional.linear(x, weight, bias)])


class CompiledLogSumExpTraining(torch.autograd.Function):
    """`log_sum_exp` with a hand-written gradient. Logits are not saved, but computed twice."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> torch.Tensor:
        """Return the results. Arguments: those of `log_sum_exp`; then the number format."""
        *tensors, ctx.number_format = arguments
        operands = _padded_logits(tensors)
        largest, sums = operands[0].new_empty(2, len(operands[0]))
        library.function("log_sum_exp", ctx.number_format)(
            _logits(operands), *map(pointer, (largest, sums)), library.num_threads()
        )  # fmt: skip
        results = sums.log_().add_(largest)
        ctx.save_for_backward(*tensors, results)
        return results

    @staticmethod
    @hand_written(lambda ctx, saved: (_log_sum_exp_of(functional.linear, saved), saved[:3]))
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        """Return the gradients of rows, weight and bias."""
        *tensors, results = ctx.saved_tensors
        operands = _padded_logits(tensors)
        gradient = gradient.contiguous()  # keeps a copy alive during the call
        gradients = _memory_of(operands[:3], ctx.needs_input_grad)
        library.function("log_sum_exp_backward", ctx.number_format)(
            _logits(operands), *map(pointer, (results, gradient)),
            c_struct(*pointers(*gradients)), library.num_threads(),
        )  # fmt: skip
        return *_without_padding(gradients, tensors, (1, 1, 1)), *[None] * 3


def _padded_logits(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    rows, weight, bias, ids, targets = tensors
    (number, dim), count = weight.shape, len(rows)
    what = "bias, ids and targets of a softmax"
    check_shapes(what, (bias, ids, targets), (number,), (number,), (count,))
    weight = padded(weight)
    rows = padded_rows(rows, dim, weight.shape[1])
    ids = functional.pad(ids.to(torch.int32), (0, len(weight) - len(ids)), value=-1)
    return rows, weight, padded(bias), ids, targets.to(torch.int32)


def _logits(operands: Sequence[torch.Tensor]) -> Any:
    """Return the C struct `Logits` of what `_padded_logits` returns."""
    rows, weight, bias, *ids = operands
    integers = (pointer(one, torch.int32) for one in ids)
    layer = *map(pointer, (weight, bias)), *weight.shape, True
    return c_struct(*layer, pointer(rows), *integers, len(rows))


def log_sum_exp(
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    ids: torch.Tensor,
    targets: torch.Tensor,
    training_dtype: str | None = None,
) -> torch.Tensor:
    """
    Return `log(sum(exp(rows W^T + bias)))` of each row, without the columns of its target: `ids`
    are the word ids of the weight's rows, `targets` those to leave out. See `training_linear`.
    """
    training_dtype = product_dtype(weight, training_dtype)
    number_format = trained_format(weight, training_dtype)
    if number_format is not None:
        with without_autocast(rows.device):
            return CompiledLogSumExpTraining.apply(
                rows.to(weight.dtype), weight, bias, ids, targets, number_format
            )
    linear = functools.partial(training_linear, training_dtype=training_dtype)
    return _log_sum_exp_of(linear, (rows, weight, bias, ids, targets))(rows, weight, bias)


def _log_sum_exp_of(linear: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Return a differentiable function of rows, weight and bias, of `log_sum_exp`'s `tensors`."""
    left_out = tensors[4].unsqueeze(1) == tensors[3]
    return lambda *own: linear(*own).masked_fill(left_out, -math.inf).logsumexp(dim=1)


class CompiledConvolutionTraining(torch.autograd.Function):
    """
    Activations of the convolutions (`reference.token_layer`) with a hand-written gradient. Of equal
    maxima the first gets the gradient, as in AllenNLP's.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> torch.Tensor:
        """
        Return the activations. Arguments: embedding, weight and bias of each convolution, character
        ids, activation, padding id and number format.
        """
        *tensors, ids, ctx.activation, ctx.padding_id, number_format = arguments
        ids = ids.contiguous()
        convolutions = Convolutions(_token_weights(ctx, tensors), number_format)
        convolutions.check(ids)
        places = ids.new_empty(len(ids), convolutions.output_dim, dtype=torch.int32)
        outputs = convolutions(ids, places)
        ctx.save_for_backward(*tensors, ids, outputs, places)
        return narrowed(outputs, convolutions.num_filters)

    @staticmethod
    @hand_written(lambda ctx, saved: _convolutions_definition(ctx, saved))
    def backward(ctx: Any, grad_outputs: torch.Tensor) -> tuple[Any, ...]:
        """Return the gradients of the embedding, and of each convolution's weight and bias."""
        *tensors, ids, outputs, places = ctx.saved_tensors
        one = Convolutions(_token_weights(ctx, tensors), None)
        grad_outputs = padded_rows(grad_outputs, one.num_filters, one.output_dim)
        needs = ctx.needs_input_grad
        shapes = (one.output_dim, one.depth), (one.output_dim,), tensors[0].shape
        wanted = any(needs[1 : len(tensors) : 2]), any(needs[2 : len(tensors) : 2]), needs[0]
        filters, bias, embedding = (
            grad_outputs.new_empty(shape) if want else None for shape, want in zip(shapes, wanted)
        )
        library.function("convolution_backward")(
            one.struct, pointer(ids, torch.int64), *ids.shape,
            *pointers(outputs, places, grad_outputs),
            c_struct(*pointers(filters, bias, embedding)), library.num_threads(),
        )  # fmt: skip
        gradients, start = [embedding], 0
        for weight in tensors[1::2]:
            rows, (number, dim, width) = slice(start, start + len(weight)), weight.shape
            start += number
            own = None if filters is None else filters[rows, : width * dim]
            gradients += (
                None if own is None else own.unflatten(1, (width, dim)).transpose(1, 2),
                None if bias is None else bias[rows],
            )
        return *gradients, *[None] * 4


def _token_weights(ctx: Any, tensors: Sequence[torch.Tensor]) -> TokenWeights:
    embedding, *rest = tensors
    affine = [Affine(*both) for both in zip(rest[::2], rest[1::2])]
    return TokenWeights(embedding, affine, ctx.activation, [], None, ctx.padding_id)


def _convolutions_definition(ctx: Any, saved: Sequence[torch.Tensor]) -> Any:
    *tensors, ids, _, _ = saved
    return lambda *own: reference.token_layer(ids, _token_weights(ctx, own)), tensors


def trained_token_layer(
    character_ids: torch.Tensor, weights: TokenWeights, number_format: str
) -> torch.Tensor:
    """Compute `reference.token_layer` by the library, with gradients."""
    affine = (tensor for one in weights.convolutions for tensor in one)
    rows = CompiledConvolutionTraining.apply(
        weights.embedding, *affine, character_ids, weights.activation, weights.padding_id,
        number_format,
    )  # fmt: skip
    for one in weights.highways:
        rows = CompiledAffineTraining.apply(rows, *one, number_format, "highway")
    if weights.projection is None:
        return rows
    return CompiledAffineTraining.apply(rows, *weights.projection, number_format, "linear")
