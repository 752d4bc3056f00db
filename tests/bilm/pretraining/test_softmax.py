import math

import numpy
import pytest
import torch

from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.pretraining.softmax import (
    FrequencySampler,
    LogUniformSampler,
    Negatives,
    WordSoftmax,
    full_cross_entropy,
)
from tests import peak_memory
from tests.fresh_process import run_core as run

NUM_WORDS, NUM_SAMPLES, MANY_SAMPLES, DIM = 40, 12, 30, 6


def log_uniform(num_words):
    k = numpy.arange(num_words)
    return (numpy.log(k + 2) - numpy.log(k + 1)) / numpy.log(num_words + 1)


def test_samples_are_distinct_and_counted_like_draws_one_by_one():
    sampler = LogUniformSampler(NUM_WORDS, NUM_SAMPLES)
    for seed in range(200):
        ids, num_tries = sampler.sample(torch.Generator().manual_seed(seed))
        assert len(set(ids.tolist())) == NUM_SAMPLES
        assert ids.min() >= 0
        assert ids.max() < NUM_WORDS
        # The same numbers, drawn one by one.
        generator = torch.Generator().manual_seed(seed)
        seen, tries, wanted, draws = [], 0, 2 * NUM_SAMPLES, 0
        while len(seen) < NUM_SAMPLES:
            for number in torch.rand(wanted, dtype=torch.float64, generator=generator).tolist():
                if len(seen) < NUM_SAMPLES:
                    word = min(int((NUM_WORDS + 1) ** number) - 1, NUM_WORDS - 1)
                    tries += 1
                    seen += [] if word in seen else [word]
            draws += wanted
            wanted = draws
        assert ids.tolist() == seen
        assert num_tries == tries


def test_expected_count_is_tensorflows():
    sampler = LogUniformSampler(1000, 10)
    ids = torch.tensor([0, 1, 17, 999])
    expected = 1 - (1 - log_uniform(1000)[ids]) ** 25
    numpy.testing.assert_allclose(sampler.log_expected_count(ids, 25).exp(), expected, rtol=1e-9)


def test_expected_count_is_how_often_a_word_is_sampled():
    torch.manual_seed(0)
    sampler = LogUniformSampler(NUM_WORDS, NUM_SAMPLES)
    samples = [sampler.sample() for _ in range(5000)]
    often = numpy.bincount(torch.cat([s.draws for s in samples]), minlength=NUM_WORDS) / 5000
    ids = torch.arange(NUM_WORDS)
    expected = sum(sampler.log_expected_count(ids, s.num_tries).exp() for s in samples) / 5000
    numpy.testing.assert_allclose(often, expected, atol=0.03)


def test_sampled_loss_by_hand():
    softmax = WordSoftmax(10, 2, num_samples=3).double()
    with torch.no_grad():
        softmax.bias.copy_(torch.arange(10.0).unsqueeze(1) / 10)
    outputs = torch.tensor([[1.0, 2.0], [-1.0, 0.5]], dtype=torch.float64)
    negatives, targets = Negatives(torch.tensor([0, 4, 7]), 5), [4, 2]
    losses = []
    for row, target in zip(outputs, targets):
        # The target beside the negatives, less the one that is the target.
        candidates = [target] + [k for k in (0, 4, 7) if k != target]
        count = 1 - (1 - log_uniform(10)[candidates]) ** 5
        weight, bias = softmax.weight[candidates], softmax.bias[candidates, 0]
        logits = weight @ row + bias - torch.tensor(count).log()
        losses.append(-torch.log_softmax(logits, dim=0)[0])
    found = softmax([outputs], [torch.tensor(targets)], [negatives])[0]
    torch.testing.assert_close(found, (losses[0] + losses[1]) / 2)


class WithoutCorrection(LogUniformSampler):
    def log_expected_count(self, ids, num_tries):
        return torch.zeros(len(ids), dtype=torch.float64)


