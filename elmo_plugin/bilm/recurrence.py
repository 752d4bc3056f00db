"""The biLM's recurrence in training: its steps, and its gradient by hand."""

from typing import Any

import torch

from elmo_plugin.bilm.trained_linear import product, product_of_rounded, rounded, weight_gradient


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
        steps = []
        final_hidden, final_cell = hidden.clone(), cell.clone()
        start = 0
        for size in batch_sizes:
            rows = slice(start, start + size)
            sources[rows, input_dim:] = final_hidden[:size]
            # The activations take the products' place.
            gates = product_of_rounded(sources[rows], weight, bias, bias.dtype)
            candidate = gates[:, 2 * cell_size : 3 * cell_size]
            # tanh(x) = 2 sigmoid(2 x) - 1, several times faster in PyTorch on a processor.
            candidate.mul_(2)
            gates.sigmoid_()
            candidate.mul_(2).sub_(1)
            input_gate, forget_gate, _, output_gate = gates.chunk(4, dim=1)
            step_cell = (forget_gate * final_cell[:size]).addcmul_(input_gate, candidate)
            if cell_clip is not None:
                step_cell.clamp_(-cell_clip, cell_clip)
            cell_tanh = (step_cell + step_cell).sigmoid_().mul_(2).sub_(1)
            steps.append((gates, step_cell, cell_tanh))
            gated[rows] = output_gate * cell_tanh
            output = product(gated[rows], projection)
            if projection_clip is not None:
                output.clamp_(-projection_clip, projection_clip)
            outputs[rows] = output
            final_hidden[:size], final_cell[:size] = output, step_cell
            start += size
        ctx.save_for_backward(weight, projection, cell, sources, gated, outputs)
        ctx.steps = steps
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
        hidden_gradient = outputs.new_zeros(len(first_cell), outputs.shape[1])
        cell_gradient = torch.zeros_like(first_cell)
        bias_gradient = first_cell.new_zeros(len(weight))
        end = len(outputs)
        for step in range(len(ctx.steps) - 1, -1, -1):
            gates, cell, cell_tanh = ctx.steps[step]
            size = len(cell)
            rows = slice(end - size, end)
            previous_cell = ctx.steps[step - 1][1][:size] if step else first_cell[:size]
            input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=1)

            step_projected = output_gradient[rows] + hidden_gradient[:size]
            if projection_clip is not None:
                step_projected = _unclipped(step_projected, outputs[rows], projection_clip)
            projected_gradient[rows] = step_projected
            # Shape: (size, cell_size)
            for_gated = product(projected_gradient[rows], projection.t()).to(gates.dtype)
            step_cell = cell_gradient[:size]
            step_cell += torch.ops.aten.tanh_backward(for_gated * output_gate, cell_tanh)
            if cell_clip is not None:
                _unclipped(step_cell, cell, cell_clip, out=step_cell)
            step_gates = torch.empty_like(gates)
            of_input, of_forget, of_candidate, of_output = step_gates.chunk(4, dim=1)
            sigmoid_slope(step_cell * candidate, input_gate, out=of_input)
            sigmoid_slope(step_cell * previous_cell, forget_gate, out=of_forget)
            torch.ops.aten.tanh_backward.grad_input(
                step_cell * input_gate, candidate, grad_input=of_candidate
            )
            sigmoid_slope(for_gated * cell_tanh, output_gate, out=of_output)
            bias_gradient += step_gates.sum(dim=0)
            step_cell *= forget_gate
            gate_gradient[rows] = step_gates
            for_sources = product(gate_gradient[rows], weight.t())
            input_gradient[rows] = for_sources[:, :input_dim]
            hidden_gradient[:size] = for_sources[:, input_dim:]
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
            bias_gradient,
            weight_gradient(projected_gradient, gated).to(kind) if needs[4] else None,
            *[None] * 6,
        )


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
