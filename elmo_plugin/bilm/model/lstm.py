"""
The bidirectional LSTM: stacks of clipped LSTM layers with projection, one stack a direction.

Rows are *packed*, as PyTorch's `PackedSequence` packs them (`kernels/reference.py`);
`batch_sizes[t]` says how many have a step `t`. The backward direction is the same code on sentences
that were reversed within their own length.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.backend import (
    BiLstmState,
    LstmState,
    LstmWeights,
    WeightsModule,
    backend,
)
from elmo_plugin.bilm.model.state import StatePolicy

DIRECTIONS = ("forward", "backward")


class LstmCellWithProjection(WeightsModule):
    """
    One layer of one direction (Sak et al. 2014, with the clipping of TensorFlow 1's `LSTMCell`).

    With `z = W x + U h + b` cut into gates `i, f, g, o`:
    `c = clip(sigmoid(f) c + sigmoid(i) tanh(g))`, `h = clip(P (sigmoid(o) tanh(c)))`
    (`kernels/reference.py`).

    Parameters are named and ordered as in AllenNLP's `LstmCellWithProjection`; TensorFlow's forget
    bias of 1 is part of `state_linearity.bias`.

    # Parameters

    input_dim, projection_dim, cell_size : `int`
        Widths of the input, of the output `h` and of the memory cell `c`.
    cell_clip, projection_clip : `float | None`, optional (default = `3.0`)
        Largest absolute value of `c` and `h`; `None` for no limit.
    """

    def __init__(
        self,
        input_dim: int,
        projection_dim: int,
        cell_size: int,
        cell_clip: float | None = 3.0,
        projection_clip: float | None = 3.0,
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
        input_dim, cell_size = self.input_linearity.in_features, self.cell_size
        kernel = torch.empty(4 * cell_size, input_dim + self.projection_dim)
        torch.nn.init.xavier_uniform_(kernel)
        with torch.no_grad():
            self.input_linearity.weight.copy_(kernel[:, :input_dim])
            self.state_linearity.weight.copy_(kernel[:, input_dim:])
            self.state_linearity.bias.zero_()
            self.state_linearity.bias[cell_size : 2 * cell_size] = 1.0
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
        return backend().lstm_layer(inputs, batch_sizes, hidden, cell, self.weights, self.precision)

    @property
    def weights(self) -> LstmWeights:
        """What a backend computes with."""
        return LstmWeights(
            self.input_linearity.weight, self.state_linearity.weight, self.state_linearity.bias,
            self.state_projection.weight, self.cell_clip, self.projection_clip,
        )  # fmt: skip


class BiLstm(torch.nn.Module):
    """
    Two independent stacks of `LstmCellWithProjection`, one a direction.

    With `use_skip_connections` layers above the first add their input to their output: outside the
    recurrence and after the clip, so those outputs may pass the clip
    (https://github.com/allenai/bilm-tf/blob/7cffee2/bilm/model.py).

    # Parameters

    projection_dim, cell_size, num_layers, cell_clip, projection_clip, use_skip_connections : `Any`
        As in `ElmoOptions`.
    """

    def __init__(
        self,
        *,
        projection_dim: int,
        cell_size: int,
        num_layers: int,
        cell_clip: float | None = 3.0,
        projection_clip: float | None = 3.0,
        use_skip_connections: bool = True,
    ) -> None:
        super().__init__()
        self.projection_dim = projection_dim
        self.cell_size = cell_size
        self.num_layers = num_layers
        self.use_skip_connections = use_skip_connections
        self.policy = StatePolicy("carry")
        for layer in range(num_layers):
            for direction in DIRECTIONS:
                cell = LstmCellWithProjection(
                    projection_dim, projection_dim, cell_size, cell_clip, projection_clip
                )
                self.add_module(f"{direction}_layer_{layer}", cell)

    def layers(self, direction: str) -> list[LstmCellWithProjection]:
        """The cells of `"forward"` or `"backward"`, lowest first."""
        return [getattr(self, f"{direction}_layer_{layer}") for layer in range(self.num_layers)]

    # AllenNLP's names, by which programs make its ELMo deterministic.

    @property
    def stateful(self) -> bool:
        """Whether a sentence starts where the same row of the batch before ended (`"carry"`)."""
        return self.policy.name == "carry"

    @stateful.setter
    def stateful(self, stateful: bool) -> None:
        if stateful != self.stateful:
            self.policy.name = "carry" if stateful else "reset"

    def reset_states(self) -> None:
        """See `BiLm.reset_states`."""
        self.policy.carried = None

    def initial_state(self, batch_size: int) -> LstmState:
        """Zeros, for one direction."""
        weight = self.layers("forward")[0].state_linearity.weight
        return LstmState(
            weight.new_zeros(self.num_layers, batch_size, self.projection_dim),
            weight.new_zeros(self.num_layers, batch_size, self.cell_size),
        )

    def forward(
        self, tokens: torch.Tensor, lengths: torch.Tensor, start: BiLstmState
    ) -> tuple[list[torch.Tensor], BiLstmState]:
        """
        Both directions over a padded batch.

        # Parameters

        tokens : `torch.Tensor`
            Token vectors, shape `(batch_size, num_steps, projection_dim)`.
        lengths : `torch.Tensor`
            Int64, shape `(batch_size,)`: tokens of each sentence.
        start : `BiLstmState`
            Where each sentence starts, in either direction.

        # Returns

        `tuple[list[torch.Tensor], BiLstmState]`
            Each layer, shape `(batch_size, num_steps, 2 * projection_dim)`, forward half first,
            zero at padding; the state at each sentence's end (the backward one's is at its first
            token).
        """
        shape = *tokens.shape[:2], 2 * self.projection_dim
        layers = [tokens.new_zeros(shape) for _ in range(self.num_layers)]
        halves = slice(0, self.projection_dim), slice(self.projection_dim, None)
        ends = [
            backend().over_padded(
                partial(self.stack, direction),
                tokens,
                lengths,
                state,
                [layer[..., half] for layer in layers],
                self.parameters(),
                reverse=direction == "backward",
            )
            for direction, state, half in zip(DIRECTIONS, start, halves)
        ]
        return layers, (ends[0], ends[1])

    def stack(
        self,
        direction: str,
        inputs: torch.Tensor,
        batch_sizes: Sequence[int],
        state: LstmState,
        dropout: float = 0.0,
    ) -> tuple[list[torch.Tensor], LstmState]:
        """
        One direction's layers over packed rows.

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
            if dropout:
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
