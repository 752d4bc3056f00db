"""Layers of a biLM that trains on a CPU, whose passes are calls of the C++ library."""

import ctypes
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import library, machine, reference, tuning
from elmo_plugin.bilm.kernels.compiled import (
    COLUMNS,
    Convolutions,
    Layer,
    on_large_pages,
    padded,
    padded_rows,
    padded_vector,
)
from elmo_plugin.bilm.kernels.gradients import TrainingLinear, hand_written, without_autocast
from elmo_plugin.bilm.kernels.interface import Affine, TokenWeights
from elmo_plugin.bilm.kernels.lstm_training import definition


class _Layer:
    """
    Padded operands of a layer's passes in the library.

    # Parameters

    tensors : `tuple[torch.Tensor, ...]`
        Inputs, the four weights of `LstmWeights`, hidden states and cell states.
    batch_sizes, clips
        As in `Backend.lstm_layer`, and the two clips.
    """

    def __init__(self, tensors: Any, batch_sizes: Any, *clips: float | None) -> None:
        inputs, input_weight, state_weight, bias, projection, hidden, cell = tensors
        self.weights = padded(input_weight, 4), padded(state_weight, 4), padded(projection)
        self.bias = padded_vector(bias, 4)
        (_, self.input_dim), (_, self.dim), (_, self.width) = (one.shape for one in self.weights)
        widths = zip((inputs, hidden, cell), (self.input_dim, self.dim, self.width))
        self.rows = [padded_rows(one.float(), width).contiguous() for one, width in widths]
        by_input, by_state, project = map(library.pointer, self.weights)
        self.layer = Layer(
            by_input, library.pointer(self.bias), by_state, project, self.width, self.dim,
            self.input_dim, 1, *map(library.limit, clips),
        )  # fmt: skip
        self.steps = (ctypes.c_int64 * len(batch_sizes))(*batch_sizes), len(batch_sizes)


