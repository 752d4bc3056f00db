"""A bidirectional GRU over packed rows, its backward pass written by hand."""

from typing import Any, List, NamedTuple, Optional, Tuple

import torch
from allennlp.modules.seq2seq_encoders import PytorchSeq2SeqWrapper, Seq2SeqEncoder
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence

from elmo_plugin.bilm.kernels.chooser import linear, weight_gradient
from elmo_plugin.bilm.kernels.lstm_training import sigmoid_backward


class PackedRows(NamedTuple):
    """
    Where the packed rows of a batch stand to each other.

    # Attributes

    batch_sizes : `List[int]`
        Rows of each time step, falling.
    reverse : `torch.LongTensor`
        Of each row the one that reads as far from its sentence's end as that from its start, shape
        `(num_rows,)`.
    before : `torch.LongTensor`
        Of each row the one of the time step before it, where the initial states stand before the
        first row; shape `(num_rows,)`.
    last : `torch.LongTensor`
        Of each sentence the row of its last time step, shape `(batch_size,)`.
    """

    batch_sizes: List[int]
    reverse: torch.Tensor
    before: torch.Tensor
    last: torch.Tensor

    @classmethod
    def of(cls, batch_sizes: torch.Tensor) -> "PackedRows":
        """From what a `PackedSequence` has under this name."""
        size = int(batch_sizes[0])
        starts = batch_sizes.cumsum(0) - batch_sizes
        sentences = torch.arange(size)
        # Shape: (num_steps, batch_size); row-major order is the packed order.
        alive = batch_sizes.unsqueeze(1) > sentences
        lengths = alive.sum(0)
        step, sentence = alive.nonzero(as_tuple=True)
        # Counted from the first initial state.
        starts_before = torch.cat([starts.new_zeros(1), size + starts[:-1]])
        return cls(
            batch_sizes.tolist(),
            starts[lengths[sentence] - 1 - step] + sentence,
            starts_before[step] + sentence,
            starts[lengths - 1] + sentences,
        )