def gradient_error(sampler, shuffled_targets=False):
    """
    How far the mean gradient of the sampled softmax is from the full softmax's, in standard errors
    of the mean. Targets are as frequent as the softmax itself says, or not at all.
    """
    torch.manual_seed(1)
    softmax = WordSoftmax(NUM_WORDS, DIM, MANY_SAMPLES).double()
    softmax.sampler = sampler
    with torch.no_grad():
        # As in text, the first words are the most frequent ones.
        softmax.bias.copy_(torch.tensor(log_uniform(NUM_WORDS)).log().unsqueeze(1))
    output = torch.randn(DIM, dtype=torch.float64, requires_grad=True)
    parameters = [softmax.weight, softmax.bias, output]
    logits = softmax.weight @ output + softmax.bias.squeeze(1)
    truth = torch.softmax(logits, dim=0).detach()
    if shuffled_targets:
        truth = truth[torch.randperm(NUM_WORDS)]

    def gradient(loss):
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])

    full = gradient(torch.logsumexp(logits, dim=0) - (truth * logits).sum())
    sampled = []
    for _ in range(400):
        targets = torch.multinomial(truth, 400, replacement=True)
        (loss,) = softmax([output.expand(400, DIM)], [targets], [sampler.sample()])
        sampled.append(gradient(loss))
    stacked = torch.stack(sampled)
    standard_error = (stacked.std(dim=0) / math.sqrt(len(sampled))).norm()
    return ((stacked.mean(dim=0) - full).norm() / standard_error).item()


@pytest.mark.parametrize("shuffled_targets", [False, True])
def test_expected_gradient_is_the_full_softmaxs(shuffled_targets):
    # Seen: 1.3 and 1.6.
    assert gradient_error(LogUniformSampler(NUM_WORDS, MANY_SAMPLES), shuffled_targets) < 3


def test_a_wrong_correction_gives_another_gradient():
    # Seen: 13 and more.
    assert gradient_error(WithoutCorrection(NUM_WORDS, MANY_SAMPLES)) > 8


def test_candidates_by_count_estimate_the_full_normalizer():
    torch.manual_seed(0)
    values, targets = torch.rand(50, dtype=torch.float64), torch.arange(3)
    sampler = FrequencySampler(torch.arange(50, 0, -1), 200_000, num_frequent=5, exponent=0.8)
    draws, num_tries = sampler.sample()
    candidates = sampler.word_ids(draws)
    assert candidates[:5].tolist() == list(range(5))
    assert candidates[5:].unique().tolist() == list(range(5, 50))
    of_targets, of_candidates = sampler.corrections(targets, candidates, num_tries)
    assert of_targets == 0
    estimate = (values[candidates] * (-of_candidates).exp()).sum()
    assert estimate.item() == pytest.approx(values.sum().item(), rel=0.01)
    drawn = torch.bincount(candidates[5:], minlength=50)[5:]
    expected = torch.arange(45.0, 0, -1) ** 0.8
    assert (drawn / drawn.sum() - expected / expected.sum()).abs().max() < 0.002


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_samples": 9}, "num_samples is 9 with 9 words, expected at least 1 and fewer"),
        ({"count_exponent": 0.8, "num_samples": 3}, "needs the counts of its words in the text"),
        ({"bias_from_counts": True}, "needs the counts of its words in the text"),
        ({"num_frequent": 3}, "num_frequent is 3, expected count_exponent with it"),
        ({"count_exponent": -1.0}, "count_exponent is -1.0, expected at least 0"),
        ({"count_exponent": math.nan}, "count_exponent is nan, expected at least 0"),
        ({"count_exponent": 0.8, "counts": torch.ones(9)}, "count_exponent is 0.8, expected num_s"),
    ],
)
def test_arguments_that_are_wrong_or_need_another_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        WordSoftmax(9, DIM, **arguments)


def test_a_pickled_sampler_of_an_earlier_version_trains():
    softmax = WordSoftmax(50, 4, num_samples=5)
    softmax.sampler.__dict__ = {"num_words": 50, "num_samples": 5}
    assert not softmax.fuses  # on the CPU


def test_sparse_gradients_are_the_dense_ones():
    sampler = LogUniformSampler(NUM_WORDS, NUM_SAMPLES)
    outputs, targets = torch.randn(5, DIM), torch.tensor([3, 3, 0, 39, 7])
    gradients = []
    for sparse in (False, True):
        torch.manual_seed(3)
        softmax = WordSoftmax(NUM_WORDS, DIM, NUM_SAMPLES, sparse=sparse)
        negatives = sampler.sample(torch.Generator().manual_seed(0))
        softmax([outputs], [targets], [negatives])[0].backward()
        assert softmax.weight.grad.is_sparse == sparse
        gradients.append([p.grad.to_dense() for p in softmax.parameters()])
    torch.testing.assert_close(*gradients)


