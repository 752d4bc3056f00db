"""
The SRL encoder: a stack of highway LSTM layers that read the sentence left to right and right to
left in turn.

He et al. 2017, "Deep Semantic Role Labeling: What Works and What's Next", section 2.2, equations
1-6; the recurrent dropout is that of Gal and Ghahramani 2016: one mask for the whole sentence. The
semantics are those of `allennlp/modules/stacked_alternating_lstm.py` and `augmented_lstm.py` of
AllenNLP 2.10.1.
"""

from typing import List, Optional, Tuple

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules.augmented_lstm import AugmentedLSTMCell
from allennlp.modules.seq2seq_encoders import PytorchSeq2SeqWrapper, Seq2SeqEncoder
from allennlp.nn.util import get_dropout_mask
from torch.nn.utils.rnn import PackedSequence

from elmo_plugin.modules.highway_lstm import HighwayLstm, time_steps

TensorPair = Tuple[torch.Tensor, torch.Tensor]


class AlternatingLstmLayer(torch.nn.Module):
    """
    One direction of the stack: an LSTM with an optional highway connection and recurrent dropout.

    AllenNLP's `AugmentedLSTMCell` holds the parameters, so names and initial values are AllenNLP's;
    its per-step `forward` is never called.

    # Parameters

    input_size : `int`
        The width of the inputs.
    hidden_size : `int`
        The width of the outputs.
    go_forward : `bool`
        Read left to right, else right to left.
    recurrent_dropout_probability : `float`
        The probability that a unit of the previous hidden state is zeroed, for the whole sentence.
    use_highway : `bool`
        Add the highway connection.
    use_input_projection_bias : `bool`
        Add a bias to the input projection, beside that of the recurrent one.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        go_forward: bool,
        recurrent_dropout_probability: float,
        use_highway: bool,
        use_input_projection_bias: bool,
    ) -> None:
        super().__init__()
        self.go_forward = go_forward
        self.recurrent_dropout_probability = recurrent_dropout_probability
        self.cell = AugmentedLSTMCell(
            input_size, hidden_size, use_highway, use_input_projection_bias
        )

    def forward(
        self, inputs: torch.Tensor, batch_sizes: List[int], state: Optional[TensorPair]
    ) -> Tuple[torch.Tensor, TensorPair]:
        """
        # Parameters

        inputs : `torch.Tensor`
            Packed rows, longest sentence first, shape `(num_rows, input_size)`.
        batch_sizes : `List[int]`
            How many sentences reach each time step.
        state : `Optional[TensorPair]`
            The hidden state and the memory before the first step, each of shape `(batch_size,
            hidden_size)`; zeros if `None`.

        # Returns

        `Tuple[torch.Tensor, TensorPair]`
            Packed outputs, shape `(num_rows, hidden_size)`, and the state after each sentence's
            last step.
        """
        input_linearity, state_linearity = self.cell.input_linearity, self.cell.state_linearity
        weight = input_linearity.weight
        # Autocast has no rule for a function written by hand: it runs in the weights' own
        # precision.
        inputs = inputs.to(weight.dtype)
        if state is None:
            zeros = inputs.new_zeros(batch_sizes[0], self.cell.lstm_dim)
            state = (zeros, zeros)
        state = (state[0].to(weight.dtype), state[1].to(weight.dtype))
        dropout_mask = None
        if self.recurrent_dropout_probability > 0.0:
            # Drawn in evaluation too, as AllenNLP does: a seeded run consumes the same random
            # numbers.
            dropout_mask = get_dropout_mask(self.recurrent_dropout_probability, state[1])
        # The recurrent bias has no block for the projected input of the highway connection.
        bias = torch.nn.functional.pad(
            state_linearity.bias, (0, weight.size(0) - state_linearity.bias.size(0))
        )
        if input_linearity.bias is not None:
            bias = bias + input_linearity.bias
        with torch.autocast(inputs.device.type, enabled=False):
            outputs, hidden, memory = HighwayLstm.apply(
                inputs,
                weight,
                bias,
                state_linearity.weight,
                state[0],
                state[1],
                dropout_mask if self.training else None,
                time_steps(batch_sizes, self.go_forward),
            )
        return outputs, (hidden, memory)


class AlternatingLstm(torch.nn.Module):
    """
    A stack of LSTM layers, the even ones left to right and the odd ones right to left.

    Takes the place of `allennlp.modules.stacked_alternating_lstm.StackedAlternatingLstm`: same
    arguments, same parameter names, same numbers. Two things differ. Gradients reach every row of
    `initial_state`, where AllenNLP's cut off those of a right-to-left layer's shorter sentences,
    and every row of the final state, where AllenNLP's cut off those that end before the longest;
    and a second derivative is an error.

    # Parameters

    input_size : `int`
        The width of the inputs.
    hidden_size : `int`
        The width of every layer's outputs.
    num_layers : `int`
        How many layers are stacked.
    recurrent_dropout_probability : `float`, optional (default = `0.0`)
        The probability that a unit of the previous hidden state is zeroed, one draw for a whole
        sentence and layer.
    use_highway : `bool`, optional (default = `True`)
        Give each layer a highway connection around its LSTM.
    use_input_projection_bias : `bool`, optional (default = `True`)
        Add a bias to each layer's input projection, beside that of the recurrent one.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        recurrent_dropout_probability: float = 0.0,
        use_highway: bool = True,
        use_input_projection_bias: bool = True,
    ) -> None:
        super().__init__()
        # `PytorchSeq2SeqWrapper` reads these two.
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        for index in range(num_layers):
            layer = AlternatingLstmLayer(
                input_size if index == 0 else hidden_size,
                hidden_size,
                go_forward=index % 2 == 0,
                recurrent_dropout_probability=recurrent_dropout_probability,
                use_highway=use_highway,
                use_input_projection_bias=use_input_projection_bias,
            )
            self.add_module(f"layer_{index}", layer)

    @property
    def lstm_layers(self) -> List["AlternatingLstmLayer"]:
        """The layers, the lowest first."""
        return [getattr(self, f"layer_{index}") for index in range(self.num_layers)]

    def forward(
        self, inputs: PackedSequence, initial_state: Optional[TensorPair] = None
    ) -> Tuple[PackedSequence, TensorPair]:
        """
        # Parameters

        inputs : `PackedSequence`
            The sentences, packed.
        initial_state : `Optional[TensorPair]`, optional (default = `None`)
            Hidden state and memory, each of shape `(num_layers, batch_size, hidden_size)`; zeros if
            `None`.

        # Returns

        `Tuple[PackedSequence, TensorPair]`
            The last layer's outputs, packed like the inputs, and every layer's final hidden state
            and memory, each of shape `(num_layers, batch_size, hidden_size)`.

        # Raises

        `ConfigurationError`
            If `inputs` is not packed, or `initial_state` has another number of layers.
        """
        if not isinstance(inputs, PackedSequence):
            raise ConfigurationError(f"inputs are {type(inputs)}, a PackedSequence is needed")
        if initial_state is not None and initial_state[0].size(0) != self.num_layers:
            raise ConfigurationError(
                f"initial_state has {initial_state[0].size(0)} layers, "
                f"the encoder has {self.num_layers}"
            )
        data, batch_sizes, sorted_indices, unsorted_indices = inputs
        if initial_state is not None and sorted_indices is not None:
            hidden, memory = (state.index_select(1, sorted_indices) for state in initial_state)
            initial_state = (hidden, memory)
        sizes = batch_sizes.tolist()
        final_states = []
        for index, layer in enumerate(self.lstm_layers):
            state = (initial_state[0][index], initial_state[1][index]) if initial_state else None
            data, final_state = layer(data, sizes, state)
            final_states.append(final_state)
        hidden, memory = (torch.stack(states) for states in zip(*final_states, strict=True))
        if unsorted_indices is not None:
            hidden = hidden.index_select(1, unsorted_indices)
            memory = memory.index_select(1, unsorted_indices)
        outputs = PackedSequence(data, batch_sizes, sorted_indices, unsorted_indices)
        return outputs, (hidden, memory)


