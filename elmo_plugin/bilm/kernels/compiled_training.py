"""Layers of a biLM that trains on a CPU, whose passes are calls of the C++ library."""

import ctypes
from typing import Any

import torch

from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.kernels.compiled import (
    Layer,
    on_large_pages,
    padded,
    padded_rows,
    padded_vector,
)
from elmo_plugin.bilm.kernels.gradients import hand_written
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
        self.rows = [padded_rows(one, width).contiguous() for one, width in widths]
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
        *tensors, batch_sizes, cell_clip, projection_clip, number_format = arguments
        one = _Layer(tensors, batch_sizes, cell_clip, projection_clip)
        inputs, *start = one.rows
        # Cloned, because the kernel overwrites them with the final state.
        hidden, cell = (state.clone() for state in start)
        outputs = inputs.new_empty(len(inputs), one.dim)
        # In blocks of 32 columns, see `lstm_training.h`.
        activations = on_large_pages((len(inputs), 4 * one.width), torch.float32)
        cells = on_large_pages((len(inputs), one.width), torch.float32)
        pointers = map(library.pointer, (inputs, hidden, cell, outputs, activations, cells))
        library.function("train_forward", number_format)(
            ctypes.byref(one.layer), *pointers, *one.steps, library.num_threads()
        )
        dim, cell_size = tensors[5].shape[1], tensors[6].shape[1]
        results = outputs[:, :dim], hidden[:, :dim], cell[:, :cell_size]
        ctx.save_for_backward(*tensors, results[0], activations, cells)
        ctx.batch_sizes, ctx.number_format = batch_sizes, number_format
        ctx.cell_clip, ctx.projection_clip = cell_clip, projection_clip
        ctx.mark_non_differentiable(*results[1:])
        return results

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
        library.function("train_backward", ctx.number_format)(
            ctypes.byref(one.layer), _pointers(saved), _pointers([rows[1], *gradients]),
            *one.steps, library.num_threads(),
        )  # fmt: skip
        return (
            *(
                None if grad is None else _cut(grad, like, blocks)
                for grad, like, blocks in zip(gradients, tensors, (1, 4, 4, 4, 1))
            ),
            *[None] * 6,
        )


def _pointers(tensors: Any) -> Any:
    addresses = [None if one is None else library.pointer(one) for one in tensors]
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _cut(padded: torch.Tensor, like: torch.Tensor, blocks: int) -> torch.Tensor:
    """Return a gradient without the padding of each of its blocks of rows."""
    if padded.shape == like.shape:
        return padded
    places = (slice(None), *(slice(size) for size in (len(like) // blocks, *like.shape[1:])))
    return padded.unflatten(0, (blocks, -1))[places].flatten(0, 1)
