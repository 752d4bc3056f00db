"""Embed candidate spans for coreference, score them as mentions, and choose those to keep."""

import math
from typing import Any, List, NamedTuple, Optional, Tuple, Union

import torch
from allennlp.modules import FeedForward, TimeDistributed
from allennlp.nn import util

from elmo_plugin.bilm.kernels.interface import Affine
from elmo_plugin.bilm.kernels.plain import is_plain, plain_affines, plain_class

plain_class(FeedForward)
plain_class(TimeDistributed)


def after_first_layer(feedforward: FeedForward, hidden: torch.Tensor) -> torch.Tensor:
    """
    Run the part of a feedforward network that follows its first linear layer. `hidden` is the
    output of that layer, shape `(..., hidden_dim)`. Return a tensor of shape `(..., output_dim)`.
    """
    layers = zip(feedforward._linear_layers, feedforward._activations, feedforward._dropout)
    for index, (linear, activation, dropout) in enumerate(layers):
        hidden = dropout(activation(linear(hidden) if index else hidden))
    return hidden


def first_affine(feedforward: TimeDistributed) -> Optional[Affine]:
    """
    Return weight and bias of a feedforward network's first layer, to split its product; `None` if
    the network or this layer was replaced or hooked, and the network must be called.
    """
    inner: Any = feedforward._module
    if not is_plain(feedforward, TimeDistributed) or not is_plain(inner, FeedForward):
        return None
    affines = plain_affines([(inner._linear_layers[0], torch.nn.Linear, True)])
    return None if affines is None else affines[0]


