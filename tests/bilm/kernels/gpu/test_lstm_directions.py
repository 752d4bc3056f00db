"""LSTM layers of both directions that train on a GPU: Triton's interpreter beside the reference."""

import pytest
import torch

from elmo_plugin.bilm.kernels import reference, tuning
from elmo_plugin.bilm.kernels.gpu.lstm_directions import lstm_directions
from elmo_plugin.bilm.kernels.interface import LstmWeights
from elmo_plugin.bilm.kernels.sampled_softmax import sampled_losses
from tests.interpreted_kernels import interpret

INPUT_DIM, DIM, CELL_SIZE = 5, 3, 21
BATCH_SIZES = [[4, 4, 4], [4, 3, 1]]


def arguments(clips, batch_sizes=BATCH_SIZES[0]):
    """The layer's arguments; inputs and weights want gradients."""
    torch.manual_seed(0)
    shapes = (4 * CELL_SIZE, INPUT_DIM), (4 * CELL_SIZE, DIM), (4 * CELL_SIZE,), (DIM, CELL_SIZE)
    tensors = [[torch.randn(shape, requires_grad=True) for shape in shapes] for _ in range(2)]
    inputs = torch.randn(2, sum(batch_sizes), INPUT_DIM, requires_grad=True)
    hidden, cell = torch.randn(2, 4, DIM), torch.randn(2, 4, CELL_SIZE)
    weights = tuple(LstmWeights(*one, *clips) for one in tensors)
    return (inputs, batch_sizes, hidden, cell, weights), [inputs, *tensors[0], *tensors[1]]


def by_reference(inputs, batch_sizes, hidden, cell, weights):
    """In float64."""
    results = []
    for x, h, c, one in zip(inputs, hidden, cell, weights):
        exact = LstmWeights(*(tensor.double() for tensor in one.tensors), *one[4:])
        results.append(reference.lstm_layer(x.double(), batch_sizes, h.double(), c.double(), exact))
    return [torch.stack(parts).float() for parts in zip(*results)]


@pytest.fixture
def launched(monkeypatch):
    monkeypatch.setattr(tuning, "BLOCK", 8)
    return interpret(monkeypatch)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
@pytest.mark.parametrize("clips", [(0.5, 0.3), (None, None)])
@pytest.mark.parametrize("batch_sizes", BATCH_SIZES, ids=str)
def test_both_directions_are_the_references(launched, batch_sizes, clips, dtype):
    given, leaves = arguments(clips, batch_sizes)
    tensors = [*given[2:4], *leaves]
    before = [one.detach().clone() for one in tensors]
    results = lstm_directions(*given, dtype)
    gradient = torch.randn_like(results[0])
    found = torch.autograd.grad((results[0] * gradient).sum(), leaves)
    expected = by_reference(*given)
    wanted = torch.autograd.grad((expected[0] * gradient).sum(), leaves)
    for ours, theirs in zip([*results, *found], [*expected, *wanted], strict=True):
        # The interpreter cuts to bfloat16, where GPUs round.
        error = 2e-6 if dtype is None else 0.1
        assert (ours - theirs).norm() <= error * theirs.norm()
    assert all(torch.equal(*both) for both in zip(tensors, before, strict=True))
    assert {*launched} == {"forward_step", "backward_step", "output_backward"}
    if clips[0] is not None:  # some are at the clip, where no gradient passes
        assert 0.1 < (results[2].abs() == clips[0]).float().mean() < 0.9


def test_double_backward_is_the_references(launched):
    given, leaves = arguments((0.5, 0.3), BATCH_SIZES[1])
    seconds = []
    for layer in (lambda *given: lstm_directions(*given, None), by_reference):
        first = torch.autograd.grad(layer(*given)[0].square().sum(), leaves, create_graph=True)
        seconds.append(torch.autograd.grad(sum(one.square().sum() for one in first), leaves))
    torch.testing.assert_close(*seconds, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("needed", range(9))
def test_only_needed_gradients(launched, needed):
    given, leaves = arguments((0.5, 0.3), BATCH_SIZES[1])
    for index, one in enumerate(leaves):
        one.requires_grad_(index == needed)
    found, expected = (
        torch.autograd.grad(layer[0].sum(), leaves[needed])
        for layer in (lstm_directions(*given, None), by_reference(*given))
    )
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_nan_is_not_clipped_away(launched):
    given, _ = arguments((0.5, 0.3), BATCH_SIZES[1])
    given[3][1, 2, 0] = torch.nan
    for one in lstm_directions(*given, None)[1:]:
        assert one.isnan().any(dim=2).tolist() == [[False] * 4, [False, False, True, False]]


@pytest.mark.parametrize("num_parts", [1, 2])
@pytest.mark.parametrize("fused", [True, False])
def test_sampled_losses_are_those_of_the_formula(monkeypatch, fused, num_parts):
    """A candidate comes twice, another is a target, and a target is no candidate."""
    if fused:
        interpret(monkeypatch)
    torch.manual_seed(0)
    weight, outputs = torch.randn(50, 8), torch.randn(4, 8, requires_grad=True)
    targets, candidates = torch.tensor([3, 9, 5, 40]), torch.tensor([0, 1, 2, 3, 9, 9, 30])
    rows, bias = weight[candidates].requires_grad_(), torch.randn(7, requires_grad=True)
    true = torch.randn(4, requires_grad=True)
    leaves, gradient = [outputs, rows, bias, true], torch.randn(num_parts)
    given = outputs, targets, candidates, true, rows, bias, None, fused, num_parts
    losses = torch.stack(sampled_losses(*given))
    logits = outputs @ rows.t() + bias
    logits = logits.masked_fill(candidates == targets.unsqueeze(1), -torch.inf)
    expected = torch.logsumexp(torch.cat([true.unsqueeze(1), logits], dim=1), dim=1) - true
    expected = expected.view(num_parts, -1).mean(dim=1)
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(
        torch.autograd.grad(losses, leaves, gradient),
        torch.autograd.grad(expected, leaves, gradient),
    )
