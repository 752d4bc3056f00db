"""Which candidate spans are kept."""

import math
from typing import List, Tuple

import torch
from allennlp.nn import util


def kept_spans(
    scores: torch.Tensor,
    mask: torch.Tensor,
    spans: torch.Tensor,
    text_mask: torch.Tensor,
    spans_per_word: float,
    allow_crossing: bool,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """
    # Parameters

    scores : `torch.Tensor`
        Of the candidates, shape `(batch_size, num_spans)`.
    mask : `torch.Tensor`
        Which candidates are real, shape `(batch_size, num_spans)`.
    spans : `torch.Tensor`
        Their first and last tokens, shape `(batch_size, num_spans, 2)`.
    text_mask : `torch.Tensor`
        Which tokens are real, shape `(batch_size, num_tokens)`.
    spans_per_word : `float`
        How many to keep for each token: with crossing spans, as in allennlp-models, of the batch's
        longest document, else of its own.
    allow_crossing : `bool`
        Whether kept spans may cross.

    # Returns

    `Tuple[torch.Tensor, torch.Tensor]`
        The best ones' indices, in the order of the candidates, and which of them are real, both of
        shape `(batch_size, num_kept)`.
    """
    if allow_crossing:
        number = max(1, math.floor(spans_per_word * text_mask.size(1)))
        _, kept_mask, indices = util.masked_topk(scores, mask, min(number, scores.size(1)))  # type: ignore[arg-type]
        return indices, kept_mask
    numbers = [max(1, math.floor(spans_per_word * n)) for n in text_mask.sum(1).tolist()]
    return _without_crossing(scores, mask, spans, numbers)


def _without_crossing(
    scores: torch.Tensor, mask: torch.Tensor, spans: torch.Tensor, numbers: List[int]
) -> Tuple[torch.Tensor, torch.Tensor]:
    """
    The best first, but none that crosses one that is kept: that begins inside it and ends behind
    it, or the other way round (Lee et al. 2017; e2e-coref at 53c4116, coref_kernels.cc:146-214).
    """
    kept = []
    best = (
        scores.detach().masked_fill(~mask, -math.inf).argsort(dim=-1, descending=True, stable=True)
    )
    for order, real, pairs, number in zip(
        best.tolist(), mask.sum(1).tolist(), spans.tolist(), numbers
    ):
        chosen: List[int] = []
        # Of the kept spans that begin at a token the last end, of those that end there the first
        # start.
        last_end = [-1] * (1 + max(end for _, end in pairs))
        first_start = [len(last_end)] * len(last_end)
        for index in order[:real]:
            if len(chosen) == number:
                break
            start, end = pairs[index]
            if any(last > end for last in last_end[start + 1 : end + 1]):
                continue
            if any(first < start for first in first_start[start:end]):
                continue
            chosen.append(index)
            last_end[start] = max(last_end[start], end)
            first_start[end] = min(first_start[end], start)
        kept.append(sorted(chosen))
    longest = max(1, *map(len, kept))  # where there is none at all, a padded one
    indices = torch.tensor(
        [chosen + [0] * (longest - len(chosen)) for chosen in kept], device=scores.device
    )
    lengths = torch.tensor([len(chosen) for chosen in kept], device=scores.device)
    return indices, util.get_mask_from_sequence_lengths(lengths, longest)
