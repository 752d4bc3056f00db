"""
Word softmax for training a biLM, and its file `softmax.hdf5`.

Sampling follows TensorFlow 1's `sampled_softmax_loss` with the log-uniform candidate sampler (Jean
et al. 2015). Negatives are drawn without replacement; a negative that equals the target is left
out. The log of a word's expected count is subtracted from its logit.
"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy
import torch
from torch.nn import functional

from elmo_plugin.bilm.files.atomic_write import atomic_write
from elmo_plugin.bilm.files.plain_hdf5 import plain_hdf5
from elmo_plugin.bilm.kernels.compiled_training import training_linear
from elmo_plugin.bilm.kernels.gradients import hand_written

# HDF5 datasets of `softmax.hdf5`; bilm-tf uses the first two names.
WEIGHT, BIAS, SCALE = "softmax/W", "softmax/b", "softmax/scale"


class Negatives(NamedTuple):
    """
    Words sampled as negatives for one batch.

    `ids`: int64, shape `(num_samples,)`, distinct. `num_tries`: number of draws that were needed,
    including repeated words.
    """

    ids: torch.Tensor
    num_tries: int


class LogUniformSampler:
    """
    Sampler of distinct word ids from the distribution `p(k) = (log(k + 2) - log(k + 1)) /
    log(num_words + 1)`.

    # Parameters

    num_words : `int`
        Size of the vocabulary, whose words must be sorted by decreasing frequency.
    num_samples : `int`
        Number of distinct words to draw.

    # Raises

    `ValueError`
        If `num_samples` is not between 1 and `num_words - 1`.
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
        """Draw words until `num_samples` distinct ones have been seen."""
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
        Return, for each word, the log of the probability that `num_tries` draws include it.

        The sampled softmax subtracts this value, `log(1 - (1 - p(id))^num_tries)`, from the logit.
        """
        ids = ids.double()
        probability = torch.log1p(1 / (ids + 1)) / math.log(self.num_words + 1)
        return torch.log(-torch.expm1(num_tries * torch.log1p(-probability)))


class WordSoftmax(torch.nn.Module):
    """
    Softmax layer over words, with its cross-entropy loss.

    # Parameters

    num_words : `int`
        Size of the vocabulary; for sampling, its words must be sorted by decreasing frequency.
    projection_dim : `int`
        Width of the output of one direction of the biLM.
    num_samples : `int | None`, optional (default = `None`)
        Number of negatives that all tokens of a training batch share; `None` for the full softmax.
        Evaluation always uses the full softmax.
    sparse : `bool`, optional (default = `False`)
        Make the gradients of weight and bias sparse tensors. This saves time for a large
        vocabulary; the optimizer must accept sparse gradients.
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
        # True in a distributed run: gradients stay sparse until they are summed over processes.
        self.sums_rows = False
        self.training_dtype: str | None = None
        self.sampler = (
            LogUniformSampler(num_words, num_samples) if num_samples is not None else None
        )
        self.weight = torch.nn.Parameter(torch.empty(num_words, projection_dim))
        self.bias = torch.nn.Parameter(torch.zeros(num_words, 1))
        torch.nn.init.normal_(self.weight, std=projection_dim**-0.5)

    def draw(self, seed: int) -> tuple[Negatives, Negatives] | None:
        """
        Sample the negatives of the forward and the backward direction; return `None` for a full
        softmax.
        """
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
        Compute the mean loss of each direction.

        # Parameters

        outputs : `Sequence[torch.Tensor]`
            Output of each direction, shape `(num_rows, projection_dim)`.
        targets : `Sequence[torch.Tensor]`
            Word ids of each direction, shape `(num_rows,)`.
        negatives : `Sequence[Negatives] | None`
            Negatives of each direction, used in training only; drawn here if not given.

        # Returns

        `list[torch.Tensor]`
            A scalar for each direction, in nats per word.
        """
        if self.sampler is None or not self.training:
            dtype = self.training_dtype if self.training else None
            return [
                full_cross_entropy(*one, self.weight, self.bias, training_dtype=dtype).mean()
                for one in zip(outputs, targets)
            ]
        if negatives is None:
            negatives = [self.sampler.sample() for _ in targets]
        ids = [
            torch.cat([words, drawn.ids.to(words.device)])
            for words, drawn in zip(targets, negatives)
        ]
        sparse = self.sparse or self.sums_rows
        # Two lookups, one for each direction, would allocate two gradients as large as the weight.
        all_ids, lengths = torch.cat(ids), [len(one) for one in ids]
        weights = functional.embedding(all_ids, self.weight, sparse=sparse).split(lengths)
        biases = functional.embedding(all_ids, self.bias, sparse=sparse).squeeze(-1).split(lengths)
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
        """
        Return the mean loss of one direction. `ids` holds the targets, followed by the negatives;
        `weight` and `bias` are the softmax's rows for these ids.
        """
        assert self.sampler is not None
        bias = bias - self.sampler.log_expected_count(ids, negatives.num_tries).to(bias.dtype)
        num_rows = len(outputs)
        true_logits = (outputs * weight[:num_rows]).sum(dim=-1) + bias[:num_rows]
        logits = training_linear(outputs, weight[num_rows:], bias[num_rows:], self.training_dtype)
        # Column of each target among the negatives, which are distinct; -1 if it is not sampled.
        targets, sampled = ids[:num_rows], ids[num_rows:]
        columns = ids.new_full((self.num_words,), -1)
        columns[sampled] = torch.arange(len(sampled), device=ids.device)
        return _LossAgainstNegatives.apply(true_logits, logits, columns[targets]).mean()


class _LossAgainstNegatives(torch.autograd.Function):
    """
    Cross-entropy of each row, `log(exp(true) + sum(exp(sampled))) - true`, from true and sampled
    logits.

    A negative that equals the target is left out of the sum. `hits` has, for each row, the column
    of that negative, or -1 if there is none. The sampled logits are overwritten to save memory and
    time.
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
    @hand_written()
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
    training_dtype: str | None = None,
) -> torch.Tensor:
    """
    Return the cross-entropy of each row over all words, in nats, shape `(num_rows,)`.

    Shapes are `(num_rows, projection_dim)` for `outputs`, `(num_rows,)` for the word ids `targets`,
    `(num_words, projection_dim)` for `weight` and `(num_words, 1)` for `bias`. With gradients, the
    products are in `training_dtype`, see `LanguageModel`. Logits are computed in blocks of
    `rows_at_once` rows and `words_at_once` words to save memory; the default block is 2 MB, which
    fits a CPU's cache.
    """
    with_grad = torch.is_grad_enabled()
    in_training = partial(training_linear, training_dtype=training_dtype)
    linear = in_training if with_grad else functional.linear
    blocks = list(zip(weight.split(words_at_once), bias.split(words_at_once)))
    # Allocate the results first, so that the logits of all blocks can reuse the same memory.
    results = [None] * len(blocks) if with_grad else outputs.new_empty(len(blocks), rows_at_once)
    losses = []
    for rows, row_targets in zip(outputs.split(rows_at_once), targets.split(rows_at_once)):
        sums = [
            torch.logsumexp(
                linear(rows, words, words_bias.squeeze(-1)),
                dim=1,
                out=None if result is None else result[: len(rows)],
            )
            for (words, words_bias), result in zip(blocks, results)
        ]
        # Not `weight[row_targets]`, whose gradient depends on the order of the threads.
        own = functional.embedding(row_targets, weight)
        own_bias = functional.embedding(row_targets, bias).squeeze(-1)
        true_logits = (rows * own).sum(dim=-1) + own_bias
        losses.append(torch.logsumexp(torch.stack(sums), dim=0) - true_logits)
    return torch.cat(losses) if losses else outputs.new_zeros(0)


