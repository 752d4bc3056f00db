"""Trainable LSTM layer with a hand-written gradient."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import reference
from elmo_plugin.bilm.kernels.gradients import (
    hand_written,
    linear_of_rounded,
    rounded,
    sigmoid_backward,
    stored_clip,
    weight_gradient,
)
from elmo_plugin.bilm.kernels.interface import LstmWeights


class Saved(NamedTuple):
    """
    Tensors saved for the backward pass: gate activations, shape `(num_rows, 4 * cell_size)`, and
    cell states, shape `(num_rows, cell_size)`.
    """

    activations: torch.Tensor
    cells: torch.Tensor

    def of(self, rows: slice) -> "Saved":
        """Return a `Saved` whose tensors are views of these rows."""
        return Saved(self.activations[rows], self.cells[rows])


class TrainingSteps:
    """
    Forward and backward computation of LSTM steps, without their projection, in PyTorch's
    operators. Use one object per pass over a batch. In shapes, `size` is the number of sentences
    that have the step.

    # Parameters

    cell_clip : `float | None`
        Largest absolute value in cell states; `None` for no limit.
    """

    _grad_bias: torch.Tensor | None = None

    def __init__(self, cell_clip: float | None) -> None:
        self._cell_clip = cell_clip

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
        Compute one step up to the projection.

        # Parameters

        sources : `torch.Tensor`
            Inputs and hidden states, concatenated: shape `(size, input_dim + projection_dim)`.
        weight, bias : `torch.Tensor`
            Shapes `(4 * cell_size, input_dim + projection_dim)` and `(4 * cell_size,)`.
        cell : `torch.Tensor`
            Cell states, shape `(size, cell_size)`; overwritten with the new ones.
        gated : `torch.Tensor`
            Receives `sigmoid(o) tanh(c)`, the input of the projection; shape of `cell`.
        saved : `Saved`
            Receives the step's gate activations and new cell states.
        """
        products = linear_of_rounded(sources, weight, bias, bias.dtype)
        # Compute tanh(x) as 2 sigmoid(2 x) - 1, several times faster in PyTorch on a CPU.
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
        """
        Run the backward pass of one step.

        # Parameters

        saved : `Saved`
            Tensors that `forward_step` wrote for this step.
        previous_cell, grad_gated : `torch.Tensor`
            Cell states before the step, and gradient of the gated output, `o * tanh(c)`; shape
            `(size, cell_size)`, with `size` sentences in this step.
        grad_cell : `torch.Tensor`
            Gradient of the new cell states; overwritten with that of the previous ones.
        grad_gates : `torch.Tensor`
            Receives the gradient of the gates' pre-activations, shape `(size, 4 * cell_size)`.
        """
        gates, cell = saved
        cell_tanh = _tanh(cell)
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=1)
        grad_gated = grad_gated.to(gates.dtype)
        grad_cell += torch.ops.aten.tanh_backward(grad_gated * output_gate, cell_tanh)
        if self._cell_clip is not None:
            _clip_backward(grad_cell, cell, self._cell_clip, out=grad_cell)
        # Even if `grad_gates` is rounded, the bias's gradient is computed from unrounded values.
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
        """
        Return the gradient of the bias, summed over all steps before rounding, in `dtype`.
        `grad_gates` holds the rows that all backward steps wrote.
        """
        if self._grad_bias is None:
            return grad_gates.sum(dim=0, dtype=dtype)
        return self._grad_bias


