"""The backend that runs unless another is asked for: the kernels that `chooser.py` names."""

import itertools
from collections.abc import Callable, Iterable, Sequence

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import chooser, packing, tuning
from elmo_plugin.bilm.kernels.derived import derived
from elmo_plugin.bilm.kernels.distinct_rows import distinct_rows
from elmo_plugin.bilm.kernels.interface import (
    LstmState,
    LstmWeights,
    Precision,
    Stack,
    TokenWeights,
)
from elmo_plugin.bilm.kernels.lstm_training import LstmLayerTraining
from elmo_plugin.bilm.kernels.prepacked_linear import LinearKernel
from elmo_plugin.bilm.kernels.token_cache import TokenCache
from elmo_plugin.bilm.kernels.token_layer import (
    Linears,
    encode,
    linears_with_gradient,
    prepacked_linears,
)

# Names of what is derived from weights.
PREPACKED = "prepacked"
TOKEN_VECTORS = "token vectors"


def token_layer(
    character_ids: torch.Tensor, weights: TokenWeights, precision: Precision
) -> torch.Tensor:
    """See `Backend.token_layer`. Each distinct token is computed once."""
    parameters, num_characters = weights.tensors, character_ids.shape[1]
    trains = chooser.wants_gradient(parameters)
    if not trains and chooser.remembers_tokens(weights.embedding):
        cache = derived(
            parameters,
            (TOKEN_VECTORS, precision.dtype, num_characters),
            lambda: _token_cache(weights, num_characters),
        )
        return cache.vectors(
            character_ids, lambda ids: _encode_frozen(ids, weights, precision.dtype)
        )
    distinct, inverse = distinct_rows(character_ids)
    if trains:
        vectors = _encode_training(distinct, weights, precision.training_dtype)
    else:
        vectors = _encode_frozen(distinct, weights, precision.dtype)
    return functional.embedding(inverse, vectors)


def _encode_training(
    character_ids: torch.Tensor, weights: TokenWeights, training_dtype: str | None
) -> torch.Tensor:
    def linear(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return chooser.training_linear(rows, weight, bias, training_dtype)

    linears = linears_with_gradient(weights, linear)
    return encode(
        character_ids, weights, linears, chooser.tokens_at_once(character_ids, trains=True), 1
    )


def _encode_frozen(
    character_ids: torch.Tensor, weights: TokenWeights, dtype: str | None
) -> torch.Tensor:
    def prepack(weight: torch.Tensor, many_rows: bool, precise: bool) -> LinearKernel:
        return chooser.linear_kernel(weight, dtype, many_rows, precise)

    with chooser.without_autocast(character_ids.device):
        linears: Linears = derived(
            weights.tensors, (PREPACKED, dtype), lambda: prepacked_linears(weights, prepack)
        )
        return encode(
            character_ids,
            weights,
            linears,
            chooser.tokens_at_once(character_ids, trains=False),
            chooser.rows_in_steps_of(character_ids),
        )


def _token_cache(weights: TokenWeights, num_characters: int) -> TokenCache:
    width = sum(len(bias) for _, bias in weights.convolutions)
    if weights.projection is not None:
        width = len(weights.projection.bias)
    capacity = max(1, tuning.TOKEN_CACHE_BYTES // (4 * width + 4 * num_characters))
    return TokenCache(width, capacity)


def lstm_layer(
    inputs: torch.Tensor,
    batch_sizes: Sequence[int],
    hidden: torch.Tensor,
    cell: torch.Tensor,
    weights: LstmWeights,
    precision: Precision,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """See `Backend.lstm_layer`."""
    inputs = inputs.to(weights.input.dtype)
    hidden, cell = hidden.detach(), cell.detach().contiguous()
    tensors = weights.tensors
    with chooser.without_autocast(inputs.device):
        if chooser.wants_gradient([inputs, *tensors]):
            steps, matmul = chooser.training_steps(cell, precision.training_dtype)
            return LstmLayerTraining.apply(
                inputs, *tensors, hidden, cell, batch_sizes, weights.cell_clip,
                weights.projection_clip, precision.training_dtype, steps, matmul,
            )  # fmt: skip
        layer = derived(
            tensors,
            (PREPACKED, precision.dtype, weights.cell_clip, weights.projection_clip),
            lambda: chooser.frozen_lstm(weights, precision.dtype),
        )
        return layer(inputs, batch_sizes, hidden, cell)


def tokens_over_padded(
    encode: Callable[[torch.Tensor], torch.Tensor],
    ids: torch.Tensor,
    mask: torch.Tensor,
    outputs: torch.Tensor,
    weights: Iterable[torch.Tensor],
) -> None:
    """See `Backend.tokens_over_padded`. Where no gradient is wanted, some tokens at a time."""
    places = mask.flatten().nonzero().squeeze(1)
    trains = chooser.wants_gradient(weights)
    at_once = max(1, len(places)) if trains else tuning.LSTM_TOKENS_AT_ONCE
    rows, ids = outputs.view(-1, outputs.shape[2]), ids.flatten(0, 1)
    for some in places.split(at_once):
        rows.index_copy_(0, some, encode(ids[some]).to(rows.dtype))


def over_padded(
    stack: Stack,
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    state: LstmState,
    outputs: list[torch.Tensor],
    weights: Iterable[torch.Tensor],
    *,
    reverse: bool,
) -> LstmState:
    """See `Backend.over_padded`. Where no gradient is wanted, a part of the batch at a time."""
    sentences_at_once, tokens_at_once = tuning.LSTM_SENTENCES_AT_ONCE, tuning.LSTM_TOKENS_AT_ONCE
    if chooser.wants_gradient(itertools.chain([inputs], weights)):
        sentences_at_once, tokens_at_once = len(inputs), max(1, inputs.shape[0] * inputs.shape[1])
    return packing.over_padded(
        stack, inputs, lengths, state, outputs, reverse=reverse,
        sentences_at_once=sentences_at_once, tokens_at_once=tokens_at_once,
    )  # fmt: skip
