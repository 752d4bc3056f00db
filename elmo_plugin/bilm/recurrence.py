"""The biLM's recurrence in training: its steps, and its gradient by hand."""

import itertools
from typing import Any

import torch
from torch.nn import functional


class Recurrence(torch.autograd.Function):
    """
    The recurrence with its gradient by hand: only what a step must wait for runs step by step; the
    weights' gradients are one matrix product each over all rows.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        `inputs`, `input_weight`, `state_weight`, `bias`, `projection`, `hidden`, `cell`,
        `batch_sizes`, `cell_clip`, `projection_clip` to what `LstmCellWithProjection` returns.
        """
        inputs, input_weight, state_weight, bias, projection, hidden, cell = arguments[:7]
        batch_sizes, *clips = arguments[7:]
        cell_clip, projection_clip = clips
        cell_size = cell.shape[1]
        state_transposed, projection_transposed = state_weight.t(), projection.t()
        # The input products; each step's gates take their place.
        gates = functional.linear(inputs, input_weight, bias)
        outputs = inputs.new_empty(len(inputs), len(projection))
        cells, cell_tanhs = (inputs.new_empty(len(inputs), cell_size) for _ in range(2))
        final_hidden, final_cell = hidden.clone(), cell.clone()
        start = 0
        for size in batch_sizes:
            rows = slice(start, start + size)
            step_gates, step_cell = gates[rows], final_cell[:size]
            step_gates.addmm_(final_hidden[:size], state_transposed)
            candidate = step_gates[:, 2 * cell_size : 3 * cell_size]
            # tanh(x) = 2 sigmoid(2 x) - 1, several times faster in PyTorch on a processor.
            candidate.mul_(2)
            step_gates.sigmoid_()
            candidate.mul_(2).sub_(1)
            input_gate, forget_gate, _, output_gate = step_gates.chunk(4, dim=1)
            step_cell.mul_(forget_gate).addcmul_(input_gate, candidate)
            if cell_clip is not None:
                step_cell.clamp_(-cell_clip, cell_clip)
            cells[rows] = step_cell
            cell_tanh = torch.mul(step_cell, 2, out=cell_tanhs[rows])
            cell_tanh.sigmoid_().mul_(2).sub_(1)
            output = torch.mm(output_gate * cell_tanh, projection_transposed, out=outputs[rows])
            if projection_clip is not None:
                output.clamp_(-projection_clip, projection_clip)
            final_hidden[:size] = output
            start += size
        ctx.save_for_backward(
            inputs, input_weight, state_weight, projection, hidden, cell, outputs,
            gates, cells, cell_tanhs,
        )  # fmt: skip
        ctx.batch_sizes = batch_sizes
        ctx.cell_clip, ctx.projection_clip = clips
        ctx.mark_non_differentiable(final_hidden, final_cell)
        return outputs, final_hidden, final_cell

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, output_gradient: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        """Gradients of the first five."""
        (
            inputs, input_weight, state_weight, projection, first_hidden, first_cell, outputs,
            gates, cells, cell_tanhs,
        ) = ctx.saved_tensors  # fmt: skip
        batch_sizes = ctx.batch_sizes
        cell_size = cells.shape[1]
        gate_gradient = torch.empty_like(gates)
        projected_gradient = torch.empty_like(outputs)
        hidden_gradient = torch.zeros_like(first_hidden)
        cell_gradient = torch.zeros_like(first_cell)
        end = inputs.shape[0]
        for step in range(len(batch_sizes) - 1, -1, -1):
            size = batch_sizes[step]
            start = end - size
            rows = slice(start, end)
            if step == 0:
                previous_cell = first_cell[:size]
            else:
                # The rows of the step before, as many of them as go on.
                before = start - batch_sizes[step - 1]
                previous_cell = cells[before : before + size]
            input_gate, forget_gate, candidate, output_gate = gates[rows].chunk(4, dim=1)
            cell_tanh = cell_tanhs[rows]

            step_projected = output_gradient[rows] + hidden_gradient[:size]
            if ctx.projection_clip is not None:
                step_projected *= outputs[rows].abs() < ctx.projection_clip
            projected_gradient[rows] = step_projected
            # Shape: (size, cell_size)
            gated = step_projected @ projection
            step_cell = cell_gradient[:size]
            step_cell.addcmul_(gated * output_gate, 1 - cell_tanh * cell_tanh)
            if ctx.cell_clip is not None:
                step_cell *= cells[rows].abs() < ctx.cell_clip

            for_input, for_forget, for_candidate, for_output = gate_gradient[rows].chunk(4, dim=1)
            torch.mul(step_cell * candidate, input_gate * (1 - input_gate), out=for_input)
            torch.mul(step_cell * previous_cell, forget_gate * (1 - forget_gate), out=for_forget)
            torch.mul(step_cell * input_gate, 1 - candidate * candidate, out=for_candidate)
            torch.mul(gated * cell_tanh, output_gate * (1 - output_gate), out=for_output)
            step_cell *= forget_gate
            hidden_gradient[:size] = gate_gradient[rows] @ state_weight
            end = start

        previous_hidden = _shifted(outputs, first_hidden, batch_sizes)
        gated_outputs = gates[:, 3 * cell_size :] * cell_tanhs
        needs = ctx.needs_input_grad
        return (
            gate_gradient @ input_weight if needs[0] else None,
            gate_gradient.t() @ inputs if needs[1] else None,
            gate_gradient.t() @ previous_hidden if needs[2] else None,
            gate_gradient.sum(dim=0) if needs[3] else None,
            projected_gradient.t() @ gated_outputs if needs[4] else None,
            *[None] * 5,
        )


def _shifted(rows: torch.Tensor, first: torch.Tensor, batch_sizes: tuple[int, ...]) -> torch.Tensor:
    """Each packed row's row of the step before; `first` for step 0."""
    pieces = [first[: batch_sizes[0]]]
    start = 0
    for size, next_size in itertools.pairwise(batch_sizes):
        pieces.append(rows[start : start + next_size])
        start += size
    return torch.cat(pieces)
