"""
The token layer: characters -> convolutions -> highways -> projection.

Kim et al. 2016, "Character-Aware Neural Language Models", as implemented in bilm-tf
(https://github.com/allenai/bilm-tf/blob/7cffee2/bilm/model.py).
"""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy
import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.backend import (
    TokenModules,
    TokenWeights,
    WeightsModule,
    backend,
    call_token_modules,
    forget_derived,
    highways,
    is_plain,
    plain,
    plain_affines,
    plain_class,
    plain_weights,
    say_slower,
    trains,
)
from elmo_plugin.bilm.model.characters import (
    BEGIN_OF_SENTENCE,
    END_OF_SENTENCE,
    NUM_CHARACTER_EMBEDDINGS,
    PADDING_CHARACTER_ID,
    batch_to_ids,
    sentence_lengths,
    token_row,
    with_boundaries,
)
from elmo_plugin.bilm.model.options import ACTIVATIONS, ElmoOptions


@plain_class
class Highways(torch.nn.Module):
    """
    Highway layers. The parameters have the names and order of AllenNLP's `Highway`: `_layers.K` has
    the rows of the transform, then of the gate. bilm-tf's gate "carry" is 1 minus this gate.
    """

    def __init__(self, dim: int, num_layers: int) -> None:
        super().__init__()
        self._activation: Callable[[torch.Tensor], torch.Tensor] = functional.relu
        self._input_dim = dim
        self._layers = torch.nn.ModuleList(torch.nn.Linear(dim, 2 * dim) for _ in range(num_layers))

    def __iter__(self) -> Iterator[torch.nn.Linear]:
        return iter(self._layers)  # type: ignore[arg-type]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Apply the layers to rows of shape `(num_rows, dim)`."""
        return highways(tokens, list(self), self._activation)


