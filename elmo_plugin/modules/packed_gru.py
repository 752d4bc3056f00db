"""Bidirectional GRU over packed rows, for training on a CPU."""

import functools
from typing import Any, List, NamedTuple, Optional, Tuple

import torch
from allennlp.modules.seq2seq_encoders import (
    GruSeq2SeqEncoder,
    PytorchSeq2SeqWrapper,
    Seq2SeqEncoder,
)
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from elmo_plugin.bilm.kernels.gradients import hand_written, sigmoid_backward, weight_gradient


class PackedRows(NamedTuple):
    """
    Indices into the rows (tokens) of a `PackedSequence`.

    # Attributes

    batch_sizes : `List[int]`
        Number of rows of each time step, non-increasing.
    reverse : `torch.LongTensor`
        Permutation of the rows that reverses each sentence, shape `(num_rows,)`.
    before : `torch.LongTensor`
        Index of the state before each row, shape `(num_rows,)`. It refers to the initial states,
        one per sentence, concatenated with the states after all rows.
    last : `torch.LongTensor`
        Index of the row of each sentence's last token, shape `(batch_size,)`.
    """

    batch_sizes: List[int]
    reverse: torch.Tensor
    before: torch.Tensor
    last: torch.Tensor

    @classmethod
    def of(cls, batch_sizes: torch.Tensor) -> "PackedRows":
        """Compute the indices of a `PackedSequence` from its `batch_sizes`."""
        size = int(batch_sizes[0])
        starts = batch_sizes.cumsum(0) - batch_sizes
        sentences = torch.arange(size)
        # Shape: (num_steps, batch_size); row-major order is the packed order.
        alive = batch_sizes.unsqueeze(1) > sentences
        lengths = alive.sum(0)
        step, sentence = alive.nonzero(as_tuple=True)
        starts_before = torch.cat([starts.new_zeros(1), size + starts[:-1]])
        return cls(
            batch_sizes.tolist(),
            starts[lengths[sentence] - 1 - step] + sentence,
            starts_before[step] + sentence,
            starts[lengths - 1] + sentences,
        )


class BothDirections(torch.autograd.Function):
    """
    Autograd function for both directions of a GRU layer (Cho et al. 2014). As in `torch.nn.GRU`,
    the reset gate is applied after the matrix product:

        r, z = sigmoid(W x + b + V h + c)
        n = tanh(W x + b + r * (V h + c))
        h' = n + z (h - n)

    A row of gates consists of the blocks `r`, `z` and `n`, each of width `hidden_size`. One matrix
    product per direction computes the input projections of all steps, and one the gradient of each
    weight. Each step takes one batched product for both directions and some elementwise operations.
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
        Return the outputs, shape `(num_rows, 2 * hidden_size)`, and the final states of both
        directions, shape `(2, batch_size, hidden_size)`. `inputs` has the shape `(num_rows,
        input_size)`. `state_weights`, `state_biases` and `initial` have the direction as dimension
        0.
        """
        size = initial.size(2)
        # Shape: (2, num_rows, 3 * hidden_size). Activations overwrite the pre-activations.
        gates = inputs.new_empty(2, len(inputs), 3 * size)
        gates[0] = functional.linear(inputs, forward_weight, forward_bias)
        gates[1] = functional.linear(inputs, backward_weight, backward_bias)[rows.reverse]
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
        buffers = gates, outputs, state_candidates
        weights = forward_weight, backward_weight, state_weights
        ctx.save_for_backward(inputs, *weights, initial, *buffers)
        ctx.rows = rows
        last = outputs[:, rows.last]
        return torch.cat([outputs[0], outputs[1, rows.reverse]], dim=1), last

    @staticmethod
    @hand_written()
    def backward(
        ctx: Any, grad_outputs: torch.Tensor, grad_last: torch.Tensor
    ) -> Tuple[Optional[torch.Tensor], ...]:
        """Return the gradients of the arguments of `forward`, and `None` for `rows`."""
        # Unpack only once: gradient checkpointing allows no second access.
        inputs, forward_weight, backward_weight, state_weights, *others = ctx.saved_tensors
        initial, gates, outputs, state_candidates = others
        rows: PackedRows = ctx.rows
        size = initial.size(2)
        previous = torch.cat([initial, outputs], dim=1)[:, rows.before]

        # For all rows at once, compute the derivatives of the new state with respect to the
        # pre-activations of r, z and n. The loop below multiplies them by the state's gradient.
        reset, update, candidate = gates.chunk(3, dim=2)
        grad_gates = torch.empty_like(gates)
        reset_slope, update_slope, candidate_slope = grad_gates.chunk(3, dim=2)
        input_slope = (1 - update).mul_(1 - candidate * candidate)
        sigmoid_backward(input_slope * state_candidates, reset, reset_slope)
        sigmoid_backward(previous - candidate, update, update_slope)
        torch.mul(input_slope, reset, out=candidate_slope)

        # Gradient of the state after each row, to which the loop adds that of the following step.
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
            grad_rows = functional.linear(forward_grad, forward_weight.t())
            grad_rows += functional.linear(backward_grad, backward_weight.t())
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
    `torch.nn.GRU` with the same arguments, parameters and outputs, and with a faster path. That
    path computes each step for both directions at once. It is for a CPU, a single bidirectional
    layer with biases, and a `PackedSequence`. Double backward through it raises an error.
    """

    def forward(self, input: Any, hx: Optional[torch.Tensor] = None) -> Tuple[Any, torch.Tensor]:
        """
        Run the GRU over a batch of sequences.

        # Parameters

        input : `Union[PackedSequence, torch.Tensor]`
            Packed or padded sequences. The faster path needs packed ones.
        hx : `Optional[torch.Tensor]`, optional (default = `None`)
            Initial states, shape `(num_layers * num_directions, batch_size, hidden_size)`; zeros if
            `None`.

        # Returns

        `Tuple[Union[PackedSequence, torch.Tensor], torch.Tensor]`
            Outputs of width `num_directions * hidden_size`, of the same type as `input`; and the
            final states, in the shape of `hx`.
        """
        supported = (
            isinstance(input, PackedSequence)
            and self.all_weights[0][0].device.type == "cpu"
            and (self.num_layers, self.bidirectional, self.bias) == (1, True, True)
        )
        if not supported:
            return super().forward(input, hx)  # type: ignore[has-type]
        data, batch_sizes, sorted_indices, unsorted_indices = input
        forward_weights, backward_weights = self.all_weights
        # Cast to the weights' dtype: autocast does not cast for custom autograd functions.
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
    `PackedGru` as a `Seq2SeqEncoder`, with the arguments and parameter names of AllenNLP's `gru`.
    A single bidirectional layer trains several times faster on a CPU (`benchmarks/encoders.py`).

    # Parameters

    stateful : `bool`, optional (default = `False`)
        If true, each batch starts from the final state of the previous batch.
    """

    # With `wraps`, FromParams sees the signature of AllenNLP's constructor.
    @functools.wraps(GruSeq2SeqEncoder.__init__)  # type: ignore[misc]
    def __init__(self, *arguments: Any, stateful: bool = False, **named: Any) -> None:
        super().__init__(PackedGru(*arguments, batch_first=True, **named), stateful)