class CompiledLstmTraining(torch.autograd.Function):
    """`reference.lstm_layer` with a hand-written gradient; each pass is one call of C++."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        Run the layer and return what `Backend.lstm_layer` returns. Arguments: `inputs`, the four
        tensors of `LstmWeights`, `hidden`, `cell`, `batch_sizes`, `cell_clip`, `projection_clip`
        and the number format of the products.
        """
        # PyTorch's threads run between two calls. While they spun, they would take the processor.
        machine.let_waiting_threads_sleep()
        *tensors, batch_sizes, cell_clip, projection_clip, number_format = arguments
        one = _Layer(tensors, batch_sizes, cell_clip, projection_clip)
        inputs, *start = one.rows
        # Cloned, because the kernel overwrites them with the final state.
        hidden, cell = (state.clone() for state in start)
        outputs = inputs.new_empty(len(inputs), one.dim)
        # In blocks of 32 columns, see `lstm.h`.
        activations = _memory((len(inputs), 4 * one.width), getattr(torch, number_format))
        cells = _memory((len(inputs), one.width), torch.float32)
        pointers = map(library.pointer, (inputs, hidden, cell, outputs, activations, cells))
        library.function("lstm_layer", number_format)(
            ctypes.byref(one.layer), *pointers, *one.steps, library.num_threads()
        )
        dim, cell_size = tensors[5].shape[1], tensors[6].shape[1]
        outputs, hidden = _narrowed(outputs, dim), _narrowed(hidden, dim)
        cell = _narrowed(cell, cell_size)
        ctx.save_for_backward(*tensors, outputs, activations, cells)
        ctx.batch_sizes, ctx.number_format = batch_sizes, number_format
        ctx.cell_clip, ctx.projection_clip = cell_clip, projection_clip
        ctx.mark_non_differentiable(hidden, cell)
        return outputs, hidden, cell

    @staticmethod
    @hand_written(definition)
    def backward(ctx: Any, grad_outputs: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        """Return the gradients of `inputs` and of the four weights."""
        *tensors, outputs, activations, cells = ctx.saved_tensors
        one = _Layer(tensors, ctx.batch_sizes, ctx.cell_clip, ctx.projection_clip)
        rows = [padded_rows(each, one.dim).contiguous() for each in (outputs, grad_outputs)]
        saved = (*one.rows, rows[0], activations, cells)
        operands = one.rows[0], *one.weights[:2], one.bias, one.weights[2]
        gradients = [
            torch.empty_like(each) if needed else None
            for each, needed in zip(operands, ctx.needs_input_grad)
        ]
        shape = -(-len(outputs) // COLUMNS) * COLUMNS, 5 * one.width + 2 * one.dim
        memory = _memory(shape, torch.float32)
        library.function("lstm_backward", ctx.number_format)(
            ctypes.byref(one.layer), _pointers(saved), _pointers([memory, rows[1], *gradients]),
            *one.steps, library.num_threads(),
        )  # fmt: skip
        return (
            *(
                None if grad is None else _cut(grad, like, blocks)
                for grad, like, blocks in zip(gradients, tensors, (1, 4, 4, 4, 1))
            ),
            *[None] * 6,
        )


def _memory(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return memory, which glibc reuses if it is small: new memory takes time to clear."""
    if math.prod(shape) * dtype.itemsize > tuning.MOST_REUSED:
        return on_large_pages(shape, dtype)
    return torch.empty(shape, dtype=dtype, device="cpu")


def _pointers(tensors: Any) -> Any:
    addresses = [None if one is None else library.pointer(one) for one in tensors]
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _narrowed(rows: torch.Tensor, width: int) -> torch.Tensor:
    """Return the first columns; no view, which autograd would not let callers overwrite."""
    return rows if rows.shape[1] == width else rows[:, :width].clone()


def _cut(padded: torch.Tensor, like: torch.Tensor, blocks: int) -> torch.Tensor:
    """Return a gradient without the padding of each of its blocks of rows."""
    if padded.shape == like.shape:
        return padded
    places = (slice(None), *(slice(size) for size in (len(like) // blocks, *like.shape[1:])))
    return padded.unflatten(0, (blocks, -1))[places].flatten(0, 1)


# --- linear layers and the token layer -----------------------------------------------------------


def training_linear(
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    training_dtype: str | None = None,
) -> torch.Tensor:
    """
    Compute `functional.linear` for training, with products in `training_dtype`.

    # Parameters

    rows, weight, bias : `torch.Tensor`
        Shapes `(num_rows, input_dim)`, `(output_dim, input_dim)`, `(output_dim,)`.
    training_dtype : `str | None`, optional (default = `None`)
        With `"bfloat16"`, factors and results of matrix products are rounded, forward and backward.
        The bias is added in the weight's dtype. `None` means autocast's dtype, else the weight's.

    # Returns

    `torch.Tensor`
        Shape `(num_rows, output_dim)`.
    """
    training_dtype = product_dtype(weight, training_dtype)
    number_format = trained_format(weight, training_dtype)
    with without_autocast(rows.device):
        rows = rows.to(weight.dtype)
        if number_format is not None:
            return CompiledLinearTraining.apply(rows, weight, bias, number_format)
        return TrainingLinear.apply(rows, weight, bias, training_dtype)


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


class CompiledLinearTraining(torch.autograd.Function):
    """`functional.linear` with a hand-written gradient."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> torch.Tensor:
        """Return the outputs. Arguments: rows, weight, bias (or `None`) and number format."""
        *tensors, ctx.number_format = arguments
        one = _Affine(tensors)
        outputs = one.rows.new_empty(len(one.rows), len(one.weight))
        library.function("linear", ctx.number_format)(
            *one.arguments, one.rows.data_ptr(), outputs.data_ptr(), *outputs.shape,
            library.num_threads(),
        )  # fmt: skip
        ctx.save_for_backward(*tensors)
        return _narrowed(outputs, len(tensors[1]))

    @staticmethod
    @hand_written(lambda ctx, saved: (functional.linear, saved))
    def backward(ctx: Any, grad_outputs: torch.Tensor) -> tuple[Any, ...]:
        """Return the gradients of rows, weight and bias."""
        tensors = ctx.saved_tensors
        one = _Affine(tensors)
        grad_outputs = padded_rows(grad_outputs, len(one.weight)).contiguous()
        gradients = one.gradients(ctx.needs_input_grad)
        library.function("linear_backward", ctx.number_format)(
            *one.arguments[:2], one.rows.data_ptr(), grad_outputs.data_ptr(), _pointers(gradients),
            *grad_outputs.shape, library.num_threads(),
        )  # fmt: skip
        return *one.cut(gradients, tensors), None


class CompiledHighwayTraining(torch.autograd.Function):
    """A layer of `reference.highways` with a hand-written gradient."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> torch.Tensor:
        """Return the outputs. Arguments: rows, weight, bias and number format."""
        *tensors, ctx.number_format = arguments
        one = _Affine(tensors, blocks=2)
        outputs, gates = (
            torch.empty_like(one.rows),
            one.rows.new_empty(len(one.rows), len(one.weight)),
        )
        library.function("highway", ctx.number_format)(
            *one.arguments, one.rows.data_ptr(), outputs.data_ptr(), gates.data_ptr(), len(outputs),
            library.num_threads(),
        )  # fmt: skip
        ctx.save_for_backward(*tensors, gates)
        return _narrowed(outputs, tensors[0].shape[1])

    @staticmethod
    @hand_written(lambda ctx, saved: (_highway, saved[:3]))
    def backward(ctx: Any, grad_outputs: torch.Tensor) -> tuple[Any, ...]:
        """Return the gradients of rows, weight and bias."""
        *tensors, gates = ctx.saved_tensors
        one = _Affine(tensors, blocks=2)
        grad_outputs = padded_rows(grad_outputs, one.rows.shape[1]).contiguous()
        gradients = one.gradients(ctx.needs_input_grad)
        library.function("highway_backward", ctx.number_format)(
            *one.arguments[:2], one.rows.data_ptr(), library.pointer(gates),
            grad_outputs.data_ptr(), _pointers(gradients), len(grad_outputs), library.num_threads(),
        )  # fmt: skip
        return *one.cut(gradients, tensors), None


def _highway(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return reference.highways(rows, [lambda x: functional.linear(x, weight, bias)])


class _Affine:
    """Padded operands of a linear layer: rows, weight and bias, which may be `None`."""

    def __init__(self, tensors: Sequence[Any], blocks: int = 1) -> None:
        rows, weight, bias = tensors
        self._blocks = blocks
        self.weight = padded(weight.detach(), blocks)
        self.rows = padded_rows(rows, self.weight.shape[1]).contiguous()
        self._bias = None if bias is None else padded_vector(bias, blocks)
        self.arguments = (
            self.weight.data_ptr(), self.weight.shape[1], True,
            None if self._bias is None else self._bias.data_ptr(),
        )  # fmt: skip

    def gradients(self, needed: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return memory for the gradients that are needed."""
        operands = self.rows, self.weight, self._bias
        return [
            torch.empty_like(one) if one is not None and need else None
            for one, need in zip(operands, needed)
        ]

    def cut(self, gradients: Sequence[Any], tensors: Sequence[Any]) -> Iterator[Any]:
        """Yield the gradients without padding."""
        for grad, like, blocks in zip(gradients, tensors, (1, self._blocks, self._blocks)):
            yield None if grad is None else _cut(grad, like, blocks)


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
        return _narrowed(outputs, sum(map(len, tensors[2::2])))

    @staticmethod
    @hand_written(lambda ctx, saved: _convolutions_definition(ctx, saved))
    def backward(ctx: Any, grad_outputs: torch.Tensor) -> tuple[Any, ...]:
        """Return the gradients of the embedding, and of each convolution's weight and bias."""
        *tensors, ids, outputs, places = ctx.saved_tensors
        one = Convolutions(_token_weights(ctx, tensors), "float32", copy=False)
        grad_outputs = padded_rows(grad_outputs, one.output_dim).contiguous()
        needs = ctx.needs_input_grad
        shapes = (one.output_dim, one.depth), (one.output_dim,), tensors[0].shape
        wanted = any(needs[1 : len(tensors) : 2]), any(needs[2 : len(tensors) : 2]), needs[0]
        filters, bias, embedding = (
            grad_outputs.new_empty(shape) if want else None for shape, want in zip(shapes, wanted)
        )
        library.function("convolution_backward")(
            one.arguments, library.pointer(ids), *ids.shape, len(tensors[0]),
            *map(library.pointer, (outputs, places, grad_outputs)),
            _pointers((filters, bias, embedding)), library.num_threads(),
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
        rows = CompiledHighwayTraining.apply(rows, *one, number_format)
    if weights.projection is None:
        return rows
    return CompiledLinearTraining.apply(rows, *weights.projection, number_format)
