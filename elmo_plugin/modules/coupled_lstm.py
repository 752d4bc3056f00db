"""Bidirectional LSTM of Lee et al. 2017: coupled gates and a learned initial state."""

from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules import Seq2SeqEncoder


class CoupledLstmDirection(torch.nn.Module):
    """
    One direction of `CoupledLstm`. The pre-activations `i` (input gate), `j` (candidate) and `o`
    (output gate) are linear in the input and the previous hidden state:

        c' = (1 - sigmoid(i)) * c + sigmoid(i) * tanh(j)
        h' = sigmoid(o) * tanh(c')

    `input_size`, `hidden_size` and `recurrent_dropout` are those of `CoupledLstm`.
    """

    def __init__(self, input_size: int, hidden_size: int, recurrent_dropout: float) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.recurrent_dropout = recurrent_dropout
        self.input_linearity = torch.nn.Linear(input_size, 3 * hidden_size)
        self.state_linearity = torch.nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        self.initial_state = torch.nn.Parameter(torch.empty(1, hidden_size))
        self.initial_cell = torch.nn.Parameter(torch.empty(1, hidden_size))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize gate matrices as orthogonal, biases as 0, initial states as Xavier uniform."""
        input_size = self.input_linearity.in_features
        for gate in range(3):
            rows = slice(gate * self.hidden_size, (gate + 1) * self.hidden_size)
            both = torch.empty(self.hidden_size, input_size + self.hidden_size)
            torch.nn.init.orthogonal_(both)
            self.input_linearity.weight[rows] = both[:, :input_size]
            self.state_linearity.weight[rows] = both[:, input_size:]
        torch.nn.init.zeros_(self.input_linearity.bias)
        torch.nn.init.xavier_uniform_(self.initial_state)
        torch.nn.init.xavier_uniform_(self.initial_cell)

    def forward(self, inputs: torch.Tensor, mask: torch.Tensor, reverse: bool) -> torch.Tensor:
        """
        Run over `inputs`, shape `(batch_size, num_tokens, input_size)`, from the last token to the
        first if `reverse`. `mask` is true for real tokens, which come first. Return the outputs,
        shape `(batch_size, num_tokens, hidden_size)`; values at padding are undefined.
        """
        batch_size, num_tokens, _ = inputs.shape
        state = self.initial_state.expand(batch_size, -1)
        cell = self.initial_cell.expand(batch_size, -1)
        dropout = torch.nn.functional.dropout(
            torch.ones_like(state), self.recurrent_dropout, self.training
        )
        projected = self.input_linearity(inputs).unbind(1)
        real = mask.unsqueeze(2).unbind(1)
        outputs = [state] * num_tokens
        for step in range(num_tokens)[:: -1 if reverse else 1]:
            gates = projected[step] + self.state_linearity(state * dropout)
            update, candidate, output = gates.chunk(3, dim=1)
            update = torch.sigmoid(update)
            # In reverse order, padding is read first. It must not change the initial state.
            cell = torch.where(
                real[step], (1 - update) * cell + update * torch.tanh(candidate), cell
            )
            state = torch.where(real[step], torch.sigmoid(output) * torch.tanh(cell), state)
            outputs[step] = state
        return torch.stack(outputs, dim=1)


@Seq2SeqEncoder.register("coupled_lstm", exist_ok=True)
class CoupledLstm(Seq2SeqEncoder):
    """
    Bidirectional LSTM layer of Lee et al. 2017 (e2e-coref at 53c4116, util.py:138-197). The forget
    gate is one minus the input gate, and the initial states are learned.

    Registered as a `Seq2SeqEncoder` with name "coupled_lstm".

    # Parameters

    input_size : `int`
    hidden_size : `int`
        Width of one direction's outputs.
    recurrent_dropout : `float`, optional (default = `0.0`)
        Dropout probability of the hidden state from which the gates are computed. One mask applies
        to all steps of a sequence.

    # Raises

    `ConfigurationError`
        If a size is not positive or the dropout is not a probability.
    """

    def __init__(self, input_size: int, hidden_size: int, recurrent_dropout: float = 0.0) -> None:
        super().__init__()
        if input_size < 1 or hidden_size < 1 or not 0 <= recurrent_dropout < 1:
            raise ConfigurationError(
                f"found input_size {input_size}, hidden_size {hidden_size}, recurrent_dropout "
                f"{recurrent_dropout}; expected sizes from 1 and a probability below 1"
            )
        self.forward_direction = CoupledLstmDirection(input_size, hidden_size, recurrent_dropout)
        self.backward_direction = CoupledLstmDirection(input_size, hidden_size, recurrent_dropout)

    def forward(self, inputs: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        """
        Run the LSTM over a batch of sequences.

        # Parameters

        inputs : `torch.Tensor`
            Shape `(batch_size, num_tokens, input_size)`.
        mask : `torch.Tensor`, optional (default = `None`)
            Bool, true for real tokens, which come first, shape `(batch_size, num_tokens)`.

        # Returns

        `torch.Tensor`
            Shape `(batch_size, num_tokens, 2 * hidden_size)`, forward half first; 0 at padding.
        """
        if mask is None:
            mask = torch.ones(inputs.shape[:2], dtype=torch.bool, device=inputs.device)
        forward = self.forward_direction(inputs, mask, reverse=False)
        backward = self.backward_direction(inputs, mask, reverse=True)
        return torch.cat([forward, backward], dim=2) * mask.unsqueeze(2)

    def get_input_dim(self) -> int:
        """Return `input_size`."""
        return self.forward_direction.input_linearity.in_features

    def get_output_dim(self) -> int:
        """Return `2 * hidden_size`."""
        return 2 * self.forward_direction.hidden_size

    def is_bidirectional(self) -> bool:
        """Return `True`."""
        return True