@plain_class
class CharCnn(WeightsModule):
    """
    Token layer, which computes context-independent token vectors from character ids. The function
    `token_layer` in `kernels/reference.py` defines it. Parameters are named as in AllenNLP's
    `_ElmoCharacterEncoder`. If `projection_dim` equals the number of filters, there is no
    projection. `num_embeddings` does not count 0, the id of padding tokens.
    """

    # Largest character id, boundary tokens, and the function that maps a token to character ids.
    greatest_id = NUM_CHARACTER_EMBEDDINGS
    boundaries = (BEGIN_OF_SENTENCE, END_OF_SENTENCE)
    token_row: Callable[[str, int], numpy.ndarray] = staticmethod(token_row)

    def __init__(
        self, options: ElmoOptions, num_embeddings: int = NUM_CHARACTER_EMBEDDINGS
    ) -> None:
        super().__init__()
        self.widest_filter = max(width for width, _ in options.filters)
        self.num_convolutions = len(options.filters)
        # AllenNLP's name. To set it changes nothing but `get_output_dim`.
        self.output_dim = options.projection_dim
        self.num_characters = options.num_characters
        self.padding_id = PADDING_CHARACTER_ID
        # Takes the place of the activation that `_options` names, if it is assigned.
        self._activation: Callable[[torch.Tensor], torch.Tensor] | None = None
        self._options: dict[str, Any] = {"char_cnn": {"activation": options.activation}}
        self._weight_file: str | None = None
        # AllenNLP's names: character ids of the two boundary tokens.
        self._beginning_of_sentence_characters, self._end_of_sentence_characters = batch_to_ids(
            [self.boundaries], options.num_characters, self.token_row
        )[0]
        dim = options.char_embedding_dim
        # Row 0 belongs to padding tokens and stays zero.
        self._char_embedding_weights = torch.nn.Parameter(torch.zeros(num_embeddings + 1, dim))
        for index, (width, number) in enumerate(options.filters):
            self.add_module(f"char_conv_{index}", torch.nn.Conv1d(dim, number, width))
        num_filters = options.num_filters
        self._highways = Highways(num_filters, options.num_highways)
        self._projection: torch.nn.Linear | None = None
        if num_filters != options.projection_dim:
            self._projection = torch.nn.Linear(num_filters, options.projection_dim)
        self.reset_parameters(options.activation)

    def reset_parameters(self, activation: str) -> None:
        """Initialize the weights as in bilm-tf (bilm/training.py at 7cffee2)."""
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

    # AllenNLP's names, which programs written for its `_ElmoCharacterEncoder` read.
    _convolutions = property(  # as there, only the number of those assigned counts
        attrgetter("convolutions"),
        lambda self, layers: setattr(self, "num_convolutions", len(layers)),
    )
    requires_grad = property(trains, lambda self, _: None)

    def get_output_dim(self) -> int:
        """Return the width of a token vector, `projection_dim`."""
        return self.output_dim

    @property
    def activation(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Function of the convolutions' maxima; as in AllenNLP, `_options` names it."""
        if self._activation is not None:
            return self._activation
        name = self._options["char_cnn"]["activation"]
        if name not in ACTIVATIONS:
            raise ValueError(f"activation is {name!r}, expected one of {ACTIVATIONS}")
        return getattr(torch, name)

    def remember_files(self, options: dict[str, Any], weight_file: str | None) -> None:
        """Keep the content of `options.json` and the weight file's path, as AllenNLP does."""
        self._options, self._weight_file = options, weight_file

    @property
    def boundary_ids(self) -> torch.Tensor:
        """Character ids of the two boundary tokens, shape `(2, num_characters)`."""
        return torch.stack(
            [self._beginning_of_sentence_characters, self._end_of_sentence_characters]
        )

    @property
    def convolutions(self) -> list[torch.nn.Conv1d]:
        """Convolutions, one for each filter width, in the order of the options."""
        return [getattr(self, f"char_conv_{index}") for index in range(self.num_convolutions)]

    # Embeddings, shape `(num_embeddings + 1, char_embedding_dim)`; row 0 is for padding.
    char_embedding = property(attrgetter("_char_embedding_weights"))
    # Linear map of each highway layer, lowest layer first.
    highway_layers = property(lambda self: list(self._highways))
    # Projection from the highways' output to the token vector; `None` if there is none.
    projection = property(attrgetter("_projection"))
    # Functions of the convolutions' maxima and of the highway layers.
    activations = property(attrgetter("activation", "_highways._activation"))

    # Current weights, as an argument for a backend; an error if a layer is not plain.
    weights = property(lambda self: plain(self.plain_weights))

    @plain_weights
    def plain_weights(self) -> TokenWeights | None:
        """Current weights, or `None` if a layer is not plain (`kernels/plain.py`)."""
        activation = self.activation
        if activation not in (torch.relu, torch.tanh):
            say_slower("the activation of the token layer was replaced")
            return None
        if not is_plain(self._highways, Highways):
            return None
        if self._highways._activation not in (torch.relu, functional.relu):
            say_slower("the activation of the highway layers was replaced")
            return None
        linears = [*self._highways, *([] if self._projection is None else [self._projection])]
        affines = plain_affines([
            *((one, torch.nn.Conv1d, True) for one in self.convolutions),
            *((one, torch.nn.Linear, True) for one in linears),
        ])  # fmt: skip
        if affines is None:
            return None
        projection = None if self._projection is None else affines.pop()
        return TokenWeights(
            self._char_embedding_weights,
            affines[: self.num_convolutions],
            activation,
            affines[self.num_convolutions :],
            projection,
            self.padding_id,
        )

    def padding_vector(self) -> torch.Tensor:
        """Return AllenNLP's vector of a padding token, of which all character ids are 0."""
        device = self.char_embedding.device
        return self.rows(torch.zeros(1, self.num_characters, dtype=torch.long, device=device))

    def forget_token_vectors(self) -> None:
        """Free the cached token vectors."""
        forget_derived(list(self.parameters()), "token vectors")

    def forward(self, character_ids: torch.Tensor, widths: Sequence[int] | None = None) -> Any:
        """
        Compute token vectors, shape `(num_rows, projection_dim)`, from ids without padding tokens,
        shape `(num_rows, num_characters)`; for `widths`, see `reference.token_layer`.

        For a padded batch of ids, shape `(batch_size, num_tokens, num_characters)`, return
        AllenNLP's dictionary: `"token_embedding"`, shape `(batch_size, num_tokens + 2,
        projection_dim)`, boundaries included, and `"mask"`.

        Raise a `ValueError` if `num_characters` is below the width of the widest filter.
        """
        if character_ids.dim() == 2:
            return self.rows(character_ids, widths)
        lengths = sentence_lengths((character_ids > 0).any(dim=-1)) + 2
        ids, mask = with_boundaries(character_ids, lengths, *self.boundary_ids)
        vectors = self.padding_vector().expand(*mask.shape, -1).clone()
        vectors[mask] = self.rows(ids[mask])
        return {"token_embedding": vectors, "mask": mask}

    def rows(
        self, character_ids: torch.Tensor, widths: Sequence[int] | None = None
    ) -> torch.Tensor:
        """Compute the vectors of rows of character ids, see `forward`."""
        if character_ids.shape[1] < self.widest_filter:
            raise ValueError(
                f"tokens have {character_ids.shape[1]} character ids, expected at least "
                f"{self.widest_filter}, the width of the widest filter"
            )
        weights = self.plain_weights
        if weights is not None:
            return backend().token_layer(character_ids.long(), weights, self.precision, widths)
        activation = self.activation
        layers = TokenModules(
            self._char_embedding_weights,
            self.convolutions,
            functional.relu if activation is torch.relu else activation,  # as AllenNLP calls it
            self._highways,
            self._projection,
        )
        return call_token_modules(character_ids.long(), layers)
