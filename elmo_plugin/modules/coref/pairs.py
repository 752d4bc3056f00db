"""Pairs of a kept span and a possible antecedent: their scores, and the loss."""

import math
from typing import Any, Optional, Tuple

import torch
from allennlp.modules import FeedForward, GatedSum
from allennlp.nn import util
from torch.autograd.function import once_differentiable

from elmo_plugin.modules.coref.antecedents import Antecedents
from elmo_plugin.modules.coref.spans import after_first_layer

PAIRS_AT_ONCE = 1024


class _PairProduct(torch.autograd.Function):
    """
    `(vectors[left] * vectors[right]) @ weight.T`, of which no product is kept for the backward
    pass: it is one multiplication to make again.
    """

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        vectors: torch.Tensor,
        left: torch.Tensor,
        right: torch.Tensor,
        weight: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(vectors, left, right, weight)
        return (vectors[left] * vectors[right]) @ weight.t()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad_output: torch.Tensor
    ) -> Tuple[torch.Tensor, None, None, torch.Tensor]:
        vectors, left, right, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        of_left, of_right = vectors[left], vectors[right]
        grad_weight = grad_output.t() @ (of_left * of_right)
        grad_product = grad_output @ weight
        grad_vectors = torch.zeros_like(vectors)
        grad_vectors.index_add_(0, left, of_right.mul_(grad_product))
        grad_vectors.index_add_(0, right, of_left.mul_(grad_product))
        return grad_vectors, None, None, grad_weight


def pair_scores(
    embeddings: torch.Tensor,
    antecedents: Antecedents,
    features: torch.Tensor,
    feedforward: FeedForward,
    scorer: torch.nn.Linear,
) -> torch.Tensor:
    """
    The scores of Lee et al. 2017, equation 4: `scorer(feedforward([g_i; g_j; g_i * g_j; phi]))`.

    The first layer's weight is split, `W1 g_i + W2 g_j + W3 (g_i * g_j) + W4 phi`: the first two
    are computed once for a span instead of for each pair, and the vectors of all pairs never exist
    side by side. Only real pairs are computed.

    # Parameters

    embeddings : `torch.Tensor`
        Of the kept spans, shape `(batch_size, num_kept, span_dim)`.
    antecedents : `Antecedents`
    features : `torch.Tensor`
        `phi` of the real pairs, in the order of `antecedents.mask`, shape
        `(num_pairs, feature_dim)`.
    feedforward : `FeedForward`
    scorer : `torch.nn.Linear`

    # Returns

    `torch.Tensor`
        Of no antecedent, 0, then of each: of both as mentions and as a pair; the least number where
        there is no antecedent. Shape `(batch_size, num_kept, 1 + num_antecedents)`.
    """
    batch_size, num_kept, span_dim = embeddings.shape
    first: Any = feedforward._linear_layers[0]
    of_span, of_antecedent, of_product, of_features = first.weight.split(
        [span_dim, span_dim, span_dim, features.size(-1)], dim=1
    )
    vectors = embeddings.reshape(-1, span_dim)
    span_hidden = torch.nn.functional.linear(vectors, of_span, first.bias)
    antecedent_hidden = vectors @ of_antecedent.t()
    row = torch.arange(batch_size, device=vectors.device).view(-1, 1, 1) * num_kept
    position = torch.arange(num_kept, device=vectors.device).unsqueeze(1)
    mask = antecedents.mask
    left = (row + position).expand_as(mask)[mask]
    right = (row + antecedents.indices)[mask]
    found = []
    for a, b, phi in zip(*(t.split(PAIRS_AT_ONCE) for t in (left, right, features))):
        # Autocast has no rule for a function written by hand: it runs in the weights' precision.
        with torch.autocast(vectors.device.type, enabled=False):
            hidden = _PairProduct.apply(vectors.to(of_product.dtype), a, b, of_product)
        hidden = hidden + span_hidden[a] + antecedent_hidden[b] + phi @ of_features.t()
        found.append(scorer(after_first_layer(feedforward, hidden)).squeeze(-1))
    scores = antecedents.scores
    scores = scores.masked_fill(~mask, util.min_value_of_dtype(scores.dtype))
    if found:
        scores = scores.masked_scatter(mask, scores[mask] + torch.cat(found))
    return torch.cat([scores.new_zeros(batch_size, num_kept, 1), scores], dim=2)


def expected_antecedents(
    embeddings: torch.Tensor, antecedents: Antecedents, scores: torch.Tensor
) -> torch.Tensor:
    """
    # Parameters

    embeddings : `torch.Tensor`
        Of the kept spans, shape `(batch_size, num_kept, span_dim)`.
    antecedents : `Antecedents`
    scores : `torch.Tensor`
        Of no antecedent, then of each, shape `(batch_size, num_kept, 1 + num_antecedents)`.

    # Returns

    `torch.Tensor`
        The embeddings of each span's antecedents, and its own for none, weighted by their
        probabilities (Lee et al. 2018, equation 5), shape `(batch_size, num_kept, span_dim)`.
    """
    weights = scores.softmax(dim=2)
    square = weights.new_zeros(*embeddings.shape[:2], embeddings.size(1))
    square = square.scatter_add(2, antecedents.indices, weights[..., 1:] * antecedents.mask)
    return weights[..., :1] * embeddings + square @ embeddings


def antecedent_scores(
    embeddings: torch.Tensor,
    antecedents: Antecedents,
    features: torch.Tensor,
    feedforward: FeedForward,
    scorer: torch.nn.Linear,
    gated_sum: Optional[GatedSum],
    inference_order: int,
) -> torch.Tensor:
    """
    Scores pairs, and anew after each move of the spans towards their expected antecedents (Lee et
    al. 2018, section 3).

    # Parameters

    embeddings, antecedents, features, feedforward, scorer
        As for `pair_scores`.
    gated_sum : `GatedSum`, optional
        Moves the spans; `None` where `inference_order` is 1.
    inference_order : `int`
        How often pairs are scored.

    # Returns

    `torch.Tensor`
        The last scores, as `pair_scores` gives them.
    """
    scores = pair_scores(embeddings, antecedents, features, feedforward, scorer)
    if gated_sum is not None:
        for _ in range(inference_order - 1):
            expected = expected_antecedents(embeddings, antecedents, scores)
            embeddings = gated_sum(embeddings, expected)
            scores = pair_scores(embeddings, antecedents, features, feedforward, scorer)
    return scores


def marginal_loss(
    scores: torch.Tensor, labels: torch.Tensor, kept_mask: torch.Tensor, antecedents: Antecedents
) -> torch.Tensor:
    """
    # Parameters

    scores : `torch.Tensor`
        Of no antecedent, then of each, shape `(batch_size, num_kept, 1 + num_antecedents)`.
    labels : `torch.Tensor`
        The cluster of each kept span, -1 for none, shape `(batch_size, num_kept)`.
    kept_mask : `torch.Tensor`
        Which of them are real, shape `(batch_size, num_kept)`.
    antecedents : `Antecedents`

    # Returns

    `torch.Tensor`
        Minus the log of the probability of all right antecedents, none being right where there is
        no other, summed over spans (Lee et al. 2017, equation 9).
    """
    right = (antecedents.select(labels) == labels.unsqueeze(2)) & antecedents.mask
    right = right & (labels >= 0).unsqueeze(2)
    right = torch.cat([~right.any(dim=2, keepdim=True), right], dim=2)
    right_scores = scores.masked_fill(~right, -math.inf)
    return ((scores.logsumexp(dim=2) - right_scores.logsumexp(dim=2)) * kept_mask).sum()
