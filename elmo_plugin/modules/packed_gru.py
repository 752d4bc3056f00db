"""Bidirectional GRU over packed rows, for training on a CPU."""

import functools
from typing import Any, Optional, Tuple

import torch
from allennlp.modules.seq2seq_encoders import (
    GruSeq2SeqEncoder,
    PytorchSeq2SeqWrapper,
    Seq2SeqEncoder,
)
from torch.nn.functional import linear
from torch.nn.utils.rnn import PackedSequence


class PackedGru(torch.nn.GRU):
    """
    `torch.nn.GRU` with the same arguments, parameters and outputs, and with a faster path. That
    path computes each step for both directions at once. It is for a CPU, a single bidirectional
    layer with biases, and a `PackedSequence`.
    """

    def forward(self, input: Any, hx: Optional[torch.Tensor] = None) -> Tuple[Any, torch.Tensor]:
        """Run the GRU; arguments and results are those of `torch.nn.GRU`."""
        supported = (
            isinstance(input, PackedSequence)
            and self.all_weights[0][0].device.type == "cpu"
            and (self.num_layers, self.bidirectional, self.bias) == (1, True, True)
        )
        if not supported:
            return super().forward(input, hx)  # type: ignore[has-type]
        data, batch_sizes, sorted_indices, unsorted_indices = input
        data = data.to(self.all_weights[0][0].dtype)
        if hx is None:
            hx = data.new_zeros(2, int(batch_sizes[0]), self.hidden_size)
        else:
            hx = self.permute_hidden(hx.to(data.dtype), sorted_indices)
        self.check_forward_args(data, hx, batch_sizes)
        with torch.autocast("cpu", enabled=False):  # it would mix dtypes within a step
            outputs, last = self._both_directions(data, batch_sizes, hx)
        packed = PackedSequence(outputs, batch_sizes, sorted_indices, unsorted_indices)
        return packed, self.permute_hidden(last, unsorted_indices)

    def _both_directions(
        self, data: torch.Tensor, batch_sizes: torch.Tensor, hidden: torch.Tensor
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        """
        Return the outputs, shape `(num_rows, 2 * hidden_size)`, and the final states, in the shape
        of `hidden`. As in `torch.nn.GRU`, the reset gate is applied after the matrix product (`h`
        is the state before a step, `h'` the state after it):

            r, z = sigmoid(W x + b + V h + c)
            n = tanh(W x + b + r * (V h + c))
            h' = n + z (h - n)

        One matrix product per direction computes `W x + b` of all steps. Each step takes one
        batched product for both directions and some elementwise operations.
        """
        forward, backward = self.all_weights
        reverse, last = _reversal_and_ends(batch_sizes)
        # Shape: (2, num_rows, 3 * hidden_size), in blocks of r, z and n
        inputs = torch.stack([linear(data, *forward[::2]), linear(data, *backward[::2])[reverse]])
        weights = torch.stack([forward[1], backward[1]]).transpose(1, 2)
        biases = torch.stack([forward[3], backward[3]]).unsqueeze(1)
        split = [2 * self.hidden_size, self.hidden_size]
        steps = []
        for step in inputs.split(batch_sizes.tolist(), dim=1):
            hidden = hidden[:, : step.size(1)]
            gates, candidate = torch.baddbmm(biases, hidden, weights).split(split, dim=2)
            input_gates, input_candidate = step.split(split, dim=2)
            reset, update = (input_gates + gates).sigmoid().chunk(2, dim=2)
            candidate = torch.addcmul(input_candidate, reset, candidate).tanh()
            hidden = torch.lerp(candidate, hidden, update)
            steps.append(hidden)
        outputs = torch.cat(steps, dim=1)
        return torch.cat([outputs[0], outputs[1, reverse]], dim=1), outputs[:, last]


def _reversal_and_ends(batch_sizes: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    """
    Return the permutation of packed rows that reverses each sentence, shape `(num_rows,)`, and the
    index of each sentence's last row, shape `(batch_size,)`.
    """
    starts = batch_sizes.cumsum(0) - batch_sizes
    sentences = torch.arange(int(batch_sizes[0]))
    # Shape: (num_steps, batch_size); row-major order is the packed order.
    alive = batch_sizes.unsqueeze(1) > sentences
    lengths = alive.sum(0)
    step, sentence = alive.nonzero(as_tuple=True)
    return starts[lengths[sentence] - 1 - step] + sentence, starts[lengths - 1] + sentences


@Seq2SeqEncoder.register("packed_gru", exist_ok=True)
class PackedGruSeq2SeqEncoder(PytorchSeq2SeqWrapper):
    """
    `PackedGru` as a `Seq2SeqEncoder`, with the arguments and parameter names of AllenNLP's `gru`.
    A single bidirectional layer trains two to three times faster on a CPU
    (`benchmarks/encoders.py`).

    # Parameters

    stateful : `bool`, optional (default = `False`)
        If true, each batch starts from the final state of the previous batch.
    """

    # With `wraps`, FromParams sees the signature of AllenNLP's constructor.
    @functools.wraps(GruSeq2SeqEncoder.__init__)  # type: ignore[misc]
    def __init__(self, *arguments: Any, stateful: bool = False, **named: Any) -> None:
        super().__init__(PackedGru(*arguments, batch_first=True, **named), stateful)
