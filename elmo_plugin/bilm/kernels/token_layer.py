"""
The token layer, fast: distinct tokens only, all filters as one product over windows as wide as the
widest, no further than the longest token needs, tokens of about the same length together.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import tuning
from elmo_plugin.bilm.kernels.interface import TokenWeights
from elmo_plugin.bilm.kernels.prepacked_linear import LinearKernel
from elmo_plugin.bilm.kernels.same_bits import pad_rows

Linear = Callable[[torch.Tensor], torch.Tensor]
# A weight, whether it is called with dozens of rows, and whether 8-bit integers are too few for it.
PrepackTokenLinear = Callable[[torch.Tensor, bool, bool], LinearKernel]
# Rows, weight and bias, with gradients.
LinearWithGradient = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]


class Linears(NamedTuple):
    """
    What multiplies, each with its own weight.

    `convolve`: windows, shape `(num_rows, widest * char_embedding_dim)`, to `(num_rows,
    num_filters)`, without the bias. `highways`, `projection`: `W x + b`.
    """

    convolve: Linear
    highways: Sequence[Linear]
    projection: Linear | None


def prepacked_linears(weights: TokenWeights, prepack: PrepackTokenLinear) -> Linears:
    """For weights that do not change."""
    with torch.no_grad():
        matrix = filter_matrix(weights)
    highways = [
        functools.partial(prepack(weight.detach(), True, False), bias=bias.detach().clone())
        for weight, bias in weights.highways
    ]
    projection = None
    if weights.projection is not None:
        weight, bias = (one.detach() for one in weights.projection)
        # What highways give is heavy-tailed: in 8 bits, of one scale a row, their projection would
        # lose more than all the rest.
        projection = functools.partial(prepack(weight, True, True), bias=bias.clone())
    return Linears(prepack(matrix, False, True).unconverted, highways, projection)


def linears_with_gradient(weights: TokenWeights, linear: LinearWithGradient) -> Linears:
    """For weights that train."""

    def affine(weight: torch.Tensor, bias: torch.Tensor) -> Linear:
        return lambda rows: linear(rows, weight, bias)

    matrix = filter_matrix(weights)
    return Linears(
        lambda rows: linear(rows, matrix, None),
        [affine(*one) for one in weights.highways],
        None if weights.projection is None else affine(*weights.projection),
    )


def encode(
    character_ids: torch.Tensor,
    weights: TokenWeights,
    linears: Linears,
    tokens_at_once: int,
    rows_in_steps_of: int,
) -> torch.Tensor:
    """
    Every row computed.

    # Parameters

    character_ids : `torch.Tensor`
        Shape `(num_rows, num_characters)`.
    weights, linears
        The token layer.
    tokens_at_once : `int`
        Rows computed together, of about the same length.
    rows_in_steps_of : `int`
        Their number is padded to a multiple of this.

    # Returns

    `torch.Tensor`
        Shape `(num_rows, projection_dim)`.
    """
    run = functools.partial(
        _encode, weights=weights, linears=linears, rows_in_steps_of=rows_in_steps_of
    )
    if len(character_ids) <= tokens_at_once:
        return run(character_ids)
    order = token_lengths(character_ids, weights.padding_id).argsort()
    encoded = [run(character_ids[rows]) for rows in order.split(tokens_at_once)]
    return functional.embedding(order.argsort(), torch.cat(encoded))


def _encode(
    character_ids: torch.Tensor, weights: TokenWeights, linears: Linears, rows_in_steps_of: int
) -> torch.Tensor:
    padded = pad_rows(character_ids, -len(character_ids) % rows_in_steps_of, weights.padding_id)
    # Shape: (num_rows, num_filters)
    tokens = weights.activation(_maxima(padded, weights, linears.convolve))
    for linear in linears.highways:
        transform, gate = linear(tokens).chunk(2, dim=-1)
        transform = torch.relu(transform)
        # transform + gate * (tokens - transform)
        tokens = torch.lerp(transform, tokens, torch.sigmoid(gate))
    if linears.projection is not None:
        tokens = linears.projection(tokens)
    return tokens[: len(character_ids)]


def _maxima(character_ids: torch.Tensor, weights: TokenWeights, convolve: Linear) -> torch.Tensor:
    """Each filter's largest value, shape `(num_rows, num_filters)`."""
    widths = [weight.shape[2] for weight, _ in weights.convolutions]
    characters = functional.embedding(
        cut(character_ids, max(widths), weights.padding_id), weights.embedding
    )
    char_embedding_dim = characters.shape[2]
    # Shape: (num_rows, positions, widest * char_embedding_dim)
    windows = characters.flatten(1).unfold(1, max(widths) * char_embedding_dim, char_embedding_dim)
    convolved = convolve(windows.flatten(0, 1)).unflatten(0, windows.shape[:2])
    num_characters = character_ids.shape[1]
    if characters.shape[1] > num_characters:
        filter_widths = torch.tensor(
            [width for width, (weight, _) in zip(widths, weights.convolutions) for _ in weight]
        )
        places = torch.arange(windows.shape[1], device=windows.device).unsqueeze(1)
        too_far = places + filter_widths.to(windows.device) > num_characters
        convolved = convolved.masked_fill(too_far, -torch.inf)
    # The largest first and then the bias is the same, and less work.
    bias = torch.cat([bias for _, bias in weights.convolutions])
    return largest(convolved).to(characters.dtype) + bias


