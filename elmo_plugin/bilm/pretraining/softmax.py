"""
Word softmax for training a biLM, and its file `softmax.hdf5`.

By default, sampling follows TensorFlow 1's `sampled_softmax_loss` with the log-uniform candidate
sampler (Jean et al. 2015). Negatives are drawn without replacement; a negative that equals the
target is left out. The log of a word's expected count is subtracted from its logit.
"""

import math
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy
import torch
from torch.nn import functional

from elmo_plugin.bilm.files.atomic_write import atomic_write
from elmo_plugin.bilm.files.plain_hdf5 import plain_hdf5
from elmo_plugin.bilm.kernels.compiled_training import training_linear
from elmo_plugin.bilm.kernels.sampled_softmax import fuses, sampled_losses
from elmo_plugin.bilm.pretraining.vocabulary import check_least

# HDF5 datasets of `softmax.hdf5`; bilm-tf uses the first two names.
WEIGHT, BIAS, SCALE = "softmax/W", "softmax/b", "softmax/scale"


class Negatives(NamedTuple):
    """
    Draws of negatives for one batch.

    `draws`: numbers that a sampler's `word_ids` turns into words, shape `(num_samples,)`.
    `num_tries`: number of draws that were needed, including repeated words; a tensor where a CUDA
    graph reads it.
    """

    draws: torch.Tensor
    num_tries: Any


