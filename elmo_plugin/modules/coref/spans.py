"""Candidate spans: their vectors, their scores, and which of them are kept."""

import math
from typing import List, NamedTuple, Tuple

import torch
from allennlp.modules import FeedForward
from allennlp.nn import util


def after_first_layer(feedforward: FeedForward, hidden: torch.Tensor) -> torch.Tensor:
    """
    # Parameters

    feedforward : `FeedForward`
    hidden : `torch.Tensor`
        What its first linear layer gives, shape `(..., hidden_dim)`.

    # Returns

    `torch.Tensor`
        What it gives, shape `(..., output_dim)`.
    """
    layers = zip(feedforward._linear_layers, feedforward._activations, feedforward._dropout)
    for index, (linear, activation, dropout) in enumerate(layers):
        hidden = dropout(activation(linear(hidden) if index else hidden))
    return hidden


def _rows(vectors: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return util.batched_index_select(vectors, index)  # type: ignore[arg-type]


class SpanParts(NamedTuple):
    """
    What the vectors `[start; end; width; head]` of spans are made of.

    # Parameters

    spans : `torch.Tensor`
        First and last token, shape `(batch_size, num_spans, 2)`; padding is not below 0.
    context : `torch.Tensor`
        The encoder's outputs, shape `(batch_size, num_tokens, context_dim)`.
    values : `torch.Tensor`
        What heads are sums of, shape `(batch_size, num_tokens, value_dim)`.
    widths : `torch.Tensor`
        Embedded widths, shape `(batch_size, num_spans, feature_size)`.
    attention : `torch.Tensor`
        The share of a span's tokens in its head, shape `(batch_size, num_spans, widest)`.
    """

    spans: torch.Tensor
    context: torch.Tensor
    values: torch.Tensor
    widths: torch.Tensor
    attention: torch.Tensor

    def select(self, indices: torch.Tensor) -> "SpanParts":
        """
        # Parameters

        indices : `torch.Tensor`
            Which spans, shape `(batch_size, num_selected)`.

        # Returns

        `SpanParts`
        """
        return self._replace(
            spans=_rows(self.spans, indices),
            widths=_rows(self.widths, indices),
            attention=_rows(self.attention, indices),
        )

    def embeddings(self) -> torch.Tensor:
        """
        # Returns

        `torch.Tensor`
            Shape `(batch_size, num_spans, 2 * context_dim + feature_size + value_dim)`.
        """
        starts, ends = self.spans.unbind(-1)
        return torch.cat(
            [
                _rows(self.context, starts),
                _rows(self.context, ends),
                self.widths,
                self._heads(self.values),
            ],
            dim=-1,
        )

    def project(self, linear: torch.nn.Linear) -> torch.Tensor:
        """
        A linear layer of the vectors, without making them: all but the width is projected once for
        a token instead of for each of the spans that it is in.

        # Parameters

        linear : `torch.nn.Linear`

        # Returns

        `torch.Tensor`
            `linear(self.embeddings())`, shape `(batch_size, num_spans, output_dim)`.
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
        """Sums of the spans' tokens, weighted by attention."""
        heads = vectors.new_zeros(*self.spans.shape[:2], vectors.size(-1))
        for step in range(self.attention.size(-1)):
            index = (self.spans[..., 0] + step).clamp(max=vectors.size(1) - 1)
            heads = heads + self.attention[..., step : step + 1] * _rows(vectors, index)
        return heads


def head_attention(scores: torch.Tensor, spans: torch.Tensor) -> torch.Tensor:
    """
    # Parameters

    scores : `torch.Tensor`
        Of the tokens, shape `(batch_size, num_tokens)`.
    spans : `torch.Tensor`
        First and last token, shape `(batch_size, num_spans, 2)`.

    # Returns

    `torch.Tensor`
        A softmax over each span's tokens, 0 beyond its last, shape
        `(batch_size, num_spans, widest)`.
    """
    widths = spans[..., 1] - spans[..., 0] + 1
    steps = torch.arange(int(widths.max()), device=spans.device)
    inside = steps < widths.unsqueeze(-1)
    index = (spans[..., :1] + steps).clamp(max=scores.size(1) - 1)
    found = scores.gather(1, index.flatten(1)).view_as(index)
    return found.masked_fill(~inside, -math.inf).softmax(dim=-1)


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
    longest = max(map(len, kept))
    indices = torch.tensor(
        [chosen + [0] * (longest - len(chosen)) for chosen in kept], device=scores.device
    )
    lengths = torch.tensor([len(chosen) for chosen in kept], device=scores.device)
    return indices, util.get_mask_from_sequence_lengths(lengths, longest)
