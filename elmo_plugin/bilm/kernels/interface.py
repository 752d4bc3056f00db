"""Types of the kernels' arguments and results."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

# Dtypes in which a frozen biLM can multiply, besides `None` for the weights' own dtype.
DTYPES = ("float16", "bfloat16", "int8")
# Dtypes in which a biLM can multiply in training, besides `None`.
TRAINING_DTYPES = ("bfloat16",)


class Precision(NamedTuple):
    """
    Dtype of matrix products; `None` means the dtype of the weights. Weights, states and outputs
    keep their own dtype. The reference backend always multiplies in the weights' dtype.

    `dtype`: one of `DTYPES`, used when no gradient is needed.
    `training_dtype`: one of `TRAINING_DTYPES`, used when a gradient is needed.
    """

    dtype: str | None = None
    training_dtype: str | None = None


class LstmWeights(NamedTuple):
    """
    Weights of one LSTM layer of one direction. The rows hold the gates in the order `i, f, g, o`.

    `input`: shape `(4 * cell_size, input_dim)`.
    `state`: shape `(4 * cell_size, projection_dim)`.
    `bias`: shape `(4 * cell_size,)`.
    `projection`: shape `(projection_dim, cell_size)`.
    `cell_clip`, `projection_clip`: largest absolute value in cell states and in outputs, or `None`.
    """

    input: torch.Tensor
    state: torch.Tensor
    bias: torch.Tensor
    projection: torch.Tensor
    cell_clip: float | None
    projection_clip: float | None

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The four weight tensors."""
        return [self.input, self.state, self.bias, self.projection]

    def float(self) -> "LstmWeights":
        """Return the weights in float32."""
        first, state, bias, projection = (one.float() for one in self.tensors)
        return self._replace(input=first, state=state, bias=bias, projection=projection)


class LstmModules(NamedTuple):
    """
    Layers to call in place of the weights in `LstmWeights`, if one of them is not plain.

    `input`, `state`: maps from the input and the previous output to the gates' pre-activations.
    `projection`: map from the gated cell state to the output, before the clip.
    """

    input: Callable[[torch.Tensor], torch.Tensor]
    state: Callable[[torch.Tensor], torch.Tensor]
    projection: Callable[[torch.Tensor], torch.Tensor]
    cell_clip: float | None
    projection_clip: float | None


class Affine(NamedTuple):
    """
    Weights of a linear or convolution layer.

    `weight`: shape `(output_dim, input_dim, ...)`.
    `bias`: shape `(output_dim,)`.
    """

    weight: torch.Tensor
    bias: torch.Tensor

    def float(self) -> "Affine":
        """Return the weights in float32."""
        return Affine(self.weight.float(), self.bias.float())


class TokenWeights(NamedTuple):
    """
    Weights of the token layer.

    `embedding`: shape `(num_embeddings + 1, char_embedding_dim)`; row 0 is for padding tokens.
    `convolutions`: one for each filter width; weight shape
    `(number of its filters, char_embedding_dim, width)`.
    `activation`: function of the convolutions' maximum plus bias; `torch.relu` or `torch.tanh`.
    `highways`: weight shape `(2 * num_filters, num_filters)`, with `num_filters` of all widths; the
    rows of the transform come before those of the gate.
    `projection`: weight shape `(projection_dim, num_filters)`; `None` for no projection.
    `padding_id`: character id that pads a token to `num_characters`.
    """

    embedding: torch.Tensor
    convolutions: list[Affine]
    activation: Callable[[torch.Tensor], torch.Tensor]
    highways: list[Affine]
    projection: Affine | None
    padding_id: int

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All weight tensors."""
        affine = [*self.convolutions, *self.highways]
        if self.projection is not None:
            affine.append(self.projection)
        return [self.embedding, *(tensor for one in affine for tensor in one)]

    def float(self) -> "TokenWeights":
        """Return the weights in float32."""
        return self._replace(
            embedding=self.embedding.float(),
            convolutions=[one.float() for one in self.convolutions],
            highways=[one.float() for one in self.highways],
            projection=self.projection and self.projection.float(),
        )


class TokenModules(NamedTuple):
    """
    Layers to call in place of the weights in `TokenWeights`, if one of them is not plain.

    `embedding`, `activation`: as there.
    `convolutions`: maps from embedded characters, shape `(num_rows, char_embedding_dim,
    num_characters)`, to the filters' values, shape `(num_rows, number of filters, positions)`.
    `highways`: all highway layers, one after the other.
    `projection`: `None` if there is none.
    """

    embedding: torch.Tensor
    convolutions: Sequence[Callable[[torch.Tensor], torch.Tensor]]
    activation: Callable[[torch.Tensor], torch.Tensor]
    highways: Callable[[torch.Tensor], torch.Tensor]
    projection: Callable[[torch.Tensor], torch.Tensor] | None


class LstmState(NamedTuple):
    """
    Recurrent state of one direction.

    `hidden`: shape `(num_layers, batch_size, projection_dim)`, the clipped outputs.
    `cell`: shape `(num_layers, batch_size, cell_size)`, the clipped cell states.
    """

    hidden: torch.Tensor
    cell: torch.Tensor

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> "LstmState":
        """Return a state with the function applied to both tensors."""
        return LstmState(function(self.hidden), function(self.cell))


# State of the forward direction, then of the backward direction.
BiLstmState = tuple[LstmState, LstmState]
# Packed outputs of an LSTM layer, and each sentence's final `hidden` and `cell`.
LstmOutput = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