def save_softmax(softmax: WordSoftmax, path: str | Path, dtype: str = "float32") -> None:
    """
    Write the softmax to a `softmax.hdf5`, atomically.

    `dtype` is `"float32"`, `"float16"` or `"int8"`. With `"int8"`, the weights of each word are
    integers from -127 to 127 with one float32 scale per word, and the bias is float32.
    """
    weight = softmax.weight.detach().cpu().float().numpy()
    bias = softmax.bias.detach().cpu().float().numpy().squeeze(-1)
    with atomic_write(path) as temporary, h5py.File(temporary, "w") as file:
        if dtype == "int8":
            scale = numpy.maximum(numpy.abs(weight).max(axis=1), 1e-30) / 127
            file[WEIGHT] = numpy.rint(weight / scale[:, None]).astype("int8")
            file[SCALE] = scale.astype("float32")
            file[BIAS] = bias
        else:
            file[WEIGHT], file[BIAS] = weight.astype(dtype), bias.astype(dtype)


def load_softmax(softmax: WordSoftmax, path: str | Path) -> None:
    """
    Load the parameters of a softmax, in place, from a `softmax.hdf5`.

    # Raises

    `FileNotFoundError`
        If there is no such file.
    `ValueError`
        If the file is damaged or not a softmax file, or its vocabulary size or `projection_dim`
        differs from that of `softmax`.
    """
    with plain_hdf5(path, "softmax file") as file:
        weight, bias, scale = (
            torch.from_numpy(file[key][...].astype("float32")) if key in file else None
            for key in (WEIGHT, BIAS, SCALE)
        )
    num_words, projection_dim = softmax.weight.shape
    shapes = [None if tensor is None else tuple(tensor.shape) for tensor in (weight, bias)]
    if weight is None or bias is None or shapes != [(num_words, projection_dim), (num_words,)]:
        raise ValueError(
            f"{path}: {WEIGHT} and {BIAS} have shapes {shapes[0]} and {shapes[1]}, expected "
            f"{(num_words, projection_dim)} and {(num_words,)}: the same vocabulary and "
            "projection_dim as in the run that wrote it"
        )
    if scale is not None:
        if scale.shape != (num_words,):
            raise ValueError(
                f"{path}: {SCALE} has shape {tuple(scale.shape)}, expected {(num_words,)}"
            )
        weight = weight * scale.unsqueeze(1)
    with torch.no_grad():
        softmax.weight.copy_(weight)
        softmax.bias.copy_(bias.unsqueeze(-1))
