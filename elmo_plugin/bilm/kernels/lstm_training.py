"""The biLM's recurrence in training: its steps, and its gradient by hand."""

from typing import Any, NamedTuple, Optional

import torch

from elmo_plugin.bilm.kernels import fused_steps
from elmo_plugin.bilm.kernels.training_linear import (
    product,
    product_of_rounded,
    rounded,
    weight_gradient,
)


class Kept(NamedTuple):
    """What a step leaves for its gradient: its gates, cell, and the cell's tanh."""

    activations: torch.Tensor
    cell: torch.Tensor
    cell_tanh: torch.Tensor


class PlainTrainingSteps:
    """
    What is elementwise in a step and in its gradient, by PyTorch's operators; see `fused_steps` for
    GPUs.

    # Parameters

    cell_clip : `Optional[float]`
        See `LstmCellWithProjection`.
    """

    def __init__(self, cell_clip: Optional[float]) -> None:
        self._cell_clip = cell_clip
        self._bias_gradient: Optional[torch.Tensor] = None

    def forward(
        self,
        sources: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        cell: torch.Tensor,
        gated: torch.Tensor,
    ) -> Kept:
        """
        # Parameters

        sources : `torch.Tensor`
            Inputs and hidden states, shape `(size, input_dim + projection_dim)`.
        weight, bias : `torch.Tensor`
            Shapes `(4 * cell_size, input_dim + projection_dim)` and `(4 * cell_size,)`.
        cell : `torch.Tensor`
            Shape `(size, cell_size)`; becomes the new one.
        gated : `torch.Tensor`
            The same shape: where what is projected is written.

        # Returns

        `Kept`
            For `backward`.
        """
        # The activations take the products' place.
        gates = product_of_rounded(sources, weight, bias, bias.dtype)
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=1)
        # tanh(x) = 2 sigmoid(2 x) - 1, several times faster in PyTorch on a processor.
        candidate.mul_(2)
        gates.sigmoid_()
        candidate.mul_(2).sub_(1)
        step_cell = (forget_gate * cell).addcmul_(input_gate, candidate)
        if self._cell_clip is not None:
            step_cell.clamp_(-self._cell_clip, self._cell_clip)
        cell_tanh = (step_cell + step_cell).sigmoid_().mul_(2).sub_(1)
        gated.copy_(output_gate * cell_tanh)
        cell.copy_(step_cell)
        return Kept(gates, step_cell, cell_tanh)

    def backward(
        self,
        kept: Kept,
        previous_cell: torch.Tensor,
        for_gated: torch.Tensor,
        cell_gradient: torch.Tensor,
        gate_gradient: torch.Tensor,
    ) -> None:
        """
        # Parameters

        kept : `Kept`
            From the same step's `forward`.
        previous_cell, for_gated : `torch.Tensor`
            The cell before the step, and the gradient of `gated`; shape `(size, cell_size)`.
        cell_gradient : `torch.Tensor`
            The new cell's; becomes that of the previous one.
        gate_gradient : `torch.Tensor`
            Shape `(size, 4 * cell_size)`: where the gradient of the gates' sums is written.
        """
        gates, cell, cell_tanh = kept
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=1)
        for_gated = for_gated.to(gates.dtype)
        cell_gradient += torch.ops.aten.tanh_backward(for_gated * output_gate, cell_tanh)
        if self._cell_clip is not None:
            _unclipped(cell_gradient, cell, self._cell_clip, out=cell_gradient)
        step_gates = torch.empty_like(gates)
        of_input, of_forget, of_candidate, of_output = step_gates.chunk(4, dim=1)
        sigmoid_slope(cell_gradient * candidate, input_gate, out=of_input)
        sigmoid_slope(cell_gradient * previous_cell, forget_gate, out=of_forget)
        torch.ops.aten.tanh_backward.grad_input(
            cell_gradient * input_gate, candidate, grad_input=of_candidate
        )
        sigmoid_slope(for_gated * cell_tanh, output_gate, out=of_output)
        step_sum = step_gates.sum(dim=0)
        if self._bias_gradient is None:
            self._bias_gradient = step_sum
        else:
            self._bias_gradient += step_sum
        cell_gradient *= forget_gate
        gate_gradient.copy_(step_gates)

    def bias_gradient(self, gate_gradient: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
        """Over the steps so far; `gate_gradient` is all that they wrote, `kind` the bias's type."""
        if self._bias_gradient is None:
            return gate_gradient.sum(dim=0, dtype=kind)
        return self._bias_gradient


class Recurrence(torch.autograd.Function):
    """
    The recurrence with its gradient by hand.

    A step multiplies its input and the hidden state before it, side by side, with both weights at
    once, while all of it is in the processor's cache; so does its gradient. The weights' gradients
    are one product over all rows.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        `inputs`, `input_weight`, `state_weight`, `bias`, `projection`, `hidden`, `cell`,
        `batch_sizes`, `cell_clip`, `projection_clip`, `dtype` (see `trained_linear`) to what
        `LstmCellWithProjection` returns.
        """
        inputs, input_weight, state_weight, bias, projection, hidden, cell = arguments[:7]
        batch_sizes, cell_clip, projection_clip, dtype = arguments[7:]
        input_dim, cell_size = inputs.shape[1], cell.shape[1]
        weight = rounded(torch.cat([input_weight, state_weight], dim=1), dtype)
        projection = rounded(projection, dtype)
        # Shape: (num_rows, input_dim + projection_dim)
        sources = weight.new_empty(len(inputs), weight.shape[1])
        sources[:, :input_dim] = inputs
        # Shape: (num_rows, cell_size)
        gated = weight.new_empty(len(inputs), cell_size)
        outputs = inputs.new_empty(len(inputs), len(projection))
        fused = fused_steps.usable(cell, weight.dtype, training=True)
        steps = fused_steps.FusedTrainingSteps if fused else PlainTrainingSteps
        step = steps(cell_clip)
        kept = []
        final_cell = cell.clone()
        ended = []
        start = 0
        for size in batch_sizes:
            rows = slice(start, start + size)
            ended.append(hidden[size:])
            sources[rows, input_dim:] = hidden[:size]
            step_cell, step_gated = final_cell[:size], gated[rows]
            kept.append(step.forward(sources[rows], weight, bias, step_cell, step_gated))
            output = product(step_gated, projection)
            if projection_clip is not None:
                output.clamp_(-projection_clip, projection_clip)
            hidden = outputs[rows]
            hidden.copy_(output)
            start += size
        final_hidden = torch.cat([hidden, *reversed(ended)])
        ctx.save_for_backward(weight, projection, cell, sources, gated, outputs)
        ctx.steps, ctx.kept = steps, kept
        ctx.batch_sizes = batch_sizes
        ctx.input_dim = input_dim
        ctx.clips = cell_clip, projection_clip
        ctx.mark_non_differentiable(final_hidden, final_cell)
        return outputs, final_hidden, final_cell

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, output_gradient: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        """Gradients of the first five."""
        weight, projection, first_cell, sources, gated, outputs = ctx.saved_tensors
        cell_clip, projection_clip = ctx.clips
        input_dim = ctx.input_dim
        gate_gradient = weight.new_empty(len(outputs), len(weight))
        projected_gradient = projection.new_empty(outputs.shape)
        input_gradient = outputs.new_empty(len(outputs), input_dim)
        hidden_gradient = outputs.new_zeros(0, outputs.shape[1])
        cell_gradient = torch.zeros_like(first_cell)
        step = ctx.steps(cell_clip)
        end = len(outputs)
        for number in range(len(ctx.kept) - 1, -1, -1):
            kept = ctx.kept[number]
            size = len(kept.cell)
            rows = slice(end - size, end)
            previous_cell = ctx.kept[number - 1].cell[:size] if number else first_cell[:size]
            step_projected = _sum(output_gradient[rows], hidden_gradient)
            if projection_clip is not None:
                step_projected = _unclipped(step_projected, outputs[rows], projection_clip)
            projected_gradient[rows] = step_projected
            # Shape: (size, cell_size)
            for_gated = product(projected_gradient[rows], projection.t())
            step.backward(kept, previous_cell, for_gated, cell_gradient[:size], gate_gradient[rows])
            for_sources = product(gate_gradient[rows], weight.t())
            input_gradient[rows] = for_sources[:, :input_dim]
            hidden_gradient = for_sources[:, input_dim:]
            end -= size

        kind, needs = outputs.dtype, ctx.needs_input_grad
        for_input = for_state = None
        if needs[1] or needs[2]:
            for_weight = weight_gradient(gate_gradient, sources).to(kind)
            for_input, for_state = for_weight[:, :input_dim], for_weight[:, input_dim:]
        return (
            input_gradient,
            for_input,
            for_state,
            step.bias_gradient(gate_gradient, kind),
            weight_gradient(projected_gradient, gated).to(kind) if needs[4] else None,
            *[None] * 6,
        )


def _sum(gradient: torch.Tensor, of_first: torch.Tensor) -> torch.Tensor:
    """Of both, where the second is that of the first rows only."""
    if len(of_first) == len(gradient):
        return gradient + of_first
    total = gradient.clone()
    total[: len(of_first)] += of_first
    return total


def _unclipped(
    gradient: torch.Tensor, clipped: torch.Tensor, clip: float, out: Any = None
) -> torch.Tensor:
    """The gradient where the clip left the value alone, zero elsewhere."""
    out = torch.empty_like(gradient) if out is None else out
    return torch.ops.aten.hardtanh_backward.grad_input(
        gradient, clipped, -clip, clip, grad_input=out
    )


def sigmoid_slope(gradient: torch.Tensor, gate: torch.Tensor, out: torch.Tensor) -> None:
    """`gradient * gate * (1 - gate)` into `out`, in one pass over memory."""
    torch.ops.aten.sigmoid_backward.grad_input(gradient, gate, grad_input=out)
