"""
The token layer: characters -> convolutions -> highways -> projection.

Kim et al. 2016, "Character-Aware Neural Language Models", as bilm-tf builds it
(https://github.com/allenai/bilm-tf/blob/7cffee2/bilm/model.py).
"""

from typing import Optional

import torch
from torch.nn import functional

from elmo_plugin.bilm.characters import NUM_CHARACTER_EMBEDDINGS, PADDING_CHARACTER_ID
from elmo_plugin.bilm.options import ElmoOptions


class Highway(torch.nn.Module):
    """
    `y = gate * x + (1 - gate) * relu(W x + b)` (Srivastava et al. 2015), one or more times.

    Parameters are laid out and named as in AllenNLP's `Highway`: `_layers.K` holds the transform's
    rows first, then the gate's; bilm-tf's "carry" is `1 - gate`.

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

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """
        # Parameters

        inputs : `torch.Tensor`
            Shape `(..., input_dim)`.

        # Returns

        `torch.Tensor`
            The same shape.
        """
        for layer in self._layers:
            transform, gate = layer(inputs).chunk(2, dim=-1)
            transform = torch.relu(transform)
            # transform + gate * (inputs - transform)
            inputs = torch.lerp(transform, inputs, torch.sigmoid(gate))
        return inputs


class CharCnn(torch.nn.Module):
    """
    Context-independent token vectors from character ids.

    Each distinct token of a call is computed once, and convolutions run only as far as the longest
    token needs: both exact. Parameter names are AllenNLP's (`_ElmoCharacterEncoder`).

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
        """
        distinct, inverse = distinct_rows(character_ids)
        return functional.embedding(inverse, self.encode(distinct))

    def encode(self, character_ids: torch.Tensor) -> torch.Tensor:
        """As `forward`, every row computed."""
        character_ids = self._cut(character_ids)
        # Shape: (num_rows, num_characters, char_embedding_dim)
        characters = functional.embedding(character_ids, self._char_embedding_weights)
        outputs = []
        for convolution in self.convolutions:
            width = convolution.kernel_size[0]
            # Shape: (num_rows, positions, width * char_embedding_dim); width outermost
            windows = characters.unfold(1, width, 1).transpose(2, 3).flatten(2)
            kernel = convolution.weight.transpose(1, 2).flatten(1)
            convolved = functional.linear(windows, kernel, convolution.bias)
            # The activations are monotone: maximum first is the same, and less work.
            outputs.append(self._activation(convolved.max(dim=1).values))
        # Shape: (num_rows, num_filters)
        tokens = torch.cat(outputs, dim=-1)
        if self._highways is not None:
            tokens = self._highways(tokens)
        if self._projection is not None:
            tokens = self._projection(tokens)
        return tokens

    def _cut(self, character_ids: torch.Tensor) -> torch.Tensor:
        """
        Drops padding characters that no maximum needs.

        A window of padding alone gives the same values wherever it starts, so one such window for
        the widest filter is enough: the longest token and `widest_filter` paddings behind it.
        """
        if character_ids.shape[0] == 0:
            return character_ids
        in_use = (character_ids != PADDING_CHARACTER_ID).any(dim=0).nonzero()
        longest = int(in_use[-1]) + 1 if len(in_use) else 0
        return character_ids[:, : longest + self.widest_filter]


def distinct_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """
    The distinct rows of an integer matrix, and where each row went.

    Rows are told apart by a 64-bit hash, and the result is checked, so it is exact; sorting hashes
    is many times cheaper than `torch.unique(dim=0)`, the fallback for a collision.

    # Parameters

    rows : `torch.Tensor`
        Int64, shape `(num_rows, num_characters)`.

    # Returns

    `tuple[torch.Tensor, torch.Tensor]`
        `distinct`, shape `(num_distinct, num_characters)`, and `inverse`, shape `(num_rows,)`, with
        `distinct[inverse] == rows`.
    """
    num_rows, width = rows.shape
    powers = _hash_multipliers(width, rows.device)
    hashes, inverse = torch.unique((rows * powers).sum(dim=1), return_inverse=True)
    representative = torch.empty(len(hashes), dtype=torch.long, device=rows.device)
    representative[inverse] = torch.arange(num_rows, device=rows.device)
    distinct = rows[representative]
    if not torch.equal(distinct[inverse], rows):
        distinct, inverse = torch.unique(rows, dim=0, return_inverse=True)
    return distinct, inverse


def _hash_multipliers(width: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(20180215)
    odd = torch.randint(-(2**62), 2**62, (width,), generator=generator) * 2 + 1
    return odd.to(device)
