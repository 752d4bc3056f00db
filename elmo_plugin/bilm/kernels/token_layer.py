"""
Fast token layer in PyTorch. One matrix product applies all filters to windows as wide as the widest
filter. Tokens of similar length are computed together, so that few windows hold only padding.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.gradients import hand_written
from elmo_plugin.bilm.kernels.interface import TokenWeights

Linear = Callable[[torch.Tensor], torch.Tensor]
# Character ids of one product in the gradient of their embeddings on a GPU.
IDS_AT_ONCE = 1024
# Makes a linear map: (weight, bias or none, whether int8 is too coarse for the weight) -> map.
MakeLinear = Callable[[torch.Tensor, torch.Tensor | None, bool], Linear]


class Linears(NamedTuple):
    """
    Linear maps of the token layer.

    `convolve`: the convolution as one matrix product, without bias. It maps windows, shape
    `(num_windows, widest * char_embedding_dim)`, to shape `(num_windows, num_filters)`. A window is
    as wide as the widest filter; narrower filters are padded with zeros.
    `highways`, `projection`: linear layers with bias; `projection` is `None` if there is none.
    """

    convolve: Linear
    highways: Sequence[Linear]
    projection: Linear | None


def linears_of(weights: TokenWeights, make: MakeLinear) -> Linears:
    """Return the linear maps of a token layer, made by `make`."""
    return Linears(
        make(filter_matrix(weights), None, True),
        [make(weight, bias, False) for weight, bias in weights.highways],
        # int8, with one scale per row, is too coarse for the heavy-tailed outputs of highways.
        None if weights.projection is None else make(*weights.projection, True),
    )


def encode(
    character_ids: torch.Tensor, weights: TokenWeights, linears: Linears, tokens_at_once: int
) -> torch.Tensor:
    """
    Compute the token vector of every row. `tokens_at_once` tokens of similar length are computed
    together, so that few windows hold only padding.
    """
    widest = max(weight.shape[2] for weight, _ in weights.convolutions)
    lengths = token_lengths(character_ids, weights.padding_id)

    def run(rows: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        longest = int(lengths.max()) if len(lengths) else 0
        return encode_parts(rows, weights, linears, [longest + widest])

    if len(character_ids) <= tokens_at_once:
        return run(character_ids, lengths)
    order = lengths.argsort()
    encoded = [run(character_ids[rows], lengths[rows]) for rows in order.split(tokens_at_once)]
    return functional.embedding(order.argsort(), torch.cat(encoded))


def encode_parts(
    character_ids: torch.Tensor, weights: TokenWeights, linears: Linears, widths: Sequence[int]
) -> torch.Tensor:
    """
    Compute the token vector of every row, as `encode`, without asking the device for anything.

    `widths` are numbers of character ids, one for each of as many equal parts of the rows: the
    longest token's length plus the widest filter's width, or more. Fewer convolution windows are
    computed then: all windows of padding alone give the same values, so one is enough.
    """
    parts = [
        functional.pad(part, (0, width - part.shape[1]), value=weights.padding_id)  # or cut
        for part, width in zip(character_ids.chunk(len(widths)), widths)
    ]
    # One lookup: its gradient is then one product.
    embedded = _embedded(torch.cat([part.flatten() for part in parts]), weights.embedding)
    maxima = [
        _maxima(
            characters.view(*part.shape, weights.embedding.shape[1]), character_ids.shape[1],
            weights, linears.convolve,
        )
        for part, characters in zip(parts, embedded.split([part.numel() for part in parts]))
    ]  # fmt: skip
    # Shape: (num_rows, num_filters)
    tokens = weights.activation(torch.cat(maxima))
    for linear in linears.highways:
        transform, gate = linear(tokens).chunk(2, dim=-1)
        transform = torch.relu(transform)
        # lerp computes transform + gate * (tokens - transform).
        tokens = torch.lerp(transform, tokens, torch.sigmoid(gate))
    return tokens if linears.projection is None else linears.projection(tokens)


def _maxima(
    characters: torch.Tensor, num_characters: int, weights: TokenWeights, convolve: Linear
) -> torch.Tensor:
    """
    Return each filter's maximum over a token's windows, shape `(num_rows, num_filters)`.
    `characters` are the embeddings of cut or padded ids; `num_characters` were there before.
    """
    widths = [weight.shape[2] for weight, _ in weights.convolutions]
    char_embedding_dim = characters.shape[2]
    # Shape: (num_rows, positions, widest * char_embedding_dim)
    windows = characters.flatten(1).unfold(1, max(widths) * char_embedding_dim, char_embedding_dim)
    convolved = convolve(windows.flatten(0, 1)).unflatten(0, windows.shape[:2])
    if characters.shape[1] > num_characters:
        # Made on the device: a CUDA graph cannot copy from the CPU's memory.
        filter_widths = torch.cat(
            [torch.full_like(bias, width) for width, (_, bias) in zip(widths, weights.convolutions)]
        )
        places = torch.arange(windows.shape[1], device=windows.device).unsqueeze(1)
        too_far = places + filter_widths > num_characters
        convolved = convolved.masked_fill(too_far, -torch.inf)
    # Adding the bias after the maximum gives the same result with less work.
    bias = torch.cat([bias for _, bias in weights.convolutions])
    return largest(convolved).to(characters.dtype) + bias


def largest(convolved: torch.Tensor) -> torch.Tensor:
    """Return the maximum over all positions, shape `(num_rows, num_filters)`."""
    if not convolved.requires_grad:
        return convolved.amax(dim=1)
    return _Largest.apply(convolved)


class _Largest(torch.autograd.Function):
    """`amax` over dimension 1 with a faster backward, which divides the gradient among ties."""

    @staticmethod
    def forward(ctx: Any, convolved: torch.Tensor) -> torch.Tensor:
        maxima = convolved.amax(dim=1)
        ctx.save_for_backward(convolved, maxima)
        return maxima

    @staticmethod
    @hand_written(lambda ctx, saved: (functools.partial(torch.amax, dim=1), saved[:1]))
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        convolved, maxima = ctx.saved_tensors
        # 1 at the maxima, else 0. `sign` is much faster than PyTorch's comparisons.
        is_largest = (convolved - maxima.unsqueeze(1)).sign_().add_(1)
        return is_largest.mul_((gradient / is_largest.sum(dim=1)).unsqueeze(1))


def _embedded(character_ids: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
    if embedding.is_cuda and embedding.requires_grad:
        return _Embedded.apply(embedding, character_ids)
    return functional.embedding(character_ids, embedding)


class _Embedded(torch.autograd.Function):
    """
    `embedding` for a GPU. Its gradient is a sum of matrix products, in place of a sort, or of many
    additions to few rows. One product would have too few elements to occupy a GPU.
    """

    @staticmethod
    def forward(ctx: Any, embedding: torch.Tensor, character_ids: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(embedding, character_ids)
        return functional.embedding(character_ids, embedding)

    @staticmethod
    @hand_written(
        lambda ctx, saved: (lambda weight: functional.embedding(saved[1], weight), saved[:1])
    )
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        embedding, ids = ctx.saved_tensors
        rows = torch.arange(len(embedding), device=ids.device).unsqueeze(1)
        missing = -ids.numel() % IDS_AT_ONCE
        ids = functional.pad(ids.flatten(), (0, missing), value=-1).view(-1, 1, IDS_AT_ONCE)
        gradient = functional.pad(gradient.flatten(0, -2), (0, 0, 0, missing))
        is_row = (ids == rows).to(gradient.dtype)
        return (is_row @ gradient.unflatten(0, (-1, IDS_AT_ONCE))).sum(dim=0), None


def filter_matrix(weights: TokenWeights) -> torch.Tensor:
    """
    Return all filters as one matrix, shape `(num_filters, widest * char_embedding_dim)`, to
    multiply windows of characters by. Narrow filters are padded with zeros.
    """
    filters = [weight for weight, _ in weights.convolutions]
    widest = max(weight.shape[2] for weight in filters)
    filled = (functional.pad(weight, (0, widest - weight.shape[2])) for weight in filters)
    return torch.cat([weight.transpose(1, 2).flatten(1) for weight in filled])


def token_lengths(character_ids: torch.Tensor, padding_id: int) -> torch.Tensor:
    """Return the number of character ids of each token, without padding; shape `(num_rows,)`."""
    places = torch.arange(1, character_ids.shape[1] + 1, device=character_ids.device)
    return (places * (character_ids != padding_id)).amax(dim=1)
