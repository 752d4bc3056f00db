"""A layer over streams in both directions: Triton's interpreter beside the reference."""

import pytest
import torch

from elmo_plugin.bilm.kernels import lstm_fused, reference, triton_kernels, tuning
from elmo_plugin.bilm.kernels.interface import LstmWeights
from elmo_plugin.bilm.kernels.lstm_streams import lstm_streams
from elmo_plugin.bilm.kernels.sampled_softmax import sampled_losses
from tests.interpreted_kernels import interpret
from tests.no_gpu import CompiledOnly, Driver

NUM_STEPS, BATCH_SIZE, INPUT_DIM, DIM, CELL_SIZE = 3, 4, 5, 3, 21


def arguments(clips, seed=0):
    """The layer's arguments; inputs and weights want gradients."""
    torch.manual_seed(seed)
    shapes = (4 * CELL_SIZE, INPUT_DIM), (4 * CELL_SIZE, DIM), (4 * CELL_SIZE,), (DIM, CELL_SIZE)
    tensors = [[torch.randn(shape, requires_grad=True) for shape in shapes] for _ in range(2)]
    inputs = torch.randn(2, NUM_STEPS, BATCH_SIZE, INPUT_DIM, requires_grad=True)
    hidden, cell = torch.randn(2, BATCH_SIZE, DIM), torch.randn(2, BATCH_SIZE, CELL_SIZE)
    weights = tuple(LstmWeights(*one, *clips) for one in tensors)
    return (inputs, hidden, cell, weights), [inputs, *tensors[0], *tensors[1]]


def by_reference(inputs, hidden, cell, weights):
    results = [
        reference.lstm_layer(one.flatten(0, 1), [BATCH_SIZE] * NUM_STEPS, h, c, w)
        for one, h, c, w in zip(inputs, hidden, cell, weights)
    ]
    outputs, hidden, cell = (torch.stack(parts) for parts in zip(*results))
    return outputs.view(2, NUM_STEPS, BATCH_SIZE, DIM), hidden, cell


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
@pytest.mark.parametrize("clips", [(0.5, 0.3), (None, None)])
def test_both_directions_are_the_references(monkeypatch, clips, dtype):
    launched = interpret(monkeypatch)
    monkeypatch.setattr(tuning, "BLOCK", 8)
    given, leaves = arguments(clips)
    results = lstm_streams(*given, dtype)
    gradient = torch.randn_like(results.outputs)
    found = torch.autograd.grad((results.outputs * gradient).sum(), leaves)
    expected = by_reference(*given)
    wanted = torch.autograd.grad((expected[0] * gradient).sum(), leaves)
    assert launched == {"forward_step", "backward_step", "output_backward"}
    for ours, theirs in zip([*results, *found], [*expected, *wanted], strict=True):
        # The interpreter cuts to bfloat16, where GPUs round.
        error = 2e-6 if dtype is None else 0.1
        assert (ours - theirs).norm() <= error * theirs.norm()
    if clips[0] is not None:  # some are at the clip, where no gradient passes
        assert 0.1 < (results.cell.abs() == clips[0]).float().mean() < 0.9


@pytest.mark.parametrize("fused", [True, False])
def test_sampled_losses_are_those_of_the_formula(monkeypatch, fused):
    """A candidate comes twice, another is a target, and a target is no candidate."""
    if fused:
        interpret(monkeypatch)
    torch.manual_seed(0)
    weight, outputs = torch.randn(50, 8), torch.randn(4, 8, requires_grad=True)
    targets, candidates = torch.tensor([3, 9, 5, 40]), torch.tensor([0, 1, 2, 3, 9, 9, 30])
    rows, bias = weight[candidates].requires_grad_(), torch.randn(7, requires_grad=True)
    true = torch.randn(4, requires_grad=True)
    leaves, gradient = [outputs, rows, bias, true], torch.randn(4)
    losses = sampled_losses(outputs, targets, candidates, true, rows, bias, None, fused)
    logits = outputs @ rows.t() + bias
    logits = logits.masked_fill(candidates == targets.unsqueeze(1), -torch.inf)
    expected = torch.logsumexp(torch.cat([true.unsqueeze(1), logits], dim=1), dim=1) - true
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(
        torch.autograd.grad(losses, leaves, gradient),
        torch.autograd.grad(expected, leaves, gradient),
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_the_launches_compile(monkeypatch, tmp_path, dtype):
    triton = pytest.importorskip("triton", reason="no Triton: PyTorch has it where it has CUDA")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(triton.runtime.driver, "_active", Driver(90))
    compiled = {}

    def kernel(name):
        return compiled.setdefault(name, CompiledOnly(getattr(triton_kernels, name)))

    monkeypatch.setattr(lstm_fused, "kernel", kernel)
    given, _ = arguments((3.0, 3.0))
    outputs = lstm_streams(*given, dtype).outputs
    outputs.sum().backward()
    rows, ids = torch.randn(4, 8), torch.arange(7)
    bias = torch.randn(7)
    sampled_losses(rows, ids[:4], ids, bias[:4], torch.randn(7, 8), bias, dtype, True)
    names = {"forward_step", "backward_step", "output_backward", "sampled_softmax"}
    assert {*compiled} == names
    assert all(code["cubin"] for one in compiled.values() for code in one.code.values())