def _rows(vectors: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return util.batched_index_select(vectors, index)  # type: ignore[arg-type]


class SpanParts(NamedTuple):
    """
    Parts from which the spans' vectors are computed (Lee et al. 2017, section 4.2). A vector is
    `[start; end; width; head]`: the encoder's outputs at the first and the last token, the embedded
    width, and the attention-weighted sum of the span's tokens.

    `spans`: first and last token, shape `(batch_size, num_spans, 2)`; valid indices at padding too.
    `context`: the encoder's outputs, shape `(batch_size, num_tokens, context_dim)`.
    `values`: token vectors that the head sums, shape `(batch_size, num_tokens, value_dim)`.
    `widths`: embedded widths, shape `(batch_size, num_spans, feature_size)`.
    `attention`: weights of each span's tokens, shape `(batch_size, num_spans, max_width)`.
    """

    spans: torch.Tensor
    context: torch.Tensor
    values: torch.Tensor
    widths: torch.Tensor
    attention: torch.Tensor

    def select(self, indices: torch.Tensor) -> "SpanParts":
        """Return the `SpanParts` of the spans at `indices`, shape `(batch_size, num_selected)`."""
        return self._replace(
            spans=_rows(self.spans, indices),
            widths=_rows(self.widths, indices),
            attention=_rows(self.attention, indices),
        )

    def embeddings(self) -> torch.Tensor:
        """Return the spans' vectors, shape `(batch_size, num_spans, vector_dim)`."""
        starts, ends = (_rows(self.context, tokens) for tokens in self.spans.unbind(-1))
        return torch.cat([starts, ends, self.widths, self._heads(self.values)], dim=-1)

    def project(self, linear: Affine) -> torch.Tensor:
        """
        Return the linear layer's map of `self.embeddings()`, shape `(batch_size, num_spans,
        output_dim)`. To save operations, token vectors are projected once per token instead of once
        per span.
        """
        context_dim = self.context.size(-1)
        start, end, width, head = linear.weight.split(
            [context_dim, context_dim, self.widths.size(-1), self.values.size(-1)], dim=1
        )
        starts, ends = self.spans.unbind(-1)
        return (
            _rows(self.context @ start.t(), starts)
            + _rows(self.context @ end.t(), ends)
            + torch.nn.functional.linear(self.widths, width, linear.bias)
            + self._heads(self.values @ head.t())
        )

    def _heads(self, vectors: torch.Tensor) -> torch.Tensor:
        """Sum the vectors of each span's tokens, weighted by attention."""
        heads = vectors.new_zeros(*self.spans.shape[:2], vectors.size(-1))
        for step in range(self.attention.size(-1)):
            index = (self.spans[..., 0] + step).clamp(max=vectors.size(1) - 1)
            heads = heads + self.attention[..., step : step + 1] * _rows(vectors, index)
        return heads


class SpanVectors(NamedTuple):
    """
    Vectors of spans from the extractors, which are called where they were replaced or hooked.
    `spans` and methods are those of `SpanParts`.
    """

    spans: torch.Tensor
    vectors: torch.Tensor

    def select(self, indices: torch.Tensor) -> "SpanVectors":
        """Return the `SpanVectors` of the spans at `indices`."""
        return SpanVectors(_rows(self.spans, indices), _rows(self.vectors, indices))

    def embeddings(self) -> torch.Tensor:
        """Return the spans' vectors, shape `(batch_size, num_spans, vector_dim)`."""
        return self.vectors


def mention_scores(
    candidates: Union[SpanParts, SpanVectors], feedforward: TimeDistributed, scorer: TimeDistributed
) -> torch.Tensor:
    """
    Return each candidate's mention score, shape `(batch_size, num_spans)`. The score is
    `scorer(feedforward(candidates.embeddings()))` (Lee et al. 2017, equation 3).
    """
    first = first_affine(feedforward)
    if first is None or isinstance(candidates, SpanVectors):
        hidden = feedforward(candidates.embeddings())
    else:
        hidden = after_first_layer(feedforward._module, candidates.project(first))
    return scorer(hidden).squeeze(-1)


def kept_spans(
    scores: torch.Tensor,
    mask: torch.Tensor,
    spans: torch.Tensor,
    text_mask: torch.Tensor,
    spans_per_word: float,
    allow_crossing: bool,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """
    Choose the candidates with the highest mention scores, `spans_per_word` for each token of a
    document. If `allow_crossing` is false, no kept span begins inside another kept span and ends
    after it. If `allow_crossing` is true, every document gets as many spans as the longest document
    in the batch, as in allennlp-models.

    `mask` is true for real candidates. `scores` and `mask` have the shape `(batch_size,
    num_spans)`. `spans` holds first and last tokens, shape `(batch_size, num_spans, 2)`.
    `text_mask` is true for real tokens, shape `(batch_size, num_tokens)`. Return the indices of the
    kept candidates in ascending order, and a mask that is false at padding, both of shape
    `(batch_size, num_kept)`.
    """
    if allow_crossing:
        number = max(1, math.floor(spans_per_word * text_mask.size(1)))
        number = min(number, scores.size(1))
        _, kept_mask, indices = util.masked_topk(scores, mask, number)  # type: ignore[arg-type]
        return indices, kept_mask
    numbers = [max(1, math.floor(spans_per_word * n)) for n in text_mask.sum(1).tolist()]
    return _without_crossing(scores, mask, spans, numbers)


def _without_crossing(
    scores: torch.Tensor, mask: torch.Tensor, spans: torch.Tensor, numbers: List[int]
) -> Tuple[torch.Tensor, torch.Tensor]:
    """
    Return, for each document `i`, the indices of its best `numbers[i]` candidates that do not
    cross, and their mask. A candidate that crosses a kept span with a higher score is skipped
    (e2e-coref at 53c4116, coref_kernels.cc:146-214).
    """
    kept = []
    real_scores = scores.detach().masked_fill(~mask, -math.inf)
    best = real_scores.argsort(dim=-1, descending=True, stable=True)
    rows = zip(best.tolist(), mask.sum(1).tolist(), spans.tolist(), numbers)
    for order, real, pairs, number in rows:
        chosen: List[int] = []
        # last_end[t]: largest end of the kept spans that start at token t.
        # first_start[t]: smallest start of the kept spans that end at token t.
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
    longest = max(1, *map(len, kept))  # if all are empty, keep one column of padding
    padded = [chosen + [0] * (longest - len(chosen)) for chosen in kept]
    lengths = torch.tensor([len(chosen) for chosen in kept], device=scores.device)
    mask = util.get_mask_from_sequence_lengths(lengths, longest)
    return torch.tensor(padded, device=scores.device), mask