def test_directions_together_are_each_alone():
    torch.manual_seed(0)
    softmax = WordSoftmax(NUM_WORDS, DIM, NUM_SAMPLES).double()
    outputs = [torch.randn(rows, DIM, dtype=torch.float64) for rows in (5, 3)]
    # Words that both have, as targets and as negatives.
    targets = [torch.tensor([3, 3, 0, 39, 7]), torch.tensor([7, 0, 3])]
    drawn = softmax.draw(0)
    together = softmax(outputs, targets, drawn)
    gradients = torch.autograd.grad(sum(together), softmax.parameters())
    alone = [softmax([o], [t], [d])[0] for o, t, d in zip(outputs, targets, drawn)]
    torch.testing.assert_close(together, alone)
    each = [torch.autograd.grad(loss, softmax.parameters()) for loss in alone]
    torch.testing.assert_close(list(gradients), [sum(of_both) for of_both in zip(*each)])


def test_blocks_change_nothing():
    torch.manual_seed(0)
    outputs, weight, bias = torch.randn(11, DIM), torch.randn(23, DIM), torch.randn(23, 1)
    targets = torch.randint(0, 23, (11,))
    expected = torch.nn.functional.cross_entropy(outputs @ weight.t() + bias.squeeze(1), targets)
    for rows, words in ((256, 2048), (3, 5), (1, 1), (11, 23)):
        found = full_cross_entropy(outputs, targets, weight, bias, rows, words).mean()
        torch.testing.assert_close(found, expected)


def test_bfloat16_is_for_training_alone():
    torch.manual_seed(0)
    softmax = WordSoftmax(NUM_WORDS, DIM)
    outputs, targets = [torch.randn(5, DIM)], [torch.randint(0, NUM_WORDS, (5,))]
    exact = float(softmax(outputs, targets)[0])
    evaluated = float(softmax.eval()(outputs, targets)[0])
    softmax.train().training_dtype = "bfloat16"
    rounded = float(softmax(outputs, targets)[0])
    assert evaluated == exact
    # Variants of the library for processors without bfloat16 products train in float32.
    rounds = library.variant() is None or "bfloat16" in library.trained_formats()
    assert (rounded != exact) == rounds
    assert rounded == pytest.approx(exact, abs=0.05)
    assert float(softmax.eval()(outputs, targets)[0]) == exact


SAME_GRADIENTS = """
import torch
from elmo_plugin.bilm.pretraining.softmax import full_cross_entropy

torch.set_num_threads(2)
outputs, weight = torch.randn(256, 256), torch.randn(50, 256, requires_grad=True)
targets, bias, found = torch.randint(0, 50, (256,)), torch.zeros(50, 1), []
for _ in range(8):
    weight.grad = None
    full_cross_entropy(outputs, targets, weight, bias).mean().backward()
    found.append(weight.grad)
print(all(torch.equal(found[0], one) for one in found))
"""


def test_the_full_softmaxs_gradient_is_the_same_each_time():
    """With several threads, an index's gradient is added in any order."""
    assert run(SAME_GRADIENTS).stdout == "True\n"


def test_evaluation_is_full_and_draws_nothing():
    softmax = WordSoftmax(NUM_WORDS, DIM, NUM_SAMPLES).eval()
    outputs, targets = torch.randn(5, DIM), torch.randint(0, NUM_WORDS, (5,))
    before = torch.get_rng_state()
    (loss,) = softmax([outputs], [targets])
    assert (torch.get_rng_state() == before).all()
    expected = full_cross_entropy(outputs, targets, softmax.weight, softmax.bias).mean()
    torch.testing.assert_close(loss, expected)


MEMORY = """
import torch
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax
from tests.peak_memory import Growth
softmax = WordSoftmax(100_000, 4, num_samples=10).eval()
outputs, targets = torch.randn(2560, 4), torch.zeros(2560, dtype=torch.long)
with torch.no_grad():
    softmax([outputs[:64]], [targets[:64]])
    with Growth() as in_blocks:
        softmax([outputs], [targets])
    with Growth() as at_once:
        torch.nn.functional.cross_entropy(outputs @ softmax.weight.t(), targets)
print(in_blocks.megabytes, at_once.megabytes)
"""


@pytest.mark.slow
def test_evaluation_over_a_large_vocabulary_takes_little_memory():
    in_blocks, at_once = peak_memory.run(MEMORY)
    assert in_blocks < 100
    # The measure sees what all logits at once take: 1,024 MB and more.
    assert at_once > 1000
