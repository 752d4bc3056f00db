"""The possible antecedents of kept spans: the nearest, or those that a coarse score likes best."""

from typing import NamedTuple

import torch
from allennlp.nn import util


class Antecedents(NamedTuple):
    """
    The possible antecedents of kept spans.

    # Parameters

    indices : `torch.Tensor`
        Which kept span each is, shape `(batch_size, num_kept, num_antecedents)`.
    mask : `torch.Tensor`
        Whether it is one, of the same shape.
    scores : `torch.Tensor`
        What is known of the pair's score, of the same shape: both mention scores, and the coarse
        score if there is one.
    """

    indices: torch.Tensor
    mask: torch.Tensor
    scores: torch.Tensor

    def select(self, values: torch.Tensor) -> torch.Tensor:
        """
        # Parameters

        values : `torch.Tensor`
            Of the kept spans, shape `(batch_size, num_kept)`.

        # Returns

        `torch.Tensor`
            Those of the antecedents, shape `(batch_size, num_kept, num_antecedents)`.
        """
        return values.gather(1, self.indices.flatten(1)).view_as(self.indices)


def nearest_antecedents(mention_scores: torch.Tensor, number: int) -> Antecedents:
    """
    # Parameters

    mention_scores : `torch.Tensor`
        Of the kept spans, shape `(batch_size, num_kept)`.
    number : `int`
        How many spans before it a span may have as antecedents, at most.

    # Returns

    `Antecedents`
        The nearest first.
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
    The antecedents that a bilinear score likes best (Lee et al. 2018).

    # Parameters

    mention_scores : `torch.Tensor`
        Of the kept spans, shape `(batch_size, num_kept)`.
    kept_mask : `torch.Tensor`
        Which are real, shape `(batch_size, num_kept)`.
    embeddings, projected : `torch.Tensor`
        The two sides of the bilinear score, shape `(batch_size, num_kept, span_dim)`.
    number : `int`
        How many antecedents a span has, at most.

    # Returns

    `Antecedents`
        In the order of the document.
    """
    num_kept = mention_scores.size(1)
    scores = mention_scores.unsqueeze(1) + mention_scores.unsqueeze(2)
    scores = scores + embeddings @ projected.transpose(1, 2)
    earlier = torch.ones(num_kept, num_kept, dtype=torch.bool, device=scores.device).tril(-1)
    mask = kept_mask.unsqueeze(2) & earlier
    number = min(number, num_kept)
    scores, mask, indices = util.masked_topk(scores, mask, number)  # type: ignore[arg-type]
    return Antecedents(indices, mask, scores)
