"""
The token layer: characters -> convolutions -> highways -> projection.

Kim et al. 2016, "Character-Aware Neural Language Models", as bilm-tf builds it
(https://github.com/allenai/bilm-tf/blob/7cffee2/bilm/model.py).
"""

from collections.abc import Callable

import numpy
import torch

from elmo_plugin.bilm.kernels.backend import (
    Affine,
    TokenWeights,
    WeightsModule,
    backend,
    forget_derived,
)
from elmo_plugin.bilm.model.characters import (
    BEGIN_OF_SENTENCE,
    END_OF_SENTENCE,
    NUM_CHARACTER_EMBEDDINGS,
    PADDING_CHARACTER_ID,
    token_row,
)
from elmo_plugin.bilm.model.options import ElmoOptions

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


class CharCnn(WeightsModule):
    """
    Context-independent token vectors from character ids (`kernels/reference.py`). Parameter names
    are AllenNLP's (`_ElmoCharacterEncoder`).

    # Parameters

    options : `ElmoOptions`
        The sizes. Where `projection_dim` equals the number of filters there is no projection.
    num_embeddings : `int`, optional (default = `261`)
        Characters.
    """

    # How tokens are read: the greatest id, the tokens that are boundaries, and a token's ids.
    greatest_id = NUM_CHARACTER_EMBEDDINGS
    boundaries = (BEGIN_OF_SENTENCE, END_OF_SENTENCE)
    token_row: Callable[[str, int], numpy.ndarray] = staticmethod(token_row)

    def __init__(
        self, options: ElmoOptions, num_embeddings: int = NUM_CHARACTER_EMBEDDINGS
    ) -> None:
        super().__init__()
        self.widest_filter = max(width for width, _ in options.filters)
        self.num_convolutions = len(options.filters)
        self.projection_dim = options.projection_dim
        self.padding_id = PADDING_CHARACTER_ID
        self._activation = ACTIVATIONS[options.activation]
        dim = options.char_embedding_dim
        # Row 0 is the padding token's and stays zero.
        self._char_embedding_weights = torch.nn.Parameter(torch.zeros(num_embeddings + 1, dim))
        for index, (width, number) in enumerate(options.filters):
            self.add_module(f"char_conv_{index}", torch.nn.Conv1d(dim, number, width))
        num_filters, num_highways = options.num_filters, options.num_highways
        self._highways = Highway(num_filters, num_highways) if num_highways else None
        self._projection: torch.nn.Linear | None = None
        if num_filters != self.projection_dim:
            self._projection = torch.nn.Linear(num_filters, self.projection_dim)
        self.reset_parameters(options.activation)

    def reset_parameters(self, activation: str) -> None:
        """bilm-tf's initial values (bilm/training.py at 7cffee2)."""
        with torch.no_grad():
            self._char_embedding_weights.uniform_(-1.0, 1.0)
            self._char_embedding_weights[0] = 0.0
            for convolution in self.convolutions:
                if activation == "relu":
                    convolution.weight.uniform_(-0.05, 0.05)
                else:
                    fan_in = convolution.kernel_size[0] * convolution.in_channels
                    convolution.weight.normal_(0.0, fan_in**-0.5)
                torch.nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
            for layer in self.highway_layers:
                input_dim = layer.in_features
                layer.weight.normal_(0.0, input_dim**-0.5)
                layer.bias[:input_dim] = 0.0
                layer.bias[input_dim:] = 2.0
            if self._projection is not None:
                self._projection.weight.normal_(0.0, self._projection.in_features**-0.5)
                self._projection.bias.zero_()

    @property
    def convolutions(self) -> list[torch.nn.Conv1d]:
        """One a filter width, in the order of the options."""
        return [getattr(self, f"char_conv_{index}") for index in range(self.num_convolutions)]

    @property
    def char_embedding(self) -> torch.nn.Parameter:
        """Shape `(num_embeddings + 1, char_embedding_dim)`; row 0 is the padding token's."""
        return self._char_embedding_weights

    @property
    def highway_layers(self) -> list[torch.nn.Linear]:
        """The highways' linear maps, in order."""
        return [] if self._highways is None else self._highways.layers

    @property
    def projection(self) -> torch.nn.Linear | None:
        """From the filters to the token's vector, where there is one."""
        return self._projection

    @property
    def weights(self) -> TokenWeights:
        """What the kernels take."""
        projection = self._projection
        return TokenWeights(
            self._char_embedding_weights,
            [Affine(one.weight, one.bias) for one in self.convolutions],  # type: ignore[arg-type]
            self._activation,
            [] if self._highways is None else self._highways.weights,
            None if projection is None else Affine(projection.weight, projection.bias),
            self.padding_id,
        )

    def forget_token_vectors(self) -> None:
        """Frees the vectors of tokens that are remembered between calls, where they are."""
        forget_derived(list(self.parameters()), "token vectors")

    def forward(self, character_ids: torch.Tensor) -> torch.Tensor:
        """
        # Parameters

        character_ids : `torch.Tensor`
            Int64, shape `(num_rows, num_characters)`: real tokens only, no padding tokens.

        # Returns

        `torch.Tensor`
            Shape `(num_rows, projection_dim)`.

        # Raises

        `ValueError`
            If a token has fewer characters than the widest filter.
        """
        if character_ids.shape[1] < self.widest_filter:
            raise ValueError(
                f"tokens have {character_ids.shape[1]} character ids, expected at least "
                f"{self.widest_filter}, the width of the widest filter"
            )
        return backend().token_layer(character_ids, self.weights, self.precision)


class Highway(torch.nn.Module):
    """
    The weights of `y = gate * x + (1 - gate) * relu(W x + b)` (Srivastava et al. 2015),
    one or more times, laid out and named as in AllenNLP's `Highway`: `_layers.K` holds the
    transform's rows first, then the gate's; bilm-tf's "carry" is `1 - gate`.

    # Parameters

    input_dim : `int`
        Width of the input and output.
    num_layers : `int`
        How many times.
    """

    def __init__(self, input_dim: int, num_layers: int) -> None:
        super().__init__()
        self._layers = torch.nn.ModuleList(
            [torch.nn.Linear(input_dim, 2 * input_dim) for _ in range(num_layers)]
        )

    @property
    def layers(self) -> list[torch.nn.Linear]:
        """The linear maps, in order."""
        return list(self._layers)  # type: ignore[arg-type]

    @property
    def weights(self) -> list[Affine]:
        """What the kernels take."""
        return [Affine(layer.weight, layer.bias) for layer in self.layers]
