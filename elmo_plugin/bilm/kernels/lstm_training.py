"""An LSTM layer in training: its steps, and its gradient by hand."""

from abc import ABC, abstractmethod
from itertools import accumulate
from typing import Any, NamedTuple

import torch

from elmo_plugin.bilm.kernels.training_linear import (
    Matmul,
    differentiable_once,
    matmul_of_rounded,
    rounded,
    weight_gradient,
)


class Saved(NamedTuple):
    """For backward: gates and cells, shapes `(size, 4 * cell_size)` and `(size, cell_size)`."""

    activations: torch.Tensor
    cells: torch.Tensor

    def of(self, rows: slice) -> "Saved":
        """Those of some rows."""
        return Saved(self.activations[rows], self.cells[rows])


class TrainingSteps(ABC):
    """
    What is elementwise in a step and in its gradient; one object serves one pass.

    # Parameters

    cell_clip : `float | None`
        Largest absolute value of the cell.
    matmul : `Matmul`
        What multiplies.
    """

    def __init__(self, cell_clip: float | None, matmul: Matmul) -> None:
        self._cell_clip = cell_clip
        self._matmul = matmul

    @abstractmethod
    def forward_step(
        self,
        sources: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        cell: torch.Tensor,
        gated: torch.Tensor,
        saved: Saved,
    ) -> None:
        """
        # Parameters

        sources : `torch.Tensor`
            Inputs and hidden states, shape `(size, input_dim + projection_dim)`.
        weight, bias : `torch.Tensor`
            Shapes `(4 * cell_size, input_dim + projection_dim)` and `(4 * cell_size,)`.
        cell : `torch.Tensor`
            Shape `(size, cell_size)`; becomes the new one.
        gated : `torch.Tensor`
            `sigmoid(o) tanh(c)`, what is projected, is written here; the same shape.
        saved : `Saved`
            The step's are written here.
        """

    @abstractmethod
    def backward_step(
        self,
        saved: Saved,
        previous_cell: torch.Tensor,
        grad_gated: torch.Tensor,
        grad_cell: torch.Tensor,
        grad_gates: torch.Tensor,
    ) -> None:
        """
        # Parameters

        saved : `Saved`
            What the same step's `forward_step` wrote.
        previous_cell, grad_gated : `torch.Tensor`
            The cell before the step, and the gradient of `gated`; shape `(size, cell_size)`.
        grad_cell : `torch.Tensor`
            The new cell's; becomes that of the previous one.
        grad_gates : `torch.Tensor`
            Shape `(size, 4 * cell_size)`: the gradient of the gates' sums is written here.
        """

    @abstractmethod
    def grad_bias(self, grad_gates: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Over the steps so far; `grad_gates` is all that they wrote, `dtype` the bias's."""


class PlainTrainingSteps(TrainingSteps):
    """By PyTorch's operators."""

    _grad_bias: torch.Tensor | None = None

    def forward_step(
        self,
        sources: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        cell: torch.Tensor,
        gated: torch.Tensor,
        saved: Saved,
    ) -> None:
        """As `TrainingSteps.forward_step`."""
        products = matmul_of_rounded(sources, weight, bias, bias.dtype, self._matmul)
        # tanh(x) = 2 sigmoid(2 x) - 1, several times faster in PyTorch on a processor.
        products.chunk(4, dim=1)[2].mul_(2)
        gates = torch.sigmoid(products, out=saved.activations)
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=1)
        candidate.mul_(2).sub_(1)
        cell.mul_(forget_gate).addcmul_(input_gate, candidate)
        if self._cell_clip is not None:
            cell.clamp_(-self._cell_clip, self._cell_clip)
        saved.cells.copy_(cell)
        torch.mul(output_gate, _tanh(cell), out=gated)

    def backward_step(
        self,
        saved: Saved,
        previous_cell: torch.Tensor,
        grad_gated: torch.Tensor,
        grad_cell: torch.Tensor,
        grad_gates: torch.Tensor,
    ) -> None:
        """As `TrainingSteps.backward_step`."""
        gates, cell = saved
        cell_tanh = _tanh(cell)
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=1)
        grad_gated = grad_gated.to(gates.dtype)
        grad_cell += torch.ops.aten.tanh_backward(grad_gated * output_gate, cell_tanh)
        if self._cell_clip is not None:
            _clip_backward(grad_cell, cell, self._cell_clip, out=grad_cell)
        # Where products are rounded, the bias's gradient is of what is not.
        same = grad_gates.dtype == gates.dtype
        step_grad = grad_gates if same else torch.empty_like(gates)
        grad_input, grad_forget, grad_candidate, grad_output = step_grad.chunk(4, dim=1)
        sigmoid_backward(grad_cell * candidate, input_gate, out=grad_input)
        sigmoid_backward(grad_cell * previous_cell, forget_gate, out=grad_forget)
        torch.ops.aten.tanh_backward.grad_input(
            grad_cell * input_gate, candidate, grad_input=grad_candidate
        )
        sigmoid_backward(grad_gated * cell_tanh, output_gate, out=grad_output)
        step_sum = step_grad.sum(dim=0)
        if self._grad_bias is None:
            self._grad_bias = step_sum
        else:
            self._grad_bias += step_sum
        grad_cell *= forget_gate
        if not same:
            grad_gates.copy_(step_grad)

    def grad_bias(self, grad_gates: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """As `TrainingSteps.grad_bias`."""
        if self._grad_bias is None:
            return grad_gates.sum(dim=0, dtype=dtype)
        return self._grad_bias


class LstmLayerTraining(torch.autograd.Function):
    """
    `reference.lstm_layer` with its gradient by hand.

    A step multiplies its input and the hidden state before it, side by side, with both weights at
    once, while all of it is in the processor's cache; so does its gradient. The weights' gradients
    are one product over all rows.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        `inputs`, the four tensors of `LstmWeights`, `hidden`, `cell`, `batch_sizes`, `cell_clip`,
        `projection_clip`, `training_dtype`, `steps` (a class of `TrainingSteps`) and `matmul`, to
        what `Backend.lstm_layer` returns.
        """
        inputs, input_weight, state_weight, bias, projection, hidden, cell = arguments[:7]
        batch_sizes, cell_clip, projection_clip, training_dtype, steps, matmul = arguments[7:]
        input_dim, cell_size = inputs.shape[1], cell.shape[1]
        weight = _side_by_side(input_weight, state_weight, training_dtype)
        projection = rounded(projection, training_dtype)
        # Shape: (num_rows, input_dim + projection_dim)
        sources = weight.new_empty(len(inputs), weight.shape[1])
        sources[:, :input_dim] = inputs
        # Shape: (num_rows, cell_size)
        gated = weight.new_empty(len(inputs), cell_size)
        outputs = inputs.new_empty(len(inputs), len(projection))
        widths = len(weight), cell_size
        saved = Saved(*(cell.new_empty(len(inputs), width) for width in widths))
        step = steps(cell_clip, matmul)
        final_cell = cell.clone()
        ended = []
        start = 0
        for size in batch_sizes:
            rows = slice(start, start + size)
            ended.append(hidden[size:])
            sources[rows, input_dim:] = hidden[:size]
            step_cell, step_gated = final_cell[:size], gated[rows]
            step.forward_step(sources[rows], weight, bias, step_cell, step_gated, saved.of(rows))
            output = matmul(step_gated, projection, None)
            if projection_clip is not None:
                output.clamp_(-projection_clip, projection_clip)
            hidden = outputs[rows]
            hidden.copy_(output)
            start += size
        final_hidden = torch.cat([hidden, *reversed(ended)])
        # Not `weight`, which is made again: a copy of every layer's would wait for the gradients.
        kept = input_weight, state_weight, projection, cell, sources, gated, outputs
        ctx.save_for_backward(*kept, *saved)
        ctx.training_dtype, ctx.batch_sizes = training_dtype, batch_sizes
        ctx.new_steps = lambda: steps(cell_clip, matmul)
        ctx.input_dim, ctx.projection_clip, ctx.matmul = input_dim, projection_clip, matmul
        ctx.mark_non_differentiable(final_hidden, final_cell)
        return outputs, final_hidden, final_cell

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_outputs: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        """Gradients of the first five."""
        input_weight, state_weight, projection, first_cell, *others = ctx.saved_tensors
        sources, gated, outputs, *rows_of_steps = others  # checkpointing gives them once
        saved = Saved(*rows_of_steps)
        weight = _side_by_side(input_weight, state_weight, ctx.training_dtype)
        input_dim, projection_clip, matmul = ctx.input_dim, ctx.projection_clip, ctx.matmul
        grad_gates = weight.new_empty(len(outputs), len(weight))
        grad_projected = projection.new_empty(outputs.shape)
        grad_inputs = outputs.new_empty(len(outputs), input_dim)
        grad_hidden = outputs.new_zeros(0, outputs.shape[1])
        grad_cell = torch.zeros_like(first_cell)
        step = ctx.new_steps()
        starts = [0, *accumulate(ctx.batch_sizes)]
        for number, size in reversed(list(enumerate(ctx.batch_sizes))):
            rows = slice(starts[number], starts[number] + size)
            before = saved.cells[starts[number - 1] :] if number else first_cell
            step_grad = _add_to_first_rows(grad_outputs[rows], grad_hidden)
            if projection_clip is not None:
                step_grad = _clip_backward(step_grad, outputs[rows], projection_clip)
            grad_projected[rows] = step_grad
            # Shape: (size, cell_size)
            grad_gated = matmul(grad_projected[rows], projection.t(), None)
            step.backward_step(
                saved.of(rows), before[:size], grad_gated, grad_cell[:size], grad_gates[rows]
            )
            grad_sources = matmul(grad_gates[rows], weight.t(), None)
            grad_inputs[rows] = grad_sources[:, :input_dim]
            grad_hidden = grad_sources[:, input_dim:]
        dtype, needs = outputs.dtype, ctx.needs_input_grad
        grad_input_weight = grad_state_weight = None
        if needs[1] or needs[2]:
            grad_weight = weight_gradient(grad_gates, sources, matmul).to(dtype)
            grad_input_weight, grad_state_weight = grad_weight.tensor_split([input_dim], dim=1)
        return (
            grad_inputs,
            grad_input_weight,
            grad_state_weight,
            step.grad_bias(grad_gates, dtype),
            weight_gradient(grad_projected, gated, matmul).to(dtype) if needs[4] else None,
            *[None] * 8,
        )


def _side_by_side(
    input_weight: torch.Tensor, state_weight: torch.Tensor, training_dtype: str | None
) -> torch.Tensor:
    """Both weights as one, shape `(4 * cell_size, input_dim + projection_dim)`."""
    return rounded(torch.cat([input_weight, state_weight], dim=1), training_dtype)


def _tanh(values: torch.Tensor) -> torch.Tensor:
    """As in the forward step, and so the same bits in both passes."""
    return (values + values).sigmoid_().mul_(2).sub_(1)


def _add_to_first_rows(gradient: torch.Tensor, of_first: torch.Tensor) -> torch.Tensor:
    """The sum of both, where the second has the first rows only."""
    if len(of_first) == len(gradient):
        return gradient + of_first
    total = gradient.clone()
    total[: len(of_first)] += of_first
    return total


def _clip_backward(
    gradient: torch.Tensor, clipped: torch.Tensor, clip: float, out: torch.Tensor | None = None
) -> torch.Tensor:
    """The gradient where the clip left the value alone, zero elsewhere."""
    out = torch.empty_like(gradient) if out is None else out
    return torch.ops.aten.hardtanh_backward.grad_input(
        gradient, clipped, -clip, clip, grad_input=out
    )


def sigmoid_backward(gradient: torch.Tensor, gate: torch.Tensor, out: torch.Tensor) -> None:
    """`gradient * gate * (1 - gate)` into `out`, in one pass over memory."""
    torch.ops.aten.sigmoid_backward.grad_input(gradient, gate, grad_input=out)