def definition(
    ctx: Any, saved: Sequence[torch.Tensor]
) -> tuple[Callable[..., torch.Tensor], Sequence[torch.Tensor]]:
    """
    Return the reference forward function, and the saved arguments to call it with. Double
    backward differentiates it.
    """

    def outputs(inputs: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        input_weight, state_weight, bias, projection = weights
        layer = LstmWeights(
            input_weight, state_weight, bias, projection, ctx.cell_clip, ctx.projection_clip
        )
        return reference.lstm_layer(inputs, ctx.batch_sizes, hidden, cell, layer)[0]

    hidden, cell = saved[5:7]
    return outputs, saved[:5]


class LstmLayerTraining(torch.autograd.Function):
    """
    `reference.lstm_layer` with a hand-written gradient.

    Input and state weights are concatenated. Each step then multiplies by both in one product,
    whose operands stay in the CPU's cache. One product over all rows gives both weights' gradient.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        Run the layer and return what `Backend.lstm_layer` returns. Arguments: `inputs`, the four
        tensors of `LstmWeights`, `hidden`, `cell`, `batch_sizes`, `cell_clip`, `projection_clip`,
        `training_dtype` and `steps` (a subclass of `TrainingSteps`).
        """
        tensors = arguments[:7]
        inputs, input_weight, state_weight, bias, projection, hidden, cell = tensors
        batch_sizes, cell_clip, projection_clip, training_dtype, steps = arguments[7:]
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
        cell_clip = stored_clip(cell_clip, cell.dtype)
        projection_clip = stored_clip(projection_clip, projection.dtype)
        step = steps(cell_clip)
        final_cell = cell.clone()
        ended = []
        start = 0
        for size in batch_sizes:
            rows = slice(start, start + size)
            ended.append(hidden[size:])
            sources[rows, input_dim:] = hidden[:size]
            step_cell, step_gated = final_cell[:size], gated[rows]
            step.forward_step(sources[rows], weight, bias, step_cell, step_gated, saved.of(rows))
            output = functional.linear(step_gated, projection)
            if projection_clip is not None:
                output.clamp_(-projection_clip, projection_clip)
            hidden = outputs[rows]
            hidden.copy_(output)
            start += size
        final_hidden = torch.cat([hidden, *reversed(ended)])
        # To save memory, `weight` is not saved: backward concatenates it again.
        ctx.save_for_backward(*tensors, sources, gated, outputs, *saved)
        ctx.training_dtype, ctx.batch_sizes = training_dtype, batch_sizes
        ctx.cell_clip, ctx.projection_clip = cell_clip, projection_clip
        ctx.steps, ctx.input_dim = steps, input_dim
        ctx.mark_non_differentiable(final_hidden, final_cell)
        return outputs, final_hidden, final_cell

    @staticmethod
    @hand_written(definition)
    def backward(ctx: Any, grad_outputs: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        """Return the gradients of `inputs` and of the four weights."""
        saved_tensors = ctx.saved_tensors  # with gradient checkpointing they can be read only once
        _, input_weight, state_weight, _, projection, _, first_cell = saved_tensors[:7]
        sources, gated, outputs, *rows_of_steps = saved_tensors[7:]
        saved = Saved(*rows_of_steps)
        projection = rounded(projection, ctx.training_dtype)
        weight = _side_by_side(input_weight, state_weight, ctx.training_dtype)
        input_dim, projection_clip = ctx.input_dim, ctx.projection_clip
        grad_gates = weight.new_empty(len(outputs), len(weight))
        grad_projected = projection.new_empty(outputs.shape)
        grad_inputs = outputs.new_empty(len(outputs), input_dim)
        grad_hidden = outputs.new_zeros(0, outputs.shape[1])
        grad_cell = torch.zeros_like(first_cell)
        step = ctx.steps(ctx.cell_clip)
        starts = [0, *accumulate(ctx.batch_sizes)]
        for number, size in reversed(list(enumerate(ctx.batch_sizes))):
            rows = slice(starts[number], starts[number] + size)
            before = saved.cells[starts[number - 1] :] if number else first_cell
            step_grad = _add_to_first_rows(grad_outputs[rows], grad_hidden)
            if projection_clip is not None:
                step_grad = _clip_backward(step_grad, outputs[rows], projection_clip)
            grad_projected[rows] = step_grad
            # Shape: (size, cell_size)
            grad_gated = functional.linear(grad_projected[rows], projection.t())
            step.backward_step(
                saved.of(rows), before[:size], grad_gated, grad_cell[:size], grad_gates[rows]
            )
            grad_sources = functional.linear(grad_gates[rows], weight.t())
            grad_inputs[rows] = grad_sources[:, :input_dim]
            grad_hidden = grad_sources[:, input_dim:]
        dtype, needs = outputs.dtype, ctx.needs_input_grad
        grad_input_weight = grad_state_weight = None
        if needs[1] or needs[2]:
            grad_weight = weight_gradient(grad_gates, sources).to(dtype)
            grad_input_weight, grad_state_weight = grad_weight.tensor_split([input_dim], dim=1)
        return (
            grad_inputs,
            grad_input_weight,
            grad_state_weight,
            step.grad_bias(grad_gates, dtype),
            weight_gradient(grad_projected, gated).to(dtype) if needs[4] else None,
            *[None] * 7,
        )


def _side_by_side(
    input_weight: torch.Tensor, state_weight: torch.Tensor, training_dtype: str | None
) -> torch.Tensor:
    """Concatenate and round both weights: shape `(4 * cell_size, input_dim + projection_dim)`."""
    return rounded(torch.cat([input_weight, state_weight], dim=1), training_dtype)


def _tanh(values: torch.Tensor) -> torch.Tensor:
    """Compute tanh by a sigmoid; forward and backward call this to get bitwise identical values."""
    return (values + values).sigmoid_().mul_(2).sub_(1)


def _add_to_first_rows(gradient: torch.Tensor, of_first: torch.Tensor) -> torch.Tensor:
    """Return `gradient` with `of_first` added to its first rows."""
    if len(of_first) == len(gradient):
        return gradient + of_first
    total = gradient.clone()
    total[: len(of_first)] += of_first
    return total


def _clip_backward(
    gradient: torch.Tensor, clipped: torch.Tensor, clip: float, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the gradient through a clip: `gradient`, but zero where the value was clipped."""
    out = torch.empty_like(gradient) if out is None else out
    return torch.ops.aten.hardtanh_backward.grad_input(
        gradient, clipped, -clip, clip, grad_input=out
    )
