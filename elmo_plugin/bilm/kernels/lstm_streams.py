"""
Training of an LSTM layer over streams on a GPU: both directions at once.

Streams have no padding, so all steps have the same rows. One product then has both directions, and
one Triton kernel computes what is elementwise in a step.
"""

from typing import Any, NamedTuple

import torch

from elmo_plugin.bilm.kernels import library, lstm_fused, tuning
from elmo_plugin.bilm.kernels.gradients import hand_written, rounded
from elmo_plugin.bilm.kernels.interface import LstmWeights


class Streams(NamedTuple):
    """
    Result of a layer. `outputs`: shape `(2, num_steps, batch_size, projection_dim)`. `hidden`,
    `cell`: final states, shapes `(2, batch_size, projection_dim)` and `(2, batch_size, cell_size)`.
    """

    outputs: torch.Tensor
    hidden: torch.Tensor
    cell: torch.Tensor


def usable(like: torch.Tensor, training_dtype: str | None) -> bool:
    """Return whether this layer runs for weights with the device and dtype of `like`."""
    product_dtype = getattr(torch, training_dtype) if training_dtype else like.dtype
    return like.is_cuda and lstm_fused.usable(like, product_dtype, training=True)


def lstm_streams(
    inputs: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    weights: tuple[LstmWeights, LstmWeights],
    training_dtype: str | None,
) -> Streams:
    """
    Run one LSTM layer of both directions, see `Backend.lstm_layer`.

    # Parameters

    inputs : `torch.Tensor`
        Shape `(2, num_steps, batch_size, input_dim)`, each direction in the order in which it
        reads.
    hidden, cell : `torch.Tensor`
        Initial state, with the shapes of the final one.
    weights : `tuple[LstmWeights, LstmWeights]`
        Weights of the forward and of the backward layer, which have the same clips.
    training_dtype : `str | None`
        See `Precision`.
    """
    stacked = [torch.stack(pair) for pair in zip(*(one.tensors for one in weights))]
    clips = weights[0].cell_clip, weights[0].projection_clip
    results = _Layer.apply(inputs, *stacked, hidden, cell, clips, training_dtype)
    return Streams(*results)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[torch.Tensor, ...]:
        exact_inputs, *weights, hidden, cell, clips, training_dtype = arguments
        _, num_steps, batch_size, _ = exact_inputs.shape
        inputs = rounded(exact_inputs, training_dtype)
        input_weight, state_weight, projection = (
            rounded(weights[index], training_dtype) for index in (0, 1, 3)
        )
        bias, (dim, cell_size) = weights[2], projection.shape[1:]
        rows = 2, num_steps, batch_size
        hiddens = inputs.new_empty(2, num_steps + 1, batch_size, dim)
        # Cell states stay in float32: a clipped one that is rounded could leave the clip.
        cells = cell.new_empty(2, num_steps + 1, batch_size, cell_size)
        hiddens[:, 0], cells[:, 0] = hidden, cell
        running = cell.contiguous().clone()
        activations = inputs.new_empty(*rows, 4 * cell_size)
        gated = inputs.new_empty(*rows, cell_size)
        addends = torch.bmm(inputs.flatten(1, 2), input_weight.transpose(1, 2)).view(*rows, -1)
        addends += bias[:, None, None]
        products = inputs.new_empty(2, batch_size, 4 * cell_size)
        grid, block = _grid(batch_size, cell_size)
        for step in range(num_steps):
            torch.bmm(hiddens[:, step], state_weight.transpose(1, 2), out=products)
            lstm_fused.kernel("forward_step")[grid](
                products, addends[:, step], running, gated[:, step], activations[:, step],
                cells[:, step + 1], library.limit(clips[0]), 4 * cell_size, cell_size, KEEP=True,
                BLOCK=block, batch_size=batch_size, addend_stride=addends.stride(0),
                gated_stride=gated.stride(0), activations_stride=activations.stride(0),
                new_cell_stride=cells.stride(0),
            )  # fmt: skip
            torch.bmm(gated[:, step], projection.transpose(1, 2), out=hiddens[:, step + 1])
            if clips[1] is not None:
                hiddens[:, step + 1].clamp_(-clips[1], clips[1])
        ctx.save_for_backward(
            inputs, input_weight, state_weight, projection, hiddens, cells, activations, gated
        )
        ctx.clips, ctx.dtype = clips, exact_inputs.dtype
        final_hidden = hiddens[:, -1].to(exact_inputs.dtype, copy=True)
        ctx.mark_non_differentiable(final_hidden, running)
        return hiddens[:, 1:].to(exact_inputs.dtype), final_hidden, running

    @staticmethod
    @hand_written()
    def backward(ctx: Any, grad_outputs: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        inputs, input_weight, state_weight, projection, *saved = ctx.saved_tensors
        hiddens, cells, activations, gated = saved
        _, num_steps, batch_size, _ = inputs.shape
        dim, cell_size = projection.shape[1:]
        grad_outputs = grad_outputs.contiguous()
        grad_gates = torch.empty_like(activations)
        grad_projected = inputs.new_empty(2, num_steps, batch_size, dim)
        grad_hidden = inputs.new_zeros(2, batch_size, dim)
        grad_gated = inputs.new_empty(2, batch_size, cell_size)
        grad_cell = cells.new_zeros(2, batch_size, cell_size)
        grid, block = _grid(batch_size, cell_size)
        cell_clip, projection_clip = map(library.limit, ctx.clips)
        for step in reversed(range(num_steps)):
            lstm_fused.kernel("output_backward")[2, -(-batch_size * dim // tuning.BLOCK)](
                grad_outputs[:, step], grad_hidden, hiddens[:, step + 1], grad_projected[:, step],
                grad_outputs.stride(0), hiddens.stride(0), grad_projected.stride(0),
                projection_clip, batch_size * dim, BLOCK=tuning.BLOCK,
            )  # fmt: skip
            torch.bmm(grad_projected[:, step], projection, out=grad_gated)
            lstm_fused.kernel("backward_step")[grid](
                grad_gated, activations[:, step], cells[:, step + 1], cells[:, step], grad_cell,
                grad_gates[:, step], cell_clip, cell_size, BLOCK=block, batch_size=batch_size,
                activations_stride=activations.stride(0), cell_stride=cells.stride(0),
                previous_stride=cells.stride(0), grad_gates_stride=grad_gates.stride(0),
            )  # fmt: skip
            torch.bmm(grad_gates[:, step], state_weight, out=grad_hidden)
        gates, dtype = grad_gates.flatten(1, 2), ctx.dtype
        by_gate = gates.transpose(1, 2)
        return (
            torch.bmm(gates, input_weight).view_as(inputs).to(dtype),
            torch.bmm(by_gate, inputs.flatten(1, 2)).to(dtype),
            torch.bmm(by_gate, hiddens[:, :-1].flatten(1, 2)).to(dtype),
            gates.sum(dim=1, dtype=dtype),
            torch.bmm(grad_projected.flatten(1, 2).transpose(1, 2), gated.flatten(1, 2)).to(dtype),
            *[None] * 4,
        )


def _grid(batch_size: int, cell_size: int) -> tuple[tuple[int, int], int]:
    """Return the grid of an LSTM kernel, and its block size."""
    block = min(2 * tuning.BLOCK, 1 << (cell_size - 1).bit_length())
    return (2 * batch_size, -(-cell_size // block)), block
