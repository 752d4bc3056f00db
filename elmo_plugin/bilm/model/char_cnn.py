"""
The token layer: characters -> convolutions -> highways -> projection.

Kim et al. 2016, "Character-Aware Neural Language Models", as bilm-tf builds it
(https://github.com/allenai/bilm-tf/blob/7cffee2/bilm/model.py).
"""

from typing import Any, Callable, Optional

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.distinct_rows import distinct_rows
from elmo_plugin.bilm.kernels.prepacked_linear import ROWS_IN_STEPS_OF, filled_up
from elmo_plugin.bilm.kernels.product_module import ProductModule
from elmo_plugin.bilm.kernels.token_cache import MOST_BYTES, TokenCache
from elmo_plugin.bilm.kernels.training_linear import trained_linear
from elmo_plugin.bilm.model.characters import NUM_CHARACTER_EMBEDDINGS, PADDING_CHARACTER_ID
from elmo_plugin.bilm.model.highway import Highway, Linear
from elmo_plugin.bilm.model.options import ElmoOptions

# Tokens computed at a time, of about the same length: memory stays small, and few convolutions run
# past the end of their word.
TOKENS_AT_ONCE = 64
# Windows of a token come in multiples of this; see `ROWS_IN_STEPS_OF`.
POSITIONS_IN_STEPS_OF = 4
# With gradients, each time has its own of every parameter, to be added up.
TRAINED_TOKENS_AT_ONCE = 256
# On a GPU what takes time is the number of operators.
TOKENS_AT_ONCE_ON_GPU = 1024


