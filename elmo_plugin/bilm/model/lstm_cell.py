"""
A layer of one direction of the biLM: a clipped LSTM with projection, over packed rows.
"""

from typing import Iterable, Iterator, Optional, Sequence, Union

import torch

from elmo_plugin.bilm.kernels import fused_steps
from elmo_plugin.bilm.kernels.lstm_training import Recurrence
from elmo_plugin.bilm.kernels.prepacked_linear import ROWS_IN_STEPS_OF, Product, filled_up
from elmo_plugin.bilm.kernels.product_module import ProductModule

# Input products are taken for several steps at a time: about this many elements (8 MB), large
# enough for a fast matrix product, small enough for the processor's cache, and for the allocator
# to keep instead of asking the system for it again.
INPUT_PRODUCT_ELEMENTS = 1 << 21
# On a GPU as many as `BiLm` runs at once, for the Original 134 MB.
INPUT_PRODUCT_ELEMENTS_ON_GPU = 1 << 25


class LstmCellWithProjection(ProductModule):
    """
    One layer of one direction (Sak et al. 2014, with the clipping of TensorFlow 1's `LSTMCell`).

    With `z = W x + U h + b` cut into gates `i, f, g, o`:
    `c = clip(sigmoid(f) c + sigmoid(i) tanh(g))`, `h = clip(P (sigmoid(o) tanh(c)))`.

    Parameters are named and ordered as in AllenNLP's `LstmCellWithProjection`; TensorFlow's forget
    bias of 1 is part of `state_linearity.bias`.

    # Parameters

    input_dim : `int`
        Width of the input.
    projection_dim : `int`
        Width of the output `h`.
    cell_size : `int`
        Width of the memory cell `c`.
    cell_clip, projection_clip : `Optional[float]`, optional (default = `3.0`)
        Largest absolute value of `c` and `h`; `None` for no limit.
    """

    def __init__(
        self,
        input_dim: int,
        projection_dim: int,
        cell_size: int,
        cell_clip: Optional[float] = 3.0,
        projection_clip: Optional[float] = 3.0,
    ) -> None:
        super().__init__()
        self.cell_clip = cell_clip
        self.projection_clip = projection_clip
        self.input_linearity = torch.nn.Linear(input_dim, 4 * cell_size, bias=False)
        self.state_linearity = torch.nn.Linear(projection_dim, 4 * cell_size, bias=True)
        self.state_projection = torch.nn.Linear(cell_size, projection_dim, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """
        TensorFlow 1's defaults, with which bilm-tf trains: Glorot-uniform kernels, forget bias 1.
        """
        kernel = torch.empty(
            4 * self.cell_size, self.input_linearity.in_features + self.projection_dim
        )
        torch.nn.init.xavier_uniform_(kernel)
        with torch.no_grad():
            self.input_linearity.weight.copy_(kernel[:, : self.input_linearity.in_features])
            self.state_linearity.weight.copy_(kernel[:, self.input_linearity.in_features :])
            self.state_linearity.bias.zero_()
            self.state_linearity.bias[self.cell_size : 2 * self.cell_size] = 1.0
        torch.nn.init.xavier_uniform_(self.state_projection.weight)

    @property
    def cell_size(self) -> int:
        """Width of the memory cell."""
        return self.state_projection.in_features

    @property
    def projection_dim(self) -> int:
        """Width of the output."""
        return self.state_projection.out_features

    def forward(
        self,
        inputs: torch.Tensor,
        batch_sizes: Sequence[int],
        hidden: torch.Tensor,
        cell: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        # Parameters

        inputs : `torch.Tensor`
            Packed rows, shape `(num_rows, input_dim)`.
        batch_sizes : `Sequence[int]`
            Rows of each step, falling; their sum is `num_rows`.
        hidden, cell : `torch.Tensor`
            The start, shapes `(batch_size, projection_dim)` and `(batch_size, cell_size)`; taken as
            constants (no gradient flows into an earlier batch).

        # Returns

        `tuple[torch.Tensor, torch.Tensor, torch.Tensor]`
            Packed outputs, shape `(num_rows, projection_dim)`; final `hidden` and `cell`, each
            sentence's at its own last step, detached.
        """
        inputs = inputs.to(self.input_linearity.weight.dtype)
        hidden, cell = hidden.detach(), cell.detach().contiguous()
        bias = self.state_linearity.bias
        weights = (
            self.input_linearity.weight,
            self.state_linearity.weight,
            bias,
            self.state_projection.weight,
        )
        clips = (self.cell_clip, self.projection_clip)
        needs_gradient = torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in (inputs, *weights)
        )
        # In mixed precision too (the trainer's `use_amp`) the recurrence keeps the weights' type.
        with torch.autocast(inputs.device.type, enabled=False):
            if needs_gradient:
                return Recurrence.apply(
                    inputs, *weights, hidden, cell, tuple(batch_sizes), *clips, self.training_dtype
                )
            with torch.no_grad():
                step = self._step(cell)
                input_product = self.product(self.input_linearity.weight, for_many_rows=True)
                return _run(
                    _input_products(input_product, inputs, batch_sizes, bias, step),
                    self.product(self.state_linearity.weight, convert=step.of_gates),
                    self.product(self.state_projection.weight, convert=step.of_projection),
                    step,
                    batch_sizes,
                    hidden,
                    cell,
                    self.projection_clip,
                )

    def _step(self, like: torch.Tensor) -> "Step":
        kind = torch.bfloat16 if self.dtype == "bfloat16" else like.dtype
        if fused_steps.usable(like, kind, training=False):
            return fused_steps.FusedStep(self.cell_clip, kind)
        return PlainStep(self.cell_clip)


class PlainStep:
    """
    What is elementwise in a step, by PyTorch's operators; see `fused_steps` for GPUs.

    Since `tanh(x) = 2 sigmoid(2 x) - 1`, several times faster in PyTorch on a processor, the
    sums come with the inner 2 of the candidate in them, the projection with the outer 2 of the
    cell's tanh, and the cell is held doubled.

    # Parameters

    cell_clip : `Optional[float]`
        See `LstmCellWithProjection`.
    """

    cell_scale = 2

    def __init__(self, cell_clip: Optional[float]) -> None:
        self._cell_clip = cell_clip

    def of_gates(self, parameter: torch.Tensor) -> torch.Tensor:
        """Rows of the gates `i, f, g, o`, those of `g` twice as large: exact."""
        doubled = parameter.detach().clone()
        cell_size = len(doubled) // 4
        doubled[2 * cell_size : 3 * cell_size] *= 2
        return doubled

    def of_input_products(self, products: torch.Tensor) -> torch.Tensor:
        """The same of what a weight as it is gave, shape `(num_rows, 4 * cell_size)`, in place."""
        cell_size = products.shape[1] // 4
        products[:, 2 * cell_size : 3 * cell_size] *= 2
        return products

    def of_projection(self, parameter: torch.Tensor) -> torch.Tensor:
        """Twice the projection."""
        return 2 * parameter.detach()

    def __call__(
        self, state_product: Product, gates: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
    ) -> torch.Tensor:
        """
        # Parameters

        state_product : `Product`
            With `of_gates` of the weight.
        gates : `torch.Tensor`
            The input's part of their sums, by `of_input_products`, shape `(size, 4 * cell_size)`;
            may be overwritten.
        hidden : `torch.Tensor`
            What `state_product` multiplies, shape `(size, projection_dim)`.
        cell : `torch.Tensor`
            Shape `(size, cell_size)`, times `cell_scale`; becomes the new one.

        # Returns

        `torch.Tensor`
            What `of_projection` of the weight multiplies, shape `(size, cell_size)`.
        """
        state_product.add_to(gates, hidden)
        gates.sigmoid_()
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=1)
        cell.mul_(forget_gate).addcmul_(input_gate, candidate.sub_(0.5), value=4)
        if self._cell_clip is not None:
            cell.clamp_(-2 * self._cell_clip, 2 * self._cell_clip)
        return cell.sigmoid().sub_(0.5).mul_(output_gate)


Step = Union[PlainStep, fused_steps.FusedStep]


def _input_products(
    product: Product,
    inputs: torch.Tensor,
    batch_sizes: Sequence[int],
    bias: torch.Tensor,
    step: Step,
) -> Iterator[torch.Tensor]:
    """Each step's `W x + b`, shape `(size, 4 * cell_size)`, computed several steps at a time."""
    elements = INPUT_PRODUCT_ELEMENTS_ON_GPU if inputs.is_cuda else INPUT_PRODUCT_ELEMENTS
    most_rows = elements // len(bias)
    start = done = 0
    while done < len(batch_sizes):
        sizes, num_rows = [batch_sizes[done]], batch_sizes[done]
        for size in batch_sizes[done + 1 :]:
            if num_rows + size > most_rows:
                break
            sizes.append(size)
            num_rows += size
        rows = inputs[start : start + num_rows]
        filled = filled_up(rows, -len(rows) % ROWS_IN_STEPS_OF)
        yield from step.of_input_products(product(filled, bias)[: len(rows)]).split(sizes)
        start += len(rows)
        done += len(sizes)


def _run(
    input_products: Iterable[torch.Tensor],
    state_product: Product,
    projection: Product,
    step: Step,
    batch_sizes: Sequence[int],
    hidden: torch.Tensor,
    cell: torch.Tensor,
    projection_clip: Optional[float],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    kind = cell.dtype
    outputs: list[torch.Tensor] = []
    ended: list[tuple[torch.Tensor, torch.Tensor]] = []
    with torch.inference_mode():
        cell = step.cell_scale * cell
        for size, gates in zip(batch_sizes, input_products):
            if size < len(hidden):
                ended.append((hidden[size:], cell[size:]))
                hidden, cell = hidden[:size], cell[:size]
            hidden = projection(step(state_product, gates, hidden, cell))
            if projection_clip is not None:
                hidden.clamp_(-projection_clip, projection_clip)
            outputs.append(hidden)
            # The last let their memory go, before the next are made.
            del gates
        ended.append((hidden, cell))
    # Not in inference mode: a step that trains may start with these.
    final_hidden, final_cell = (torch.cat(parts) for parts in zip(*reversed(ended)))
    packed = torch.cat(outputs or [hidden[:0]])
    return packed.to(kind), final_hidden.to(kind), final_cell / step.cell_scale
