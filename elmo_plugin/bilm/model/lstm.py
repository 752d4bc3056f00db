"""
The biLM's recurrence: stacks of clipped LSTM layers with projection, one stack a direction.

Rows are *packed, time-major*: sentences sorted by falling length, step 0 of all of them first, then
step 1 of those that have one, and so on; `batch_sizes[t]` says how many. Padding is never computed.
The backward direction is the same code on sentences that were reversed within their own length.
"""

from typing import Any, NamedTuple, Optional, Sequence

import torch
from torch.nn import functional

from elmo_plugin.bilm.model.lstm_cell import LstmCellWithProjection


class LstmState(NamedTuple):
    """
    One direction's recurrent state.

    `hidden`: shape `(num_layers, batch_size, projection_dim)`, the clipped outputs.
    `cell`: shape `(num_layers, batch_size, cell_size)`, the clipped memory cells.
    """

    hidden: torch.Tensor
    cell: torch.Tensor

    def map(self, function: Any) -> "LstmState":
        """The function of both."""
        return LstmState(function(self.hidden), function(self.cell))


class BiLstm(torch.nn.Module):
    """
    Two independent stacks of `LstmCellWithProjection`, one a direction.

    Layers above the first add their input to their output where `use_skip_connections` is on:
    outside the recurrence and after the clip, so those outputs may pass the clip
    (https://github.com/allenai/bilm-tf/blob/7cffee2/bilm/model.py).

    # Parameters

    projection_dim : `int`
        Width of the input and of each direction's output.
    cell_size : `int`
        Width of the memory cells.
    num_layers : `int`
        Layers in each direction.
    cell_clip, projection_clip : `Optional[float]`, optional (default = `3.0`)
        See `LstmCellWithProjection`.
    use_skip_connections : `bool`, optional (default = `True`)
        Whether layers 1 and up are residual.
    """

    def __init__(
        self,
        *,
        projection_dim: int,
        cell_size: int,
        num_layers: int,
        cell_clip: Optional[float] = 3.0,
        projection_clip: Optional[float] = 3.0,
        use_skip_connections: bool = True,
    ) -> None:
        super().__init__()
        self.projection_dim = projection_dim
        self.cell_size = cell_size
        self.num_layers = num_layers
        self.use_skip_connections = use_skip_connections
        for layer in range(num_layers):
            for direction in ("forward", "backward"):
                self.add_module(
                    f"{direction}_layer_{layer}",
                    LstmCellWithProjection(
                        projection_dim, projection_dim, cell_size, cell_clip, projection_clip
                    ),
                )

    def layers(self, direction: str) -> list[LstmCellWithProjection]:
        """The cells of `"forward"` or `"backward"`, lowest first."""
        return [getattr(self, f"{direction}_layer_{layer}") for layer in range(self.num_layers)]

    def initial_state(self, batch_size: int) -> LstmState:
        """Zeros, for one direction."""
        weight = self.layers("forward")[0].state_linearity.weight
        return LstmState(
            weight.new_zeros(self.num_layers, batch_size, self.projection_dim),
            weight.new_zeros(self.num_layers, batch_size, self.cell_size),
        )

    def forward(
        self,
        direction: str,
        inputs: torch.Tensor,
        batch_sizes: Sequence[int],
        state: LstmState,
        dropout: float = 0.0,
    ) -> tuple[list[torch.Tensor], LstmState]:
        """
        One direction over packed rows.

        # Parameters

        direction : `str`
            `"forward"` or `"backward"`; rows for the latter run from each sentence's end.
        inputs : `torch.Tensor`
            Packed token vectors, shape `(num_rows, projection_dim)`.
        batch_sizes : `Sequence[int]`
            Rows of each step, falling.
        state : `LstmState`
            The start of each sentence, in packed order.
        dropout : `float`, optional (default = `0.0`)
            Probability of dropping an element of a layer's input, drawn afresh for every step; the
            skip connection adds the dropped input, as TensorFlow's `DropoutWrapper` around
            bilm-tf's residual cells does. In training only.

        # Returns

        `tuple[list[torch.Tensor], LstmState]`
            Each layer's packed outputs, shape `(num_rows, projection_dim)`, and the final state.
        """
        outputs, hiddens, cells = [], [], []
        for layer, cell in enumerate(self.layers(direction)):
            inputs = functional.dropout(inputs, dropout, self.training)
            output, final_hidden, final_cell = cell(
                inputs, batch_sizes, state.hidden[layer], state.cell[layer]
            )
            if layer > 0 and self.use_skip_connections:
                output = output + inputs
            outputs.append(output)
            hiddens.append(final_hidden)
            cells.append(final_cell)
            inputs = output
        return outputs, LstmState(torch.stack(hiddens), torch.stack(cells))