def largest(convolved: torch.Tensor) -> torch.Tensor:
    """Of each row and filter over all positions; shape `(num_rows, num_filters)`."""
    if not convolved.requires_grad:
        return convolved.amax(dim=1)
    return _Largest.apply(convolved)


class _Largest(torch.autograd.Function):
    """`amax` with its gradient, equal parts to equal positions, in a third of autograd's time."""

    @staticmethod
    def forward(ctx: Any, convolved: torch.Tensor) -> torch.Tensor:
        maxima = convolved.amax(dim=1)
        ctx.save_for_backward(convolved, maxima)
        return maxima

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        convolved, maxima = ctx.saved_tensors
        # 1 where the largest is and 0 elsewhere. PyTorch's comparisons take ten times as long.
        is_largest = (convolved - maxima.unsqueeze(1)).sign_().add_(1)
        return is_largest.mul_((gradient / is_largest.sum(dim=1)).unsqueeze(1))


def cut(character_ids: torch.Tensor, widest: int, padding_id: int) -> torch.Tensor:
    """
    As many characters as windows need that are as wide as the widest filter.

    A window of padding alone gives the same values wherever it starts, so one is enough: the
    longest token and `widest` paddings behind it, past the end of the row if need be. A few more,
    so that their number is one that was met before.
    """
    longest = int(token_lengths(character_ids, padding_id).max()) if len(character_ids) else 0
    needed = longest + widest + -(longest + 1) % tuning.POSITIONS_IN_STEPS_OF
    characters = character_ids[:, :needed]
    return functional.pad(characters, (0, needed - characters.shape[1]), value=padding_id)


def filter_matrix(weights: TokenWeights) -> torch.Tensor:
    """
    The convolutions' weights as they meet unfolded windows, characters outermost, one below the
    other; shape `(num_filters, widest * char_embedding_dim)`, narrow ones filled with zeros.
    """
    filters = [weight for weight, _ in weights.convolutions]
    widest = max(weight.shape[2] for weight in filters)
    filled = (functional.pad(weight, (0, widest - weight.shape[2])) for weight in filters)
    return torch.cat([weight.transpose(1, 2).flatten(1) for weight in filled])


def token_lengths(character_ids: torch.Tensor, padding_id: int) -> torch.Tensor:
    """Characters of each token up to the last that is not padding, shape `(num_rows,)`."""
    places = torch.arange(1, character_ids.shape[1] + 1, device=character_ids.device)
    return (places * (character_ids != padding_id)).amax(dim=1)
