"""Highway LSTM layer over packed rows, as an autograd function."""

from typing import Any, List, Optional, Tuple

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.gradients import hand_written, sigmoid_backward, weight_gradient


def time_steps(batch_sizes: List[int], go_forward: bool) -> List[Tuple[int, int]]:
    """
    Return the range `(start, end)` of packed rows for each time step. Steps are ordered from first
    to last if `go_forward` is true, else from last to first. `batch_sizes` holds their row counts.
    """
    steps = []
    start = 0
    for size in batch_sizes:
        steps.append((start, start + size))
        start += size
    return steps if go_forward else steps[::-1]


class HighwayLstm(torch.autograd.Function):
    """
    Autograd function for one direction of an LSTM layer, with an optional highway connection.

    Inputs are packed rows, one for each of the `num_rows` real tokens in the batch, without
    padding. The input projections of all steps are computed in one matrix product, and so is the
    gradient of each weight. Each step needs one product with the recurrent weight and a few
    elementwise in-place operations.

    A row of gates consists of blocks of width `hidden_size`: input gate `i`, forget gate `f`,
    candidate `g` and output gate `o`. A highway connection adds two blocks: its gate `r`, and the
    projected input `p`, which has no recurrent part. The output is then `r * h + (1 - r) * p`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        input_weight: torch.Tensor,
        bias: torch.Tensor,
        state_weight: torch.Tensor,
        initial_hidden: torch.Tensor,
        initial_memory: torch.Tensor,
        dropout_mask: Optional[torch.Tensor],
        steps: List[Tuple[int, int]],
    ) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        Return the outputs, shape `(num_rows, hidden_size)`, and the final hidden states and cell
        states of the sentences, both of shape `(batch_size, hidden_size)`. `inputs` has the shape
        `(num_rows, input_size)`, and `steps` is a result of `time_steps`.
        """
        num_rows, size = inputs.size(0), initial_hidden.size(1)
        highway = input_weight.size(0) == 6 * size
        recurrent_width = state_weight.size(0)

        # Shape: (num_rows, 4 or 6 * hidden_size). Activations overwrite the pre-activations.
        gates = functional.linear(inputs, input_weight, bias)
        outputs, previous_hidden, previous_memory, squashed = (
            inputs.new_empty(num_rows, size) for _ in range(4)
        )
        hidden, memory = initial_hidden.clone(), initial_memory.clone()
        for start, end in steps:
            count = end - start
            step_hidden, step_memory = hidden[:count], memory[:count]
            step_previous = previous_hidden[start:end]
            if dropout_mask is None:
                step_previous.copy_(step_hidden)
            else:
                torch.mul(step_hidden, dropout_mask[:count], out=step_previous)
            previous_memory[start:end].copy_(step_memory)

            step_gates = gates[start:end]
            step_gates[:, :recurrent_width].add_(functional.linear(step_previous, state_weight))
            step_gates[:, : 2 * size].sigmoid_()
            step_gates[:, 2 * size : 3 * size].tanh_()
            step_gates[:, 3 * size : recurrent_width].sigmoid_()
            blocks = step_gates.view(count, -1, size)
            step_memory.mul_(blocks[:, 1]).addcmul_(blocks[:, 0], blocks[:, 2])
            step_squashed = torch.tanh(step_memory, out=squashed[start:end])
            torch.mul(blocks[:, 3], step_squashed, out=step_hidden)
            if highway:
                torch.lerp(blocks[:, 5], step_hidden, blocks[:, 4], out=step_hidden)
            outputs[start:end].copy_(step_hidden)

        buffers = gates, previous_hidden, previous_memory, squashed
        ctx.save_for_backward(inputs, input_weight, state_weight, dropout_mask, *buffers)
        ctx.steps = steps
        return outputs, hidden, memory

    @staticmethod
    @hand_written()
    def backward(
        ctx: Any,
        grad_outputs: torch.Tensor,
        grad_hidden: torch.Tensor,
        grad_memory: torch.Tensor,
    ) -> Tuple[Optional[torch.Tensor], ...]:
        """Return the gradients of the arguments of `forward`, and `None` for the last two."""
        inputs, input_weight, state_weight, dropout_mask, *buffers = ctx.saved_tensors
        gates, previous_hidden, previous_memory, squashed = buffers
        num_rows, size = squashed.shape
        recurrent_width = state_weight.size(0)
        blocks = gates.view(num_rows, -1, size)
        i, f, g, o = (blocks[:, k] for k in range(4))

        # Compute local derivatives for all rows at once: those of the cell state for i, f and g,
        # those of the output for o, r and p. The loop below multiplies each by the gradient of the
        # cell state or of the output.
        grad_gates = torch.empty_like(gates)
        slopes = grad_gates.view(num_rows, -1, size)
        through_output = o
        if blocks.size(1) == 6:
            r, p = blocks[:, 4], blocks[:, 5]
            sigmoid_backward(torch.mul(o, squashed).sub_(p), r, slopes[:, 4])
            torch.sub(1, r, out=slopes[:, 5])
            sigmoid_backward(torch.mul(squashed, r), o, slopes[:, 3])
            through_output = o * r
        else:
            sigmoid_backward(squashed, o, slopes[:, 3])
        memory_slope = torch.ops.aten.tanh_backward(through_output, squashed)
        sigmoid_backward(g, i, slopes[:, 0])
        sigmoid_backward(previous_memory, f, slopes[:, 1])
        torch.ops.aten.tanh_backward.grad_input(i, g, grad_input=slopes[:, 2])

        hidden, memory = (
            grad.clone(memory_format=torch.contiguous_format) for grad in (grad_hidden, grad_memory)
        )
        transposed = state_weight.t()
        for start, end in reversed(ctx.steps):
            count = end - start
            step_hidden, step_memory = hidden[:count], memory[:count]
            step_hidden.add_(grad_outputs[start:end])
            step_memory.addcmul_(step_hidden, memory_slope[start:end])
            step_slopes = slopes[start:end]
            step_slopes[:, :3].mul_(step_memory.unsqueeze(1))
            step_slopes[:, 3:].mul_(step_hidden.unsqueeze(1))
            step_memory.mul_(f[start:end])
            step_grad = functional.linear(grad_gates[start:end, :recurrent_width], transposed)
            if dropout_mask is None:
                step_hidden.copy_(step_grad)
            else:
                torch.mul(step_grad, dropout_mask[:count], out=step_hidden)

        needs = ctx.needs_input_grad
        return (
            functional.linear(grad_gates, input_weight.t()) if needs[0] else None,
            weight_gradient(grad_gates, inputs) if needs[1] else None,
            grad_gates.sum(0) if needs[2] else None,
            weight_gradient(grad_gates[:, :recurrent_width], previous_hidden) if needs[3] else None,
            hidden if needs[4] else None,
            memory if needs[5] else None,
            None,
            None,
        )