@Seq2SeqEncoder.register("alternating_lstm", exist_ok=True)
class AlternatingLstmSeq2SeqEncoder(PytorchSeq2SeqWrapper):
    """
    `AlternatingLstm` as a `Seq2SeqEncoder`; arguments and parameter names as AllenNLP 2.10.1's
    `alternating_lstm`.

    # Parameters

    input_size : `int`
        The width of the inputs.
    hidden_size : `int`
        The width of the outputs.
    num_layers : `int`
        How many layers are stacked.
    recurrent_dropout_probability : `float`, optional (default = `0.0`)
        The probability that a unit of the previous hidden state is zeroed, one draw for a whole
        sentence and layer.
    use_highway : `bool`, optional (default = `True`)
        Give each layer a highway connection around its LSTM.
    use_input_projection_bias : `bool`, optional (default = `True`)
        Add a bias to each layer's input projection, beside that of the recurrent one.
    stateful : `bool`, optional (default = `False`)
        Start each batch from the state in which the last one ended.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        recurrent_dropout_probability: float = 0.0,
        use_highway: bool = True,
        use_input_projection_bias: bool = True,
        stateful: bool = False,
    ) -> None:
        module = AlternatingLstm(
            input_size,
            hidden_size,
            num_layers,
            recurrent_dropout_probability,
            use_highway,
            use_input_projection_bias,
        )
        super().__init__(module=module, stateful=stateful)
