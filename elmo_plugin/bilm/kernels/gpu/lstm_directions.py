"""
Training of LSTM layers on a GPU, of one direction or of both at once.

One product has all directions, and one Triton kernel computes what is elementwise in a step.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch

from elmo_plugin.bilm.kernels import library, reference, tuning
from elmo_plugin.bilm.kernels.gpu import lstm_fused
from elmo_plugin.bilm.kernels.gradients import hand_written, rounded, stored_clip
from elmo_plugin.bilm.kernels.interface import LstmWeights


def lstm_directions(
    inputs: torch.Tensor,
    batch_sizes: Sequence[int],
    hidden: torch.Tensor,
    cell: torch.Tensor,
    weights: Sequence[LstmWeights],
    training_dtype: str | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """
    Run one LSTM layer in one direction, or in both at once, see `reference.lstm_layer`. Tensors
    have the direction as an additional first dimension, and `weights` has one element for each.
    Their clips must be equal.
    """
    stacked = [torch.stack(parts) for parts in zip(*(one.tensors for one in weights))]
    clips = weights[0].cell_clip, weights[0].projection_clip
    return _Layer.apply(inputs, *stacked, hidden, cell, tuple(batch_sizes), clips, training_dtype)


def definition(
    ctx: Any, saved: Sequence[torch.Tensor]
) -> tuple[Callable[..., torch.Tensor], Sequence[torch.Tensor]]:
    """
    Return a function of a layer's inputs and weights that computes its outputs by the reference,
    and the saved arguments to call it with. Double backward differentiates it.
    """

    hidden, cell = saved[5:7]

    def outputs(inputs: torch.Tensor, *weights: Any) -> torch.Tensor:
        layer = LstmWeights(*weights, *ctx.clips)
        return reference.lstm_layer(inputs, ctx.batch_sizes, hidden, cell, layer)[0]

    return outputs, saved[:5]


def _definition_of_directions(ctx: Any, saved: Sequence[torch.Tensor]) -> Any:
    def outputs(*operands: torch.Tensor) -> torch.Tensor:
        directions = zip(*operands, *saved[5:7])
        return torch.stack([definition(ctx, one)[0](*one[:5]) for one in directions])

    return outputs, saved[:5]


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[torch.Tensor, ...]:
        *tensors, batch_sizes, clips, training_dtype = arguments
        inputs, input_weight, state_weight, _, projection, hidden, _ = (
            rounded(one, training_dtype) for one in tensors
        )
        bias, cell = tensors[3].contiguous(), tensors[6]
        clips = clips[0], stored_clip(clips[1], inputs.dtype)
        directions, num_rows, _ = inputs.shape
        _, dim, cell_size = projection.shape
        # The first rows are the initial state, those after them the states after each row's step.
        # Cell states stay in float32: a clipped one that is rounded could leave the clip.
        first = cell.shape[1]
        hiddens = inputs.new_empty(directions, first + num_rows, dim)
        cells = cell.new_empty(directions, first + num_rows, cell_size)
        hiddens[:, :first], cells[:, :first] = hidden, cell
        activations = inputs.new_empty(directions, num_rows, 4 * cell_size)
        gated = inputs.new_empty(directions, num_rows, cell_size)
        addends = torch.bmm(inputs, input_weight.transpose(1, 2))
        with torch.cuda.device_of(inputs):
            for before, now, rows in _steps(first, batch_sizes):
                size = rows.stop - rows.start
                products = torch.bmm(hiddens[:, before], state_weight.transpose(1, 2))
                grid, block = lstm_fused.grid(size, cell_size, directions)
                lstm_fused.kernel("forward_step")[grid](
                    products, addends[:, rows], bias, cells[:, before], gated[:, rows], None,
                    activations[:, rows], cells[:, now], library.limit(clips[0]), cell_size,
                    TRAINS=True, BLOCK=block, addends_stride=addends.stride(0),
                    gated_stride=gated.stride(0), activations_stride=activations.stride(0),
                    cell_stride=cells.stride(0),
                )  # fmt: skip
                torch.bmm(gated[:, rows], projection.transpose(1, 2), out=hiddens[:, now])
                if clips[1] is not None:
                    hiddens[:, now].clamp_(-clips[1], clips[1])
        ctx.save_for_backward(*tensors, hiddens, cells, activations, gated)
        ctx.batch_sizes, ctx.clips, ctx.training_dtype = batch_sizes, clips, training_dtype
        dtype = tensors[0].dtype
        final_hidden = _final(hiddens, first, batch_sizes).to(dtype)
        final_cell = _final(cells, first, batch_sizes)
        ctx.mark_non_differentiable(final_hidden, final_cell)
        return hiddens[:, first:].to(dtype, copy=True), final_hidden, final_cell

    @staticmethod
    @hand_written(_definition_of_directions)
    def backward(ctx: Any, grad_outputs: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        inputs, input_weight, state_weight, projection = (
            rounded(saved[index], ctx.training_dtype) for index in (0, 1, 2, 4)
        )
        hiddens, cells, activations, gated = saved[7:]
        directions, num_rows, dim = grad_outputs.shape
        cell_size, first = cells.shape[2], len(cells[0]) - num_rows
        grad_outputs = grad_outputs.contiguous()
        grad_gates = torch.empty_like(activations)
        grad_projected = inputs.new_empty(directions, num_rows, dim)
        # Of the step after; the last step has none.
        grad_hidden = inputs.new_zeros(directions, 0, dim)
        grad_cell = cells.new_zeros(directions, first, cell_size)
        cell_clip, projection_clip = map(library.limit, ctx.clips)
        steps = list(_steps(first, ctx.batch_sizes))
        with torch.cuda.device_of(inputs):
            for before, now, rows in reversed(steps):
                size = rows.stop - rows.start
                lstm_fused.kernel("output_backward")[directions, -(-size * dim // tuning.BLOCK)](
                    grad_outputs[:, rows], grad_hidden, hiddens[:, now], grad_projected[:, rows],
                    grad_outputs.stride(0), hiddens.stride(0), grad_projected.stride(0),
                    projection_clip, size * dim, grad_hidden.shape[1] * dim, BLOCK=tuning.BLOCK,
                )  # fmt: skip
                grad_gated = torch.bmm(grad_projected[:, rows], projection)
                grid, block = lstm_fused.grid(size, cell_size, directions)
                lstm_fused.kernel("backward_step")[grid](
                    grad_gated, activations[:, rows], cells[:, now], cells[:, before], grad_cell,
                    grad_gates[:, rows], cell_clip, cell_size, BLOCK=block,
                    activations_stride=activations.stride(0), cell_stride=cells.stride(0),
                    grad_cell_stride=grad_cell.stride(0), grad_gates_stride=grad_gates.stride(0),
                )  # fmt: skip
                grad_hidden = torch.bmm(grad_gates[:, rows], state_weight)
        previous = [hiddens[:, :0], *(hiddens[:, before] for before, _, _ in steps)]
        by_gate, dtype, needs = grad_gates.transpose(1, 2), saved[0].dtype, ctx.needs_input_grad
        gradients: tuple[Callable[[], torch.Tensor], ...] = (
            lambda: torch.bmm(grad_gates, input_weight),
            lambda: torch.bmm(by_gate, inputs),
            lambda: torch.bmm(by_gate, torch.cat(previous, dim=1)),
            lambda: grad_gates.sum(dim=1, dtype=dtype),
            lambda: torch.bmm(grad_projected.transpose(1, 2), gated),
        )
        found = (make().to(dtype) if need else None for make, need in zip(gradients, needs))
        return *found, *[None] * 5


def _steps(first: int, batch_sizes: Sequence[int]) -> Iterator[tuple[slice, slice, slice]]:
    """
    Yield the rows of each step's previous states, of its new states, and of the step. The states
    have `first` rows more, those of the initial state.
    """
    starts = accumulate([0, first, *batch_sizes])
    for (before, now), size in zip(pairwise(starts), batch_sizes):
        rows = slice(now - first, now - first + size)
        yield slice(before, before + size), slice(now, now + size), rows


def _final(states: torch.Tensor, first: int, batch_sizes: Sequence[int]) -> torch.Tensor:
    """Return each sentence's last state."""
    sizes = [first, *batch_sizes, 0]
    starts = accumulate([0, *sizes])
    ended = [
        states[:, start + after : start + size]
        for start, (size, after) in zip(starts, pairwise(sizes))
        if after < size
    ]
    return torch.cat([states[:, :0], *reversed(ended)], dim=1)
