"""The best span of a passage, and the losses of its start and end."""

from typing import List, Sequence, Tuple

import torch
from allennlp.nn.util import min_value_of_dtype

Span = Tuple[int, int]


def best_span(
    start_logits: torch.Tensor, end_logits: torch.Tensor, max_span_length: int
) -> torch.Tensor:
    """
    The span with the highest sum of start and end logit (docqa/nn/span_prediction_ops.py, lines 10
    to 50, of allenai/document-qa at 2f9fa68).

    # Parameters

    start_logits : `torch.Tensor`
        Shape `(batch_size, num_tokens)`, padding at the least value of the dtype.
    end_logits : `torch.Tensor`
        Likewise.
    max_span_length : `int`
        The most tokens that a span may have.

    # Returns

    `torch.Tensor`
        First and last token of each span, both in it, shape `(batch_size, 2)`.
    """
    least = min_value_of_dtype(end_logits.dtype)
    padded = torch.nn.functional.pad(end_logits, (0, max_span_length - 1), value=least)
    # Shape: (batch_size, num_tokens, max_span_length), by start and by tokens after it
    scores = start_logits.unsqueeze(2) + padded.unfold(1, max_span_length, 1)
    best = scores.flatten(1).argmax(dim=1)
    start = torch.div(best, max_span_length, rounding_mode="floor")
    return torch.stack([start, start + best % max_span_length], dim=1)


def draw_one(answers: Sequence[Sequence[Span]]) -> List[List[Span]]:
    """
    Draws one marked answer of each question, by torch's random numbers on the CPU.

    # Parameters

    answers : `Sequence[Sequence[Span]]`
        The marked spans of each question, at least one; those marked twice are drawn twice as
        often.

    # Returns

    `List[List[Span]]`
        One of them for each question.
    """
    # No number is drawn where there is no choice.
    return [
        [spans[int(torch.randint(len(spans), (1,)))] if len(spans) > 1 else spans[0]]
        for spans in answers
    ]


def boundary_loss(logits: torch.Tensor, places: Sequence[Sequence[int]]) -> torch.Tensor:
    """
    Cross-entropy of the summed probability of all marked places; with one place in each row the
    usual cross-entropy (docqa/nn/span_prediction.py, lines 113 to 128, at the same commit).

    # Parameters

    logits : `torch.Tensor`
        Shape `(batch_size, num_tokens)`, padding at the least value of the dtype.
    places : `Sequence[Sequence[int]]`
        The marked tokens of each row, at least one.

    # Returns

    `torch.Tensor`
        Scalar, the mean over the batch.
    """
    is_marked = torch.zeros(logits.shape, dtype=torch.bool)
    for row, indices in enumerate(places):
        is_marked[row, list(indices)] = True
    least = min_value_of_dtype(logits.dtype)
    right = logits.masked_fill(~is_marked.to(logits.device), least).logsumexp(dim=-1)
    return (logits.logsumexp(dim=-1) - right).mean()
