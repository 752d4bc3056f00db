"""Select antecedents for kept spans, and compute scores and loss of the pairs."""

import math
from typing import Callable, NamedTuple, Tuple

import torch
from allennlp.modules import TimeDistributed
from allennlp.nn import util

from elmo_plugin.bilm.kernels.gradients import hand_written
from elmo_plugin.modules.coref.spans import after_first_layer, first_affine

PAIRS_AT_ONCE = 1024


class Antecedents(NamedTuple):
    """
    Possible antecedents of each kept span. Kept spans are the candidate spans with the highest
    mention scores. All tensors have the shape `(batch_size, num_kept, num_antecedents)`.

    `indices`: indices of the antecedents among the kept spans.
    `mask`: true for a real antecedent, false for padding.
    `scores`: mention scores of span and antecedent, plus the pair's bilinear score if any.
    """

    indices: torch.Tensor
    mask: torch.Tensor
    scores: torch.Tensor

    def select(self, values: torch.Tensor) -> torch.Tensor:
        """
        Return the value of each antecedent, shape `(batch_size, num_kept, num_antecedents)`.
        `values` holds the value of each kept span, shape `(batch_size, num_kept)`.
        """
        return values.gather(1, self.indices.flatten(1)).view_as(self.indices)


def nearest_antecedents(mention_scores: torch.Tensor, number: int) -> Antecedents:
    """
    Choose the antecedents of each kept span: the `number` kept spans directly before it, nearest
    first. `mention_scores` holds the score of each kept span, shape `(batch_size, num_kept)`.
    """
    batch_size, num_kept = mention_scores.shape
    position = torch.arange(num_kept, device=mention_scores.device)
    indices = position.unsqueeze(1) - 1 - position[:number]
    mask = (indices >= 0).expand(batch_size, -1, -1)
    indices = indices.clamp(min=0).expand(batch_size, -1, -1)
    antecedents = Antecedents(indices, mask, mention_scores)
    scores = mention_scores.unsqueeze(2) + antecedents.select(mention_scores)
    return antecedents._replace(scores=scores)


def coarse_antecedents(
    mention_scores: torch.Tensor,
    kept_mask: torch.Tensor,
    embeddings: torch.Tensor,
    projected: torch.Tensor,
    number: int,
) -> Antecedents:
    """
    Choose the antecedents of each kept span: up to `number` earlier kept spans with the highest
    coarse scores, in document order. The coarse score is a bilinear score plus both mention scores
    (Lee et al. 2018, section 4). The bilinear score is the dot product of the span's row in
    `embeddings` and the antecedent's row in `projected`. `projected` is a linear projection of
    `embeddings`. Both have the shape `(batch_size, num_kept, span_dim)`.

    `kept_mask` is true for real spans, and has the shape `(batch_size, num_kept)` of
    `mention_scores`.
    """
    num_kept = mention_scores.size(1)
    scores = mention_scores.unsqueeze(1) + mention_scores.unsqueeze(2)
    scores = scores + embeddings @ projected.transpose(1, 2)
    earlier = torch.ones(num_kept, num_kept, dtype=torch.bool, device=scores.device).tril(-1)
    mask = kept_mask.unsqueeze(2) & earlier
    number = min(number, num_kept)
    scores, mask, indices = util.masked_topk(scores, mask, number)  # type: ignore[arg-type]
    return Antecedents(indices, mask, scores)


def _pair_product(
    vectors: torch.Tensor, left: torch.Tensor, right: torch.Tensor, weight: torch.Tensor
) -> torch.Tensor:
    return (vectors[left] * vectors[right]) @ weight.t()