class LogUniformSampler:
    """
    Sampler of `num_samples` distinct word ids from the distribution `p(k) = (log(k + 2) -
    log(k + 1)) / log(num_words + 1)`, for words sorted by decreasing frequency.
    """

    is_shared = False
    # A property, which samplers in pickled models of earlier versions have too.
    num_candidates = property(attrgetter("num_samples"))

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

    @staticmethod
    def word_ids(draws: torch.Tensor) -> torch.Tensor:
        """Return the words that were drawn, which are distinct."""
        return draws

    def log_expected_count(self, ids: torch.Tensor, num_tries: Any) -> torch.Tensor:
        """
        Return, for each word, the log of the probability that `num_tries` draws include it.

        The sampled softmax subtracts this value, `log(1 - (1 - p(id))^num_tries)`, from the logit.
        """
        probability = torch.log1p(1 / (ids.double() + 1)) / math.log(self.num_words + 1)
        return torch.log(-torch.expm1(num_tries * torch.log1p(-probability)))

    def corrections(
        self, targets: torch.Tensor, candidates: torch.Tensor, num_tries: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what is subtracted from the logits of both, in float64."""
        both = self.log_expected_count(torch.cat([targets, candidates]), num_tries)
        return both[: len(targets)], both[len(targets) :]


class FrequencySampler:
    """
    Sampler whose candidates are the most frequent words, and random draws of the others with
    probability proportional to a power of their count.

    Draws are with replacement, and repeated words stay. The expected count is how often a word is
    drawn on average, and 1 for a frequent word: the sum of `exp(logit - log(expected count))` over
    the candidates is an unbiased estimate of the full softmax's normalizer. The logits of targets
    are not corrected. In a small vocabulary, all words are candidates.

    `counts` has the count of each word in the text, shape `(num_words,)`, `num_frequent` the number
    of words that are always candidates, the first ones. Both directions share the candidates.
    """

    is_shared = True
    num_candidates = property(lambda self: self.num_frequent + self.num_samples)

    def __init__(
        self, counts: torch.Tensor, num_samples: int, num_frequent: int, exponent: float
    ) -> None:
        self.num_frequent = min(num_frequent, len(counts))
        weights = counts[self.num_frequent :].double().clamp(min=1) ** exponent
        self.num_samples = num_samples if len(weights) else 0
        self._cumulative = (weights.cumsum(0) / weights.sum()).float()
        log_counts = (weights / weights.sum()).log() + math.log(num_samples)
        self._log_counts = torch.cat([log_counts.new_zeros(self.num_frequent), log_counts])

    def sample(self, generator: torch.Generator | None = None) -> Negatives:
        """Draw a number from 0 to 1 for each sample, from which a GPU can find the words."""
        return Negatives(torch.rand(self.num_samples, generator=generator), self.num_samples)

    def word_ids(self, draws: torch.Tensor) -> torch.Tensor:
        """Return the candidates of a batch: the frequent words, and the words that were drawn."""
        self._cumulative = self._cumulative.to(draws.device)
        drawn = torch.searchsorted(self._cumulative, draws)
        # Rounding can leave the last cumulative probability below 1.
        drawn.clamp_(max=len(self._cumulative) - 1).add_(self.num_frequent)
        return torch.cat([torch.arange(self.num_frequent, device=draws.device), drawn])

    def corrections(
        self, targets: torch.Tensor, candidates: torch.Tensor, num_tries: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what is subtracted from the logits of both, in float64."""
        self._log_counts = self._log_counts.to(candidates.device)
        return self._log_counts.new_zeros(()), self._log_counts[candidates]


class WordSoftmax(torch.nn.Module):
    """
    Softmax layer over words, with its cross-entropy loss.

    # Parameters

    num_words : `int`
        Size of the vocabulary; for sampling, its words must be sorted by decreasing frequency.
    num_samples : `int | None`, optional (default = `None`)
        Number of negatives that all tokens of a training batch share; `None` for the full softmax.
        Evaluation always uses the full softmax.
    sparse : `bool`, optional (default = `False`)
        Make the gradients of weight and bias sparse tensors. This saves time for a large
        vocabulary; the optimizer must accept sparse gradients.
    count_exponent : `float | None`, optional (default = `None`)
        Draw words with probability proportional to this power of their count, as candidates of both
        directions, see `FrequencySampler`. Without it, each direction has log-uniform negatives.
    num_frequent : `int`, optional (default = `0`)
        With `count_exponent`: number of most frequent words that are always candidates.
    bias_from_counts : `bool`, optional (default = `False`)
        Initialize the bias with the log of each word's share of the text, and not with zeros.
    counts : `torch.Tensor | None`, optional (default = `None`)
        Count of each word in the text, which the last three need.
    pretrained_file : `str | None`, optional (default = `None`)
        A `softmax.hdf5` with initial weights; random if not given.
    """

    def __init__(
        self,
        num_words: int,
        projection_dim: int,
        num_samples: int | None = None,
        sparse: bool = False,
        count_exponent: float | None = None,
        num_frequent: int = 0,
        bias_from_counts: bool = False,
        counts: torch.Tensor | None = None,
        pretrained_file: str | None = None,
    ) -> None:
        super().__init__()
        check_least(0, num_frequent=num_frequent, count_exponent=count_exponent)
        if count_exponent is None and num_frequent:
            raise ValueError(f"num_frequent is {num_frequent}, expected count_exponent with it")
        if counts is None and (count_exponent is not None or bias_from_counts):
            raise ValueError("the softmax needs the counts of its words in the text")
        self.num_words = num_words
        self.sparse = sparse
        # True in a distributed run: gradients stay sparse until they are summed over processes.
        self.sums_rows = False
        self.training_dtype: str | None = None
        self.sampler: LogUniformSampler | FrequencySampler | None = None
        if count_exponent is None or counts is None:
            if num_samples is not None:
                self.sampler = LogUniformSampler(num_words, num_samples)
        elif num_samples is None:
            raise ValueError(f"count_exponent is {count_exponent}, expected num_samples with it")
        else:
            check_least(1, num_samples=num_samples)
            self.sampler = FrequencySampler(counts, num_samples, num_frequent, count_exponent)
        self.weight = torch.nn.Parameter(torch.empty(num_words, projection_dim))
        self.bias = torch.nn.Parameter(torch.zeros(num_words, 1))
        torch.nn.init.normal_(self.weight, std=projection_dim**-0.5)
        if bias_from_counts and counts is not None:
            shares = (counts.double() / counts.sum()).clamp(min=1e-9)
            with torch.no_grad():
                self.bias.copy_(shares.log().unsqueeze(1))
        if pretrained_file is not None:
            load_softmax(self, pretrained_file)

    @property
    def fuses(self) -> bool:
        """Whether one kernel computes the losses, as on a GPU in training."""
        return self.sampler is not None and fuses(
            self.weight, self.sampler.num_candidates, self.training_dtype
        )

    def word_ids(self, negatives: Negatives) -> torch.Tensor:
        """Return the ids of the sampled words, on the softmax's device."""
        assert self.sampler is not None
        return self.sampler.word_ids(negatives.draws.to(self.weight.device))

    def draw(self, seed: int | None = None) -> tuple[Negatives, Negatives] | None:
        """
        Sample the negatives of the forward and the backward direction, which may be one object for
        both; return `None` for a full softmax. Without a seed, PyTorch's generator is used.
        """
        if self.sampler is None:
            return None
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        first = self.sampler.sample(generator)
        return first, first if self.sampler.is_shared else self.sampler.sample(generator)

    def forward(
        self,
        outputs: Sequence[torch.Tensor],
        targets: Sequence[torch.Tensor],
        negatives: Sequence[Negatives] | None = None,
    ) -> list[torch.Tensor]:
        """
        Return the mean loss of each direction, in nats per word.

        Shapes for each direction are `(num_rows, projection_dim)` for `outputs` and `(num_rows,)`
        for the word ids `targets`. `negatives` are used in training only; drawn here if not given.
        """
        if self.sampler is None or not self.training:
            dtype = self.training_dtype if self.training else None
            return [
                full_cross_entropy(*one, self.weight, self.bias, training_dtype=dtype).mean()
                for one in zip(outputs, targets)
            ]
        negatives = (negatives or self.draw() or ())[: len(targets)]
        num_parts = 1
        if negatives[0] is negatives[-1]:  # one product has all directions
            num_parts = len(targets)
            outputs, targets = [torch.cat(tuple(outputs))], [torch.cat(tuple(targets))]
            negatives = negatives[:1]
        ids = [*targets, *map(self.word_ids, negatives)]
        # One lookup: each would allocate a gradient as large as the weight.
        rows = (
            _rows_of(one, torch.cat(ids), self.sparse or self.sums_rows)
            for one in (self.weight, self.bias)
        )
        weights, biases = (one.split([len(part) for part in ids]) for one in rows)
        losses: list[torch.Tensor] = []
        for true, (output, drawn) in enumerate(zip(outputs, negatives)):
            other = len(targets) + true
            corrections = self.sampler.corrections(ids[true], ids[other], drawn.num_tries)
            of_true, of_drawn = (one.to(self.bias.dtype) for one in corrections)
            bias, drawn_bias = biases[true].squeeze(-1) - of_true, biases[other].squeeze(-1)
            true_logits = (output * weights[true]).sum(dim=-1) + bias
            losses += sampled_losses(
                output, ids[true], ids[other], true_logits, weights[other], drawn_bias - of_drawn,
                self.training_dtype, self.fuses, num_parts,
            )  # fmt: skip
        return losses


def _rows_of(weight: torch.Tensor, ids: torch.Tensor, sparse: bool) -> torch.Tensor:
    # On a GPU, the gradient of `embedding` sorts the ids.
    if weight.is_cuda and not sparse:
        return weight.index_select(0, ids)
    return functional.embedding(ids, weight, sparse=sparse)


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

    Raise a `ValueError` if the file is damaged or not a softmax file, or its vocabulary size or
    `projection_dim` differs from that of `softmax`.
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
