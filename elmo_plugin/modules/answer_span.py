"""Best answer span in a passage, and the loss of the gold answers' boundaries."""

from typing import List, Sequence, Tuple

import torch
from allennlp.nn.util import min_value_of_dtype

Span = Tuple[int, int]


def best_span(
    start_logits: torch.Tensor, end_logits: torch.Tensor, max_span_length: int
) -> torch.Tensor:
    """
    Return the first and the last token of each passage's best span, shape `(batch_size, 2)`. It has
    the highest sum of start and end logit among spans of at most `max_span_length` tokens
    (docqa/nn/span_prediction_ops.py, lines 10 to 50, of allenai/document-qa at 2f9fa68). The logits
    have the shape `(batch_size, num_tokens)`. At padding they hold the smallest value of the dtype.
    """
    least = min_value_of_dtype(end_logits.dtype)
    padded = torch.nn.functional.pad(end_logits, (0, max_span_length - 1), value=least)
    # Shape: (batch_size, num_tokens, max_span_length), by start token and length minus 1
    scores = start_logits.unsqueeze(2) + padded.unfold(1, max_span_length, 1)
    best = scores.flatten(1).argmax(dim=1)
    start = torch.div(best, max_span_length, rounding_mode="floor")
    return torch.stack([start, start + best % max_span_length], dim=1)


def draw_one(answers: Sequence[Sequence[Span]]) -> List[List[Span]]:
    """
    Draw one of each question's annotated answers, and return it in a list of length 1. A span that
    two annotators marked is twice as likely. Random numbers come from PyTorch's CPU generator.
    """
    # For a single answer, draw no random number: this leaves the generator's state unchanged.
    return [
        [spans[int(torch.randint(len(spans), (1,)))] if len(spans) > 1 else spans[0]]
        for spans in answers
    ]


def boundary_loss(logits: torch.Tensor, gold: Sequence[Sequence[int]]) -> torch.Tensor:
    """
    Return the negative log of the total probability of each row's gold tokens, averaged over rows
    (docqa/nn/span_prediction.py, lines 113 to 128, of allenai/document-qa at 2f9fa68). With one
    gold token per row this is the usual cross-entropy.

    `logits` has the shape `(batch_size, num_tokens)`. At padding it holds the smallest value of the
    dtype. `gold` holds the indices of each row's gold tokens, at least one per row.
    """
    is_gold = torch.zeros(logits.shape, dtype=torch.bool)
    for row, indices in enumerate(gold):
        is_gold[row, list(indices)] = True
    least = min_value_of_dtype(logits.dtype)
    gold_scores = logits.masked_fill(~is_gold.to(logits.device), least).logsumexp(dim=-1)
    return (logits.logsumexp(dim=-1) - gold_scores).mean()