class _PairProduct(torch.autograd.Function):
    """
    Autograd function for `_pair_product`. To save memory, the backward pass recomputes
    `vectors[left] * vectors[right]`.
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
        return _pair_product(vectors, left, right, weight)

    @staticmethod
    @hand_written(lambda ctx, saved: (_pair_product, saved))
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad_output: torch.Tensor
    ) -> Tuple[torch.Tensor, None, None, torch.Tensor]:
        vectors, left, right, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        left_vectors, right_vectors = vectors[left], vectors[right]
        grad_weight = grad_output.t() @ (left_vectors * right_vectors)
        grad_product = grad_output @ weight
        grad_vectors = torch.zeros_like(vectors)
        grad_vectors.index_add_(0, left, right_vectors.mul_(grad_product))
        grad_vectors.index_add_(0, right, left_vectors.mul_(grad_product))
        return grad_vectors, None, None, grad_weight


def pair_scores(
    embeddings: torch.Tensor,
    antecedents: Antecedents,
    features: torch.Tensor,
    feedforward: TimeDistributed,
    scorer: TimeDistributed,
) -> torch.Tensor:
    """
    Score each span with each of its antecedents (Lee et al. 2017, equations 2 and 4). The score is
    the pair's entry in `antecedents.scores` plus `scorer(feedforward([g_i; g_j; g_i * g_j; phi]))`.
    `g` stands for `embeddings`, the spans' vectors, shape `(batch_size, num_kept, span_dim)`, and
    `phi` for `features`, the pairs' where `antecedents.mask` is true, in row-major order, shape
    `(num_pairs, feature_dim)`.

    The matrix product of the first layer is split into `W1 g_i + W2 g_j + W3 (g_i * g_j) + W4 phi`.
    The first two terms are computed once per span instead of once per pair. The other two are
    computed only for real pairs, a block of pairs at a time to save memory.

    Return scores of shape `(batch_size, num_kept, 1 + num_antecedents)`. Column 0 stands for no
    antecedent and holds 0. Scores at padding are the smallest value of the dtype.
    """
    batch_size, num_kept, span_dim = embeddings.shape
    vectors = embeddings.reshape(-1, span_dim)
    hidden_of = _hidden_of_pairs(vectors, features.size(-1), feedforward)
    row = torch.arange(batch_size, device=vectors.device).view(-1, 1, 1) * num_kept
    position = torch.arange(num_kept, device=vectors.device).unsqueeze(1)
    mask = antecedents.mask
    left = (row + position).expand_as(mask)[mask]
    right = (row + antecedents.indices)[mask]
    parts = zip(*(one.split(PAIRS_AT_ONCE) for one in (left, right, features)))
    blocks = [scorer(hidden_of(*part).unsqueeze(0)).flatten() for part in parts]
    scores = antecedents.scores
    scores = scores.masked_fill(~mask, util.min_value_of_dtype(scores.dtype))
    if blocks:
        scores = scores.masked_scatter(mask, scores[mask] + torch.cat(blocks))
    return torch.cat([scores.new_zeros(batch_size, num_kept, 1), scores], dim=2)


def _hidden_of_pairs(
    vectors: torch.Tensor, feature_dim: int, feedforward: TimeDistributed
) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the function from the rows of a block's pairs, and features, to hidden vectors."""
    first, span_dim = first_affine(feedforward), vectors.size(1)
    if first is None:
        return lambda a, b, phi: feedforward(
            torch.cat([vectors[a], vectors[b], vectors[a] * vectors[b], phi], dim=1).unsqueeze(0)
        ).squeeze(0)
    span_weight, antecedent_weight, product_weight, feature_weight = first.weight.split(
        [span_dim, span_dim, span_dim, feature_dim], dim=1
    )
    span_hidden = torch.nn.functional.linear(vectors, span_weight, first.bias)
    antecedent_hidden = vectors @ antecedent_weight.t()

    def hidden_of(a: torch.Tensor, b: torch.Tensor, phi: torch.Tensor) -> torch.Tensor:
        # Cast to the weight's dtype: autocast does not cast for custom autograd functions.
        with torch.autocast(vectors.device.type, enabled=False):
            hidden = _PairProduct.apply(vectors.to(product_weight.dtype), a, b, product_weight)
        hidden = hidden + span_hidden[a] + antecedent_hidden[b] + phi @ feature_weight.t()
        return after_first_layer(feedforward._module, hidden)

    return hidden_of


def expected_antecedents(
    embeddings: torch.Tensor, antecedents: Antecedents, scores: torch.Tensor
) -> torch.Tensor:
    """
    Return each span's expected antecedent (Lee et al. 2018, section 3), shape `(batch_size,
    num_kept, span_dim)`. It is the average of the antecedents' embeddings, weighted by their
    probabilities. The case of no antecedent adds the span's own embedding, weighted by the
    probability of that case. `scores` is the result of `pair_scores`.
    """
    weights = scores.softmax(dim=2)
    square = weights.new_zeros(*embeddings.shape[:2], embeddings.size(1))
    square = square.scatter_add(2, antecedents.indices, weights[..., 1:] * antecedents.mask)
    return weights[..., :1] * embeddings + square @ embeddings


def marginal_loss(
    scores: torch.Tensor, labels: torch.Tensor, kept_mask: torch.Tensor, antecedents: Antecedents
) -> torch.Tensor:
    """
    Return the negative log of the total probability of each span's gold antecedents, summed over
    all spans (Lee et al. 2017, equation 9). An antecedent is gold if it is in the same gold cluster
    as the span. If a span has no gold antecedent, column 0 (no antecedent) is gold.

    `scores` is the result of `pair_scores`. `labels` holds the cluster number of each kept span, or
    -1 for none. `kept_mask` is true for real spans. Both have the shape `(batch_size, num_kept)`.
    """
    gold = (antecedents.select(labels) == labels.unsqueeze(2)) & antecedents.mask
    gold = gold & (labels >= 0).unsqueeze(2)
    gold = torch.cat([~gold.any(dim=2, keepdim=True), gold], dim=2)
    gold_scores = scores.masked_fill(~gold, -math.inf)
    return ((scores.logsumexp(dim=2) - gold_scores.logsumexp(dim=2)) * kept_mask).sum()
