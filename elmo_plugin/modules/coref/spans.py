"""Candidate spans: their vectors, and their scores as mentions."""

import math
from typing import Any, NamedTuple

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules import FeedForward
from allennlp.modules.span_extractors import EndpointSpanExtractor, SelfAttentiveSpanExtractor
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


def span_parts(
    spans: torch.Tensor,
    context: torch.Tensor,
    values: torch.Tensor,
    scored: torch.Tensor,
    endpoint_extractor: EndpointSpanExtractor,
    attentive_extractor: SelfAttentiveSpanExtractor,
    dropout: torch.nn.Dropout,
) -> SpanParts:
    """
    # Parameters

    spans, context, values : `torch.Tensor`
        As in `SpanParts`.
    scored : `torch.Tensor`
        What the scores of tokens in heads come from, shape `(batch_size, num_tokens, scored_dim)`.
    endpoint_extractor : `EndpointSpanExtractor`
        Whose width embedding is taken.
    attentive_extractor : `SelfAttentiveSpanExtractor`
        Whose scores of tokens are taken.
    dropout : `torch.nn.Dropout`
        On the embedded widths.

    # Returns

    `SpanParts`

    # Raises

    `ConfigurationError`
        If a span is wider than widths are embedded.
    """
    widths = spans[..., 1] - spans[..., 0]
    width_embedding: Any = endpoint_extractor._span_width_embedding
    if int(widths.max()) >= width_embedding.num_embeddings:
        raise ConfigurationError(
            f"found a span of {int(widths.max()) + 1} tokens, expected at most "
            f"{width_embedding.num_embeddings}, the model's max_span_width; the reader's is to be "
            "equal"
        )
    scores = attentive_extractor._global_attention(scored).squeeze(-1)
    return SpanParts(
        spans=spans,
        context=context,
        values=values,
        widths=dropout(width_embedding(widths)),
        attention=head_attention(scores, spans),
    )


def mention_scores(
    candidates: SpanParts, feedforward: FeedForward, scorer: torch.nn.Linear
) -> torch.Tensor:
    """
    The scores of Lee et al. 2017, equation 3: `scorer(feedforward(candidates.embeddings()))`.

    # Parameters

    candidates : `SpanParts`
    feedforward : `FeedForward`
    scorer : `torch.nn.Linear`

    # Returns

    `torch.Tensor`
        Shape `(batch_size, num_spans)`.
    """
    first: Any = feedforward._linear_layers[0]
    hidden = after_first_layer(feedforward, candidates.project(first))
    return scorer(hidden).squeeze(-1)
