"""What a kernel is given, and what it must do."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import torch

# The precisions in which a frozen biLM may multiply; `None` is the weights' own.
DTYPES = ("float16", "bfloat16", "int8")
# And those in which it may while it trains.
TRAINING_DTYPES = ("bfloat16",)


class Precision(NamedTuple):
    """
    The type in which matrix products are taken; `None` for the weights' own. Weights, states and
    outputs keep theirs. The reference multiplies exactly whatever it says.

    `dtype`: while no gradient is wanted, one of `DTYPES`.
    `training_dtype`: while one is, one of `TRAINING_DTYPES`.
    """

    dtype: str | None = None
    training_dtype: str | None = None


class LstmWeights(NamedTuple):
    """
    One LSTM layer of one direction; rows of the gates are in the order `i, f, g, o`.

    `input`: shape `(4 * cell_size, input_dim)`.
    `state`: shape `(4 * cell_size, projection_dim)`.
    `bias`: shape `(4 * cell_size,)`.
    `projection`: shape `(projection_dim, cell_size)`.
    `cell_clip`, `projection_clip`: the largest absolute value of `c` and `h`; `None` for no limit.
    """

    input: torch.Tensor
    state: torch.Tensor
    bias: torch.Tensor
    projection: torch.Tensor
    cell_clip: float | None
    projection_clip: float | None

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The four parameters."""
        return [self.input, self.state, self.bias, self.projection]


class Affine(NamedTuple):
    """`weight`: shape `(output_dim, input_dim, ...)`; `bias`: shape `(output_dim,)`."""

    weight: torch.Tensor
    bias: torch.Tensor


class TokenWeights(NamedTuple):
    """
    The token layer.

    `embedding`: shape `(262, char_embedding_dim)`.
    `convolutions`: one for each filter width, weights of shape
    `(num_filters, char_embedding_dim, width)`.
    `activation`: `torch.relu` or `torch.tanh`.
    `highways`: weights of shape `(2 * num_filters, num_filters)`: the transform's rows first, then
    the gate's.
    `projection`: weight of shape `(projection_dim, num_filters)`, or `None` where there is none.
    `padding_id`: the character id with which a token is filled up to `num_characters`.
    """

    embedding: torch.Tensor
    convolutions: list[Affine]
    activation: Callable[[torch.Tensor], torch.Tensor]
    highways: list[Affine]
    projection: Affine | None
    padding_id: int

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Every parameter."""
        affine = [*self.convolutions, *self.highways]
        if self.projection is not None:
            affine.append(self.projection)
        return [self.embedding, *(tensor for one in affine for tensor in one)]


class LstmState(NamedTuple):
    """
    One direction's recurrent state.

    `hidden`: shape `(num_layers, batch_size, projection_dim)`, the clipped outputs.
    `cell`: shape `(num_layers, batch_size, cell_size)`, the clipped memory cells.
    """

    hidden: torch.Tensor
    cell: torch.Tensor

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> "LstmState":
        """The function of both."""
        return LstmState(function(self.hidden), function(self.cell))

    def continued_by(self, final: "LstmState") -> "LstmState":
        """The first sentences' state is `final`, the others' stays."""
        size = final.hidden.shape[1]
        if size == self.hidden.shape[1]:
            return final
        return LstmState(
            torch.cat([final.hidden, self.hidden[:, size:]], dim=1),
            torch.cat([final.cell, self.cell[:, size:]], dim=1),
        )


# Of the forward direction, of the backward one.
BiLstmState = tuple[LstmState, LstmState]


class Stack(Protocol):
    """One direction's layers over packed rows: see `BiLstm.stack`."""

    def __call__(
        self, inputs: torch.Tensor, batch_sizes: Sequence[int], state: LstmState
    ) -> tuple[list[torch.Tensor], LstmState]:
        """Each layer's packed outputs, and the final state."""


class Backend(Protocol):
    """
    What a biLM computes. `reference.py` is the definition; every other must give the
    same numbers, up to rounding or to what `Precision` allows.
    """

    def token_layer(
        self, character_ids: torch.Tensor, weights: TokenWeights, precision: Precision
    ) -> torch.Tensor:
        """
        Character ids of real tokens, shape `(num_rows, num_characters)`, to vectors, shape
        `(num_rows, projection_dim)`.
        """

    def lstm_layer(
        self,
        inputs: torch.Tensor,
        batch_sizes: Sequence[int],
        hidden: torch.Tensor,
        cell: torch.Tensor,
        weights: LstmWeights,
        precision: Precision,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        Packed rows, shape `(num_rows, input_dim)`, and the start, shapes
        `(batch_size, projection_dim)` and `(batch_size, cell_size)`, to packed outputs, shape
        `(num_rows, projection_dim)`, and each sentence's `hidden` and `cell` at its own last step.
        Gradients flow to inputs and weights, not to the start nor from the end.
        """

    def tokens_over_padded(
        self,
        encode: Callable[[torch.Tensor], torch.Tensor],
        ids: torch.Tensor,
        mask: torch.Tensor,
        outputs: torch.Tensor,
        weights: Iterable[torch.Tensor],
    ) -> None:
        """
        Writes what `encode`, which has these weights, makes of each real token's ids, shape
        `(batch_size, num_steps, num_characters)` or without the last, into `outputs`, shape
        `(batch_size, num_steps, projection_dim)`; `mask` says which are real.
        """

    def over_padded(
        self,
        stack: Stack,
        inputs: torch.Tensor,
        lengths: torch.Tensor,
        state: LstmState,
        outputs: list[torch.Tensor],
        weights: Iterable[torch.Tensor],
        *,
        reverse: bool,
    ) -> LstmState:
        """
        Runs `stack`, which has these weights, over a padded batch, shape
        `(batch_size, num_steps, input_dim)`, each sentence as far as its length; with `reverse`
        from its end to its start. Writes each layer's outputs into `outputs`, shape
        `(batch_size, num_steps, projection_dim)`, where they are real, and returns the end state,
        in the batch's order.
        """
