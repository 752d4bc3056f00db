"""
Encoder for semantic role labelling: stacked highway LSTM layers with alternating directions.

It implements equations 1 to 6 of He et al. 2017, "Deep Semantic Role Labeling: What Works and
What's Next", section 2.2. Recurrent dropout uses one mask per sentence (Gal and Ghahramani 2016).
AllenNLP 2.10.1 (`stacked_alternating_lstm.py`) computes the same outputs in about twice the time
(`benchmarks/encoders.py`), because it projects the input of one time step at a time.
"""

import functools
from typing import Any, List, Optional, Tuple

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules.augmented_lstm import AugmentedLstm, AugmentedLSTMCell
from allennlp.modules.seq2seq_encoders import PytorchSeq2SeqWrapper, Seq2SeqEncoder
from allennlp.modules.seq2seq_encoders.pytorch_seq2seq_wrapper import (
    StackedAlternatingLstmSeq2SeqEncoder,
)
from allennlp.modules.stacked_alternating_lstm import StackedAlternatingLstm
from allennlp.nn.util import get_dropout_mask
from torch.nn.functional import linear
from torch.nn.utils.rnn import PackedSequence

from elmo_plugin.bilm.kernels.plain import is_plain, plain_affines, plain_class

plain_class(AugmentedLstm)
plain_class(AugmentedLSTMCell)
TensorPair = Tuple[torch.Tensor, torch.Tensor]


class AlternatingLstm(StackedAlternatingLstm):
    """
    Stack of LSTM layers. Layers 0, 2, 4 ... read left to right, the others right to left.

    Constructor arguments, parameters and outputs are those of AllenNLP's `StackedAlternatingLstm`.
    Unlike that class, this one passes gradients through the initial and final states of all
    sentences in the batch.
    """

    def forward(
        self, inputs: PackedSequence, initial_state: Optional[TensorPair] = None
    ) -> Tuple[PackedSequence, TensorPair]:
        """
        Run all layers over packed token vectors of width `input_size`. Return the last layer's
        outputs, and the final hidden and cell states. These and the initial ones, by default
        zeros, have the shape `(num_layers, batch_size, hidden_size)`. Raise a `ConfigurationError`
        if `inputs` is not packed, or `initial_state` is not for `num_layers` layers.
        """
        if not isinstance(inputs, PackedSequence):
            raise ConfigurationError(f"inputs are {type(inputs)}, a PackedSequence is needed")
        num_layers = len(self.lstm_layers)
        if initial_state is not None and initial_state[0].size(0) != num_layers:
            raise ConfigurationError(
                f"initial_state has {initial_state[0].size(0)} layers, the encoder has {num_layers}"
            )
        data, batch_sizes, sorted_indices, unsorted_indices = inputs
        states: List[Any] = [None] * num_layers  # initial ones, which final ones replace
        if initial_state is not None:
            states = list(zip(*(_ordered(state, sorted_indices) for state in initial_state)))
        for index, state in enumerate(states):
            layer: Any = getattr(self, f"layer_{index}")
            data, states[index] = _run_layer(layer, data, batch_sizes, state)
        hidden, memory = (_ordered(torch.stack(final), unsorted_indices) for final in zip(*states))
        outputs = PackedSequence(data, batch_sizes, sorted_indices, unsorted_indices)
        return outputs, (hidden, memory)


def _ordered(state: torch.Tensor, indices: Optional[torch.Tensor]) -> torch.Tensor:
    return state if indices is None else state.index_select(1, indices)


def _run_layer(
    layer: AugmentedLstm, inputs: torch.Tensor, sizes: torch.Tensor, state: Optional[TensorPair]
) -> Tuple[torch.Tensor, TensorPair]:
    """
    Run a layer over packed `inputs`, shape `(num_rows, input_size)`. `sizes` holds the number of
    rows of each time step. `state` holds the initial hidden and cell states; `None` means zeros.
    Return the outputs, shape `(num_rows, hidden_size)`, and the final hidden and cell states.

    A row of gates consists of blocks of width `hidden_size`: input gate `i`, forget gate `f`,
    candidate `g` and output gate `o`. A highway connection adds two blocks: its gate `r`, and the
    projected input `p`, which has no recurrent part. The output is then `r * h + (1 - r) * p`.

    If the layer, its cell or a linear layer was replaced or hooked, AllenNLP's `forward` runs.
    """
    affines = None
    if is_plain(layer, AugmentedLstm) and is_plain(layer.cell, AugmentedLSTMCell):
        cell, linear_class = layer.cell, torch.nn.Linear
        affines = plain_affines([
            (cell.input_linearity, linear_class, cell.use_bias),
            (cell.state_linearity, linear_class, True),
        ])  # fmt: skip
    if affines is None:
        outputs, (hidden, memory) = layer(PackedSequence(inputs, sizes), state)
        return outputs.data, (hidden.squeeze(0), memory.squeeze(0))
    (weight, bias), (recurrent_weight, recurrent_bias) = affines
    batch_sizes, size, width = sizes.tolist(), layer.cell.lstm_dim, len(recurrent_bias)
    inputs = inputs.to(weight.dtype)
    if state is None:
        state = (inputs.new_zeros(batch_sizes[0], size),) * 2
    hidden, memory = (part.to(weight.dtype) for part in state)
    mask = torch.ones_like(memory)
    if layer.recurrent_dropout_probability > 0.0:
        # Like AllenNLP, draw the mask in evaluation too: a seed then gives the same random numbers.
        drawn = get_dropout_mask(layer.recurrent_dropout_probability, memory)
        mask = drawn.to(mask) if layer.training else mask
    steps = []
    with torch.autocast(inputs.device.type, enabled=False):
        # One matrix product projects the inputs of all steps.
        projected = linear(inputs, weight, bias)
        recurrent_weight = recurrent_weight.t()
        blocks = projected[:, :width] + recurrent_bias, projected[:, width:]
        by_step = list(zip(*(block.split(batch_sizes) for block in blocks)))
        for gates, direct in by_step if layer.go_forward else reversed(by_step):
            rows = len(gates)
            gates = torch.addmm(gates, hidden[:rows] * mask[:rows], recurrent_weight)
            i, f, _, o, *r = gates.sigmoid().split(size, dim=1)
            candidate = gates[:, 2 * size : 3 * size].tanh()
            new_memory = torch.addcmul(f * memory[:rows], i, candidate)
            output = o * new_memory.tanh()
            if r:
                output = torch.lerp(direct, output, r[0])
            steps.append(output)
            # Sentences that have ended, or not begun in reverse order, keep their state.
            hidden = torch.cat([output, hidden[rows:]])
            memory = torch.cat([new_memory, memory[rows:]])
    outputs = torch.cat(steps if layer.go_forward else steps[::-1])
    return outputs, (hidden, memory)


@Seq2SeqEncoder.register("alternating_lstm", exist_ok=True)
class AlternatingLstmSeq2SeqEncoder(PytorchSeq2SeqWrapper):
    """
    `AlternatingLstm` as a `Seq2SeqEncoder`, with the arguments and parameter names of AllenNLP's
    `alternating_lstm`.

    # Parameters

    stateful : `bool`, optional (default = `False`)
        If true, each batch starts from the final state of the previous batch.
    """

    # With `wraps`, FromParams sees the signature of AllenNLP's constructor.
    @functools.wraps(StackedAlternatingLstmSeq2SeqEncoder.__init__)  # type: ignore[misc]
    def __init__(self, *arguments: Any, stateful: bool = False, **named: Any) -> None:
        super().__init__(module=AlternatingLstm(*arguments, **named), stateful=stateful)