class BothDirections(torch.autograd.Function):
    """
    A GRU layer's two directions at once, its backward pass written by hand (Cho et al. 2014, with
    the reset gate behind the product, as `torch.nn.GRU` has it):

        r, z = sigmoid(W x + b + V h + c)
        n = tanh(W x + b + r * (V h + c))
        h' = n + z (h - n)

    The blocks of a gate row are `r`, `z` and `n`, each `hidden_size` wide. Input products of all
    steps are one product, and so is each weight's gradient; a step is one product for both
    directions and a few pointwise operations, of which autograd keeps no record.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        forward_weight: torch.Tensor,
        forward_bias: torch.Tensor,
        backward_weight: torch.Tensor,
        backward_bias: torch.Tensor,
        state_weights: torch.Tensor,
        state_biases: torch.Tensor,
        initial: torch.Tensor,
        rows: PackedRows,
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        """
        What autograd calls. Inputs of shape `(num_rows, input_size)`, each direction's input weight
        and bias, and, with the directions as first dimension, state weights, state biases and
        initial states, to outputs of shape `(num_rows, 2 * hidden_size)` and last states.
        """
        size = initial.size(2)
        # Shape: (2, num_rows, 3 * hidden_size); the activations take the products' place.
        gates = inputs.new_empty(2, len(inputs), 3 * size)
        gates[0] = linear(inputs, forward_weight, forward_bias)
        gates[1] = linear(inputs, backward_weight, backward_bias)[rows.reverse]
        outputs, state_candidates = (gates.new_empty(2, len(inputs), size) for _ in range(2))
        transposed, state_biases = state_weights.transpose(1, 2), state_biases.unsqueeze(1)
        hidden = initial
        blocks = gates[..., : 2 * size], *gates.chunk(3, dim=2), outputs, state_candidates
        by_step = (block.split(rows.batch_sizes, dim=1) for block in blocks)
        for both, reset, update, candidate, output, state_candidate in zip(*by_step, strict=True):
            hidden = hidden[:, : output.size(1)]
            products = torch.baddbmm(state_biases, hidden, transposed)
            both.add_(products[..., : 2 * size]).sigmoid_()
            state_candidate.copy_(products[..., 2 * size :])
            candidate.addcmul_(reset, state_candidate).tanh_()
            hidden = torch.lerp(candidate, hidden, update, out=output)
        ctx.save_for_backward(
            inputs,
            forward_weight,
            backward_weight,
            state_weights,
            initial,
            gates,
            outputs,
            state_candidates,
        )
        ctx.rows = rows
        last = outputs[:, rows.last]
        return torch.cat([outputs[0], outputs[1, rows.reverse]], dim=1), last

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_outputs: torch.Tensor, grad_last: torch.Tensor
    ) -> Tuple[Optional[torch.Tensor], ...]:
        """Gradients of all but the rows."""
        # Read once: of gradient checkpointing they can be had no second time.
        inputs, forward_weight, backward_weight, state_weights, *others = ctx.saved_tensors
        initial, gates, outputs, state_candidates = others
        rows: PackedRows = ctx.rows
        size = initial.size(2)
        previous = torch.cat([initial, outputs], dim=1)[:, rows.before]

        # What each block's gradient is as a multiple of the new state's. All of it is known now,
        # for every row at once; the loop multiplies in place.
        reset, update, candidate = gates.chunk(3, dim=2)
        grad_gates = torch.empty_like(gates)
        reset_slope, update_slope, candidate_slope = grad_gates.chunk(3, dim=2)
        input_slope = (1 - update).mul_(1 - candidate * candidate)
        sigmoid_backward(input_slope * state_candidates, reset, reset_slope)
        sigmoid_backward(previous - candidate, update, update_slope)
        torch.mul(input_slope, reset, out=candidate_slope)

        # Of the state after each row, to which the steps after it add.
        grad_hidden = torch.stack([grad_outputs[:, :size], grad_outputs[rows.reverse, size:]])
        grad_hidden[:, rows.last] += grad_last
        slopes = grad_gates.view(*gates.shape[:2], 3, size)
        by_step = [part.split(rows.batch_sizes, dim=1) for part in (grad_hidden, update, slopes)]
        grad_before = initial[:, :0]
        for grad, step_update, step_slopes in reversed(list(zip(*by_step, strict=True))):
            grad[:, : grad_before.size(1)] += grad_before
            step_slopes.mul_(grad.unsqueeze(2))
            grad_before = torch.baddbmm(grad * step_update, step_slopes.flatten(2), state_weights)

        grad_inputs = torch.cat([grad_gates[..., : 2 * size], grad_hidden.mul_(input_slope)], dim=2)
        forward_grad, backward_grad = grad_inputs[0], grad_inputs[1, rows.reverse]
        grad_rows = None
        if ctx.needs_input_grad[0]:
            grad_rows = linear(forward_grad, forward_weight.t())
            grad_rows += linear(backward_grad, backward_weight.t())
        return (
            grad_rows,
            weight_gradient(forward_grad, inputs),
            forward_grad.sum(0),
            weight_gradient(backward_grad, inputs),
            backward_grad.sum(0),
            torch.stack([weight_gradient(*both) for both in zip(grad_gates, previous)]),
            grad_gates.sum(1),
            grad_before,
            None,
        )


class PackedGru(torch.nn.GRU):
    """
    `torch.nn.GRU`: same arguments, same parameters, same numbers. Packed rows on a CPU, in one
    layer and both directions, take a step for both directions at once and have their gradient by
    hand, which PyTorch has not there; a second derivative of these is an error. All else is
    PyTorch's.
    """

    def forward(self, input: Any, hx: Optional[torch.Tensor] = None) -> Tuple[Any, torch.Tensor]:
        """
        # Parameters

        input : `PackedSequence`
            Or a tensor, as `torch.nn.GRU` takes it.
        hx : `Optional[torch.Tensor]`, optional (default = `None`)
            Initial states, shape `(2, batch_size, hidden_size)`; zeros if `None`.

        # Returns

        `Tuple[PackedSequence, torch.Tensor]`
            Outputs of width `2 * hidden_size`, packed like the inputs, and the states after each
            sentence's last step, of the same shape as `hx`.
        """
        here = (
            isinstance(input, PackedSequence)
            and self.all_weights[0][0].device.type == "cpu"
            and (self.num_layers, self.bidirectional, self.bias) == (1, True, True)
        )
        if not here:
            return super().forward(input, hx)  # type: ignore[has-type]
        data, batch_sizes, sorted_indices, unsorted_indices = input
        forward_weights, backward_weights = self.all_weights
        # Autocast has no rule for a function written by hand: it runs in the weights' precision.
        data = data.to(forward_weights[0].dtype)
        if hx is None:
            hx = data.new_zeros(2, int(batch_sizes[0]), self.hidden_size)
        else:
            hx = self.permute_hidden(hx.to(data.dtype), sorted_indices)
        self.check_forward_args(data, hx, batch_sizes)
        with torch.autocast("cpu", enabled=False):
            outputs, last = BothDirections.apply(
                data,
                *forward_weights[::2],
                *backward_weights[::2],
                torch.stack([forward_weights[1], backward_weights[1]]),
                torch.stack([forward_weights[3], backward_weights[3]]),
                hx,
                PackedRows.of(batch_sizes),
            )
        packed = PackedSequence(outputs, batch_sizes, sorted_indices, unsorted_indices)
        return packed, self.permute_hidden(last, unsorted_indices)


@Seq2SeqEncoder.register("packed_gru", exist_ok=True)
class PackedGruSeq2SeqEncoder(PytorchSeq2SeqWrapper):
    """
    AllenNLP's `gru` with `PackedGru`: on a CPU a training step of one bidirectional layer takes
    0.4 to 0.7 of the time (`benchmarks/encoders.py`).

    Registered as a `Seq2SeqEncoder` with name "packed_gru". Parameters are named as in `gru`.

    # Parameters

    input_size : `int`
        The width of the inputs.
    hidden_size : `int`
        The width of one direction's outputs.
    num_layers : `int`, optional (default = `1`)
        How many layers are stacked.
    bias : `bool`, optional (default = `True`)
        Whether products have a bias.
    dropout : `float`, optional (default = `0.0`)
        Probability, between layers.
    bidirectional : `bool`, optional (default = `False`)
        Whether to read right to left, too.
    stateful : `bool`, optional (default = `False`)
        Start each batch from the state in which the last one ended.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        stateful: bool = False,
    ) -> None:
        module = PackedGru(
            input_size=input_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            bias=bias,
            batch_first=True,
            dropout=dropout,
            bidirectional=bidirectional,
        )
        super().__init__(module=module, stateful=stateful)
