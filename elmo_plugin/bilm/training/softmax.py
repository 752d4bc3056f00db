"""
The softmax over words that pretraining needs and that is thrown away, or kept aside, afterwards.

Sampled as TensorFlow 1's `sampled_softmax_loss` does with its log-uniform candidate sampler (Jean
et al. 2015): negatives without replacement, logits corrected by each word's expected count,
negatives that are the target removed.
"""

import math
from typing import NamedTuple, Optional

import numpy
import torch
from torch.nn import functional


class Negatives(NamedTuple):
    """
    Words sampled for a batch.

    `ids`: int64, shape `(num_samples,)`, distinct.
    `num_tries`: draws it took, repeats included.
    """

    ids: torch.Tensor
    num_tries: int


class LogUniformSampler:
    """
    Word ids by falling frequency: `p(k) = (log(k + 2) - log(k + 1)) / log(num_words + 1)`.

    # Parameters

    num_words : `int`
        Size of the vocabulary, sorted by falling frequency.
    num_samples : `int`
        Distinct words a call draws.

    # Raises

    `ValueError`
        If there are not more words than samples.
    """

    def __init__(self, num_words: int, num_samples: int) -> None:
        if num_samples >= num_words:
            raise ValueError(
                f"num_samples is {num_samples} with {num_words} words, expected fewer samples than "
                "words (or no sampling, for a vocabulary this small)"
            )
        self.num_words = num_words
        self.num_samples = num_samples

    def sample(self, generator: Optional[torch.Generator] = None) -> Negatives:
        """Draws until `num_samples` distinct words have been seen."""
        draws = numpy.empty(0, dtype=numpy.int64)
        wanted = 2 * self.num_samples
        while True:
            uniform = torch.rand(wanted, dtype=torch.float64, generator=generator).numpy()
            more = numpy.exp(uniform * math.log(self.num_words + 1)).astype(numpy.int64) - 1
            draws = numpy.concatenate([draws, numpy.minimum(more, self.num_words - 1)])
            ids, first = numpy.unique(draws, return_index=True)
            if len(ids) >= self.num_samples:
                earliest = numpy.argsort(first)[: self.num_samples]
                num_tries = int(first[earliest[-1]]) + 1
                return Negatives(torch.from_numpy(ids[earliest]), num_tries)
            wanted = len(draws)

    def log_expected_count(self, ids: torch.Tensor, num_tries: int) -> torch.Tensor:
        """
        `log(1 - (1 - p)^num_tries)`: how often a word is among a sample that took so many draws.
        """
        ids = ids.double()
        probability = torch.log1p(1 / (ids + 1)) / math.log(self.num_words + 1)
        return torch.log(-torch.expm1(num_tries * torch.log1p(-probability)))


class WordSoftmax(torch.nn.Module):
    """
    Cross-entropy of the next word.

    # Parameters

    num_words : `int`
        Size of the vocabulary, sorted by falling frequency where it is sampled.
    projection_dim : `int`
        Width of one direction's output.
    num_samples : `Optional[int]`, optional (default = `None`)
        Negatives a training batch shares; `None` for the full softmax. Evaluation is always full.
    sparse : `bool`, optional (default = `False`)
        Whether sampled gradients are sparse tensors: for vocabularies whose dense gradient is too
        large, with an optimizer that takes them.
    """

    def __init__(
        self,
        num_words: int,
        projection_dim: int,
        num_samples: Optional[int] = None,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self.num_words = num_words
        self.sparse = sparse
        self.sampler = LogUniformSampler(num_words, num_samples) if num_samples else None
        self.weight = torch.nn.Parameter(torch.empty(num_words, projection_dim))
        self.bias = torch.nn.Parameter(torch.zeros(num_words, 1))
        torch.nn.init.normal_(self.weight, std=projection_dim**-0.5)

    def forward(
        self,
        outputs: torch.Tensor,
        targets: torch.Tensor,
        negatives: Optional[Negatives] = None,
    ) -> torch.Tensor:
        """
        # Parameters

        outputs : `torch.Tensor`
            Shape `(num_rows, projection_dim)`.
        targets : `torch.Tensor`
            Word ids, shape `(num_rows,)`.
        negatives : `Optional[Negatives]`
            Drawn here if not given; used in training only.

        # Returns

        `torch.Tensor`
            Mean loss in nats, a scalar.
        """
        if self.sampler is None or not self.training:
            return full_cross_entropy(outputs, targets, self.weight, self.bias)
        if negatives is None:
            negatives = self.sampler.sample()
        sampled = negatives.ids.to(targets.device)
        ids = torch.cat([targets, sampled])
        weight = functional.embedding(ids, self.weight, sparse=self.sparse)
        bias = functional.embedding(ids, self.bias, sparse=self.sparse).squeeze(-1)
        bias = bias - self.sampler.log_expected_count(ids, negatives.num_tries).to(bias.dtype)
        num_rows = len(targets)
        true_logits = (outputs * weight[:num_rows]).sum(dim=-1) + bias[:num_rows]
        sampled_logits = torch.addmm(bias[num_rows:], outputs, weight[num_rows:].t())
        hits = targets.unsqueeze(1) == sampled
        sampled_logits = sampled_logits.masked_fill(hits, -math.inf)
        logits = torch.cat([true_logits.unsqueeze(1), sampled_logits], dim=1)
        return (torch.logsumexp(logits, dim=1) - true_logits).mean()


def full_cross_entropy(
    outputs: torch.Tensor,
    targets: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    rows_at_once: int = 256,
    words_at_once: int = 2048,
) -> torch.Tensor:
    """
    Cross-entropy over all words, a block of rows and words at a time: without gradients, memory
    grows with neither.

    # Parameters

    outputs, targets
        As in `WordSoftmax.forward`.
    weight, bias : `torch.Tensor`
        Shapes `(num_words, projection_dim)` and `(num_words, 1)`.
    rows_at_once, words_at_once : `int`, optional (default = `256`, `2048`)
        Size of a block; the default's logits take 2 MB and stay in a processor's cache.

    # Returns

    `torch.Tensor`
        Mean loss in nats, a scalar.
    """
    losses = []
    for rows, row_targets in zip(outputs.split(rows_at_once), targets.split(rows_at_once)):
        sums = [
            torch.logsumexp(torch.addmm(words_bias.squeeze(-1), rows, words.t()), dim=1)
            for words, words_bias in zip(weight.split(words_at_once), bias.split(words_at_once))
        ]
        true_logits = (rows * weight[row_targets]).sum(dim=-1) + bias[row_targets].squeeze(-1)
        losses.append(torch.logsumexp(torch.stack(sums), dim=0) - true_logits)
    return torch.cat(losses).mean()
