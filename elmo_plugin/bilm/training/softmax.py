"""
The softmax over words that pretraining needs and that is thrown away, or kept aside, afterwards.

Sampled as TensorFlow 1's `sampled_softmax_loss` does with its log-uniform candidate sampler (Jean
et al. 2015): negatives without replacement, logits corrected by each word's expected count,
negatives that are the target removed.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.chooser import linear, training_linear


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
        if not 0 < num_samples < num_words:
            raise ValueError(
                f"num_samples is {num_samples} with {num_words} words, expected at least 1 and "
                "fewer than words (or no sampling, for a vocabulary this small)"
            )
        self.num_words = num_words
        self.num_samples = num_samples

    def sample(self, generator: torch.Generator | None = None) -> Negatives:
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
        num_samples: int | None = None,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self.num_words = num_words
        self.sparse = sparse
        # Whether gradients are sparse tensors until those of all processes are summed.
        self.sums_rows = False
        self.training_dtype: str | None = None
        self.sampler = (
            LogUniformSampler(num_words, num_samples) if num_samples is not None else None
        )
        self.weight = torch.nn.Parameter(torch.empty(num_words, projection_dim))
        self.bias = torch.nn.Parameter(torch.zeros(num_words, 1))
        torch.nn.init.normal_(self.weight, std=projection_dim**-0.5)

    def draw(self, seed: int) -> tuple[Negatives, Negatives] | None:
        """Both directions' negatives, the same for the same seed; `None` for the full softmax."""
        if self.sampler is None:
            return None
        generator = torch.Generator().manual_seed(seed)
        return self.sampler.sample(generator), self.sampler.sample(generator)

    def forward(
        self,
        outputs: Sequence[torch.Tensor],
        targets: Sequence[torch.Tensor],
        negatives: Sequence[Negatives] | None = None,
    ) -> list[torch.Tensor]:
        """
        # Parameters

        outputs : `Sequence[torch.Tensor]`
            Each direction's, shape `(num_rows, projection_dim)`.
        targets : `Sequence[torch.Tensor]`
            Each direction's word ids, shape `(num_rows,)`.
        negatives : `Optional[Sequence[Negatives]]`
            Each direction's, drawn here if not given; used in training only.

        # Returns

        `list[torch.Tensor]`
            Each direction's mean loss in nats, a scalar.
        """
        if self.sampler is None or not self.training:
            return [
                full_cross_entropy(*one, self.weight, self.bias) for one in zip(outputs, targets)
            ]
        if negatives is None:
            negatives = [self.sampler.sample() for _ in targets]
        ids = [
            torch.cat([words, drawn.ids.to(words.device)])
            for words, drawn in zip(targets, negatives)
        ]
        # All directions' in one lookup: a gradient as large as the table is then made once.
        sparse = self.sparse or self.sums_rows
        together, lengths = torch.cat(ids), [len(one) for one in ids]
        weights = functional.embedding(together, self.weight, sparse=sparse).split(lengths)
        biases = functional.embedding(together, self.bias, sparse=sparse).squeeze(-1).split(lengths)
        return [
            self._sampled_loss(one, words, weight, bias, drawn)
            for one, words, weight, bias, drawn in zip(outputs, ids, weights, biases, negatives)
        ]

    def _sampled_loss(
        self,
        outputs: torch.Tensor,
        ids: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        negatives: Negatives,
    ) -> torch.Tensor:
        """The mean loss; `ids` are the targets and then the negatives, with their rows."""
        assert self.sampler is not None
        bias = bias - self.sampler.log_expected_count(ids, negatives.num_tries).to(bias.dtype)
        num_rows = len(outputs)
        true_logits = (outputs * weight[:num_rows]).sum(dim=-1) + bias[:num_rows]
        logits = training_linear(outputs, weight[num_rows:], bias[num_rows:], self.training_dtype)
        # Where among the negatives each target is; once at most, since they are distinct.
        targets, sampled = ids[:num_rows], ids[num_rows:]
        places = ids.new_full((self.num_words,), -1)
        places[sampled] = torch.arange(len(sampled), device=ids.device)
        return _LossAgainstNegatives.apply(true_logits, logits, places[targets]).mean()


class _LossAgainstNegatives(torch.autograd.Function):
    """
    `log(exp(true) + sum(exp(sampled))) - true` of each row without its hit (its column, or -1), in
    few passes over the logits, whose place the exponentials and then the gradient take.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: torch.Tensor) -> torch.Tensor:
        true_logits, logits, hits = arguments
        columns = hits.clamp(min=0).unsqueeze(1)
        kept = logits.gather(1, columns).masked_fill_(hits.unsqueeze(1) >= 0, -math.inf)
        logits.scatter_(1, columns, kept)
        largest = torch.maximum(logits.amax(dim=1), true_logits)
        exponentials = logits.sub_(largest.unsqueeze(1)).exp_()
        true_share = (true_logits - largest).exp_()
        sums = exponentials.sum(dim=1).add_(true_share)
        ctx.save_for_backward(exponentials, true_share, sums)
        return sums.log() + largest - true_logits

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        exponentials, true_share, sums = ctx.saved_tensors
        scale = gradient / sums
        return true_share * scale - gradient, exponentials.mul_(scale.unsqueeze(1)), None


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
    with_grad = torch.is_grad_enabled()
    logits = training_linear if with_grad else linear
    blocks = list(zip(weight.split(words_at_once), bias.split(words_at_once)))
    # Without gradients made before the blocks' logits: rows kept between these would split the
    # memory they leave.
    places = [None] * len(blocks) if with_grad else outputs.new_empty(len(blocks), rows_at_once)
    losses = []
    for rows, row_targets in zip(outputs.split(rows_at_once), targets.split(rows_at_once)):
        sums = [
            torch.logsumexp(
                logits(rows, words, words_bias.squeeze(-1)),
                dim=1,
                out=None if place is None else place[: len(rows)],
            )
            for (words, words_bias), place in zip(blocks, places)
        ]
        true_logits = (rows * weight[row_targets]).sum(dim=-1) + bias[row_targets].squeeze(-1)
        losses.append(torch.logsumexp(torch.stack(sums), dim=0) - true_logits)
    return torch.cat(losses).mean()