class CharCnn(ProductModule):
    """
    Context-independent token vectors from character ids.

    Each distinct token of a call is computed once, and convolutions run only as far as the longest
    token needs; while frozen on a CPU, the tokens seen last are remembered between calls. All of it
    is exact. Parameter names are AllenNLP's (`_ElmoCharacterEncoder`).

    # Parameters

    char_embedding_dim : `int`
        Width of a character's embedding.
    filters : `tuple[tuple[int, int], ...]`
        `(width in characters, number of filters)` pairs.
    num_highways : `int`
        Highway layers; 0 for none.
    projection_dim : `int`
        Width of a token's vector. Where it equals the number of filters there is no projection.
    activation : `str`
        `"relu"` or `"tanh"`.
    """

    def __init__(
        self,
        *,
        char_embedding_dim: int,
        filters: tuple[tuple[int, int], ...],
        num_highways: int,
        projection_dim: int,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        num_filters = sum(number for _, number in filters)
        self.widest_filter = max(width for width, _ in filters)
        self.num_convolutions = len(filters)
        self.projection_dim = projection_dim
        self._cached: Optional[tuple[Any, TokenCache]] = None
        self._activation = {"relu": torch.relu, "tanh": torch.tanh}[activation]
        # Row 0 is the padding token's and stays zero.
        self._char_embedding_weights = torch.nn.Parameter(
            torch.zeros(NUM_CHARACTER_EMBEDDINGS + 1, char_embedding_dim)
        )
        for index, (width, number) in enumerate(filters):
            self.add_module(
                f"char_conv_{index}", torch.nn.Conv1d(char_embedding_dim, number, width)
            )
        self._highways = Highway(num_filters, num_highways) if num_highways else None
        self._projection: Optional[torch.nn.Linear] = None
        if num_filters != projection_dim:
            self._projection = torch.nn.Linear(num_filters, projection_dim)
        self.reset_parameters(activation)

    @classmethod
    def from_options(cls, options: ElmoOptions) -> "CharCnn":
        """The char-CNN of these sizes."""
        return cls(
            char_embedding_dim=options.char_embedding_dim,
            filters=options.filters,
            num_highways=options.num_highways,
            projection_dim=options.projection_dim,
            activation=options.activation,
        )

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
            if self._highways is not None:
                for layer in self._highways.layers:
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
        distinct, inverse = distinct_rows(character_ids)
        on_cpu = distinct.device.type == "cpu"
        if on_cpu and self._is_frozen() and self._char_embedding_weights.dtype == torch.float32:
            # In mixed precision too, what is kept has the weights' own type.
            with torch.autocast("cpu", enabled=False):
                vectors = self._token_cache(distinct.shape[1]).vectors(distinct, self.encode)
        else:
            vectors = self.encode(distinct)
        return functional.embedding(inverse, vectors)

    def encode(self, character_ids: torch.Tensor) -> torch.Tensor:
        """As `forward`, every row computed."""
        frozen = self._is_frozen()
        at_once = TOKENS_AT_ONCE if frozen else TRAINED_TOKENS_AT_ONCE
        if character_ids.is_cuda:
            at_once = TOKENS_AT_ONCE_ON_GPU
        if len(character_ids) <= at_once:
            return self._encode(character_ids, frozen)
        order = _lengths(character_ids).argsort()
        encoded = [self._encode(character_ids[rows], frozen) for rows in order.split(at_once)]
        return functional.embedding(order.argsort(), torch.cat(encoded))

    def _encode(self, character_ids: torch.Tensor, frozen: bool) -> torch.Tensor:
        weights = [convolution.weight for convolution in self.convolutions]
        if not frozen:
            matrix = _filter_matrix(*weights)
            return self._tokens(
                character_ids, lambda rows: self._trained_linear(rows, matrix), self._trained_linear
            )
        more = -len(character_ids) % ROWS_IN_STEPS_OF
        filled = filled_up(character_ids, more, PADDING_CHARACTER_ID)
        convolve = self.product(*weights, convert=_filter_matrix, precise=True).unconverted
        return self._tokens(filled, convolve, self._prepared_linear)[: len(character_ids)]

    def _tokens(
        self,
        character_ids: torch.Tensor,
        convolve: Callable[[torch.Tensor], torch.Tensor],
        linear: Linear,
    ) -> torch.Tensor:
        # Shape: (num_rows, num_filters)
        tokens = self._activation(self._maxima(character_ids, convolve))
        if self._highways is not None:
            tokens = self._highways(tokens, linear)
        if self._projection is not None:
            tokens = linear(tokens, self._projection.weight, self._projection.bias)
        return tokens

    def _maxima(
        self, character_ids: torch.Tensor, convolve: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """
        Each filter's largest value, shape `(num_rows, num_filters)`. All filters are one product
        with windows as wide as the widest's.
        """
        characters = functional.embedding(self._cut(character_ids), self._char_embedding_weights)
        char_embedding_dim = characters.shape[2]
        # Shape: (num_rows, positions, widest_filter * char_embedding_dim)
        windows = characters.flatten(1).unfold(
            1, self.widest_filter * char_embedding_dim, char_embedding_dim
        )
        convolved = convolve(windows.flatten(0, 1)).unflatten(0, windows.shape[:2])
        num_characters = character_ids.shape[1]
        if characters.shape[1] > num_characters:
            places = torch.arange(windows.shape[1], device=windows.device).unsqueeze(1)
            too_far = places + self._filter_widths.to(windows.device) > num_characters
            convolved = convolved.masked_fill(too_far, -torch.inf)
        # The largest first and then the bias is the same, and less work.
        biases = [convolution.bias for convolution in self.convolutions]
        return convolved.amax(dim=1).to(characters.dtype) + torch.cat(biases)  # type: ignore[arg-type]

    def _prepared_linear(
        self, rows: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor]
    ) -> torch.Tensor:
        # What highways give is heavy-tailed: in 8 bits, of one scale a row, their projection would
        # lose more than all the rest.
        precise = self._projection is not None and weight is self._projection.weight
        return self.product(weight, for_many_rows=True, precise=precise)(rows, bias)

    def _trained_linear(
        self, rows: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        return trained_linear(rows, weight, bias, self.training_dtype)

    @property
    def _filter_widths(self) -> torch.Tensor:
        """Shape `(num_filters,)`."""
        return torch.tensor(
            [one.kernel_size[0] for one in self.convolutions for _ in range(one.out_channels)]
        )

    def _is_frozen(self) -> bool:
        return not (
            torch.is_grad_enabled()
            and any(parameter.requires_grad for parameter in self.parameters())
        )

    def _token_cache(self, num_characters: int) -> TokenCache:
        state = tuple((id(one), one._version, one.data_ptr()) for one in self.parameters())
        key = (num_characters, self.dtype, state)
        if self._cached is None or self._cached[0] != key:
            capacity = max(1, MOST_BYTES // (4 * self.projection_dim + 2 * num_characters))
            self._cached = key, TokenCache(num_characters, self.projection_dim, capacity)
        return self._cached[1]

    def forget_derived(self) -> None:
        """See `ProductModule`; the token vectors too."""
        super().forget_derived()
        self._cached = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_cached": None}

    def _cut(self, character_ids: torch.Tensor) -> torch.Tensor:
        """
        As many characters as windows need that are as wide as the widest filter.

        A window of padding alone gives the same values wherever it starts, so one is enough: the
        longest token and `widest_filter` paddings behind it, past the end of the row if need be. A
        few more, so that their number is one that was met before.
        """
        longest = int(_lengths(character_ids).max()) if len(character_ids) else 0
        needed = longest + self.widest_filter + -(longest + 1) % POSITIONS_IN_STEPS_OF
        cut = character_ids[:, :needed]
        return functional.pad(cut, (0, needed - cut.shape[1]), value=PADDING_CHARACTER_ID)


def _filter_matrix(*weights: torch.Tensor) -> torch.Tensor:
    """
    The convolutions' weights as they meet unfolded windows, characters outermost, one below the
    other; shape `(num_filters, widest_filter * char_embedding_dim)`, narrow ones filled with zeros.
    """
    widest = max(weight.shape[2] for weight in weights)
    filled = (functional.pad(weight, (0, widest - weight.shape[2])) for weight in weights)
    return torch.cat([weight.transpose(1, 2).flatten(1) for weight in filled])


def _lengths(character_ids: torch.Tensor) -> torch.Tensor:
    """Characters of each token up to the last that is not padding, shape `(num_rows,)`."""
    places = torch.arange(1, character_ids.shape[1] + 1, device=character_ids.device)
    return (places * (character_ids != PADDING_CHARACTER_ID)).amax(dim=1)
