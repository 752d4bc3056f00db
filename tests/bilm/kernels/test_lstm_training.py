"""Gradients of an LSTM layer that trains, against the reference's autograd."""

import pytest
import torch

from elmo_plugin.bilm.kernels import fast, library, reference
from elmo_plugin.bilm.kernels.interface import LstmWeights, Precision

VARIANTS = [*library.runnable_variants(), library.NONE]
# (input_dim, cell_size, projection_dim, batch_sizes)
SHAPES = {
    "odd": (37, 45, 33, [4, 3, 3, 1, 1]),
    "wide": (160, 288, 128, [14, 7, 3, 1]),
    "one step": (32, 64, 32, [5]),
    "one row": (32, 64, 96, [1, 1, 1]),
    "many rows": (33, 32, 32, [300, 290, 17]),
}
CLIPS = [(0.5, 0.2), (None, None), (0.7, None)]


def operands(shape, clips, scale=0.5):
    generator = torch.Generator().manual_seed(0)
    input_dim, cell_size, dim, batch_sizes = shape

    def random(*size, scale=scale):
        return torch.randn(size, generator=generator).mul_(scale)

    shapes = (4 * cell_size, input_dim), (4 * cell_size, dim), (4 * cell_size,), (dim, cell_size)
    tensors = [random(*one, scale=1.5 * one[-1] ** -0.5) for one in shapes]
    inputs = random(sum(batch_sizes), input_dim)
    start = random(batch_sizes[0], dim), random(batch_sizes[0], cell_size)
    return [inputs, *tensors], (batch_sizes, *start), clips


def run(layer, tensors, others, clips, needed=(True,) * 5, precision=None):
    """Return outputs, final states, and the gradients of the tensors that are `needed`."""
    tensors = [one.clone().requires_grad_(need) for one, need in zip(tensors, needed, strict=True)]
    inputs, *weights = tensors
    precision = precision or Precision()
    outputs, *finals = layer(inputs, *others, LstmWeights(*weights, *clips), precision)
    generator = torch.Generator().manual_seed(1)
    gradient = torch.randn(outputs.shape, generator=generator).to(outputs)
    wanted = [one for one in tensors if one.requires_grad]
    return [outputs.detach(), *finals, *torch.autograd.grad(outputs, wanted, gradient)]


def exact(tensors, others, *settings):
    """Return the results of `run` by the reference in float64."""
    sizes, *start = others
    tensors, start = ([one.double() for one in some] for some in (tensors, start))
    return run(reference.lstm_layer, tensors, (sizes, *start), *settings)


def assert_near(found, expected, error):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        assert one.shape == other.shape
        assert (one - other).abs().max() <= error * other.abs().max()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("clips", CLIPS)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_the_reference(shape, clips, variant):
    arguments = operands(SHAPES[shape], clips)
    expected = exact(*arguments)
    if clips[0]:
        assert expected[2].abs().eq(clips[0]).any()
    with library.use_variant(variant):
        assert_near(run(fast.lstm_layer, *arguments), expected, 1e-5)


@pytest.mark.parametrize("needed", range(5))
def test_only_needed_gradients(needed):
    arguments = operands(SHAPES["odd"], CLIPS[0])
    flags = [index == needed for index in range(5)]
    expected = exact(*arguments, flags)
    assert_near(run(fast.lstm_layer, *arguments, flags), expected, 1e-5)


@pytest.mark.skipif(library.variant() is None, reason="no library of kernels")
@pytest.mark.parametrize("training_dtype", [None, "bfloat16"])
def test_bitwise_identical_for_any_number_of_threads(training_dtype, set_threads):
    arguments = operands(SHAPES["wide"], CLIPS[0])
    results, precision = [], Precision(None, training_dtype)
    for threads in (1, 2, 5):
        set_threads(threads)
        results.append(run(fast.lstm_layer, *arguments, precision=precision))
    for other in results[1:]:
        assert all(torch.equal(*both) for both in zip(results[0], other, strict=True))


def test_every_variant_gives_the_same_bits():
    arguments = operands(SHAPES["wide"], CLIPS[0])
    results = []
    for variant in library.runnable_variants():
        with library.use_variant(variant):
            results.append(run(fast.lstm_layer, *arguments))
    for other in results[1:]:
        assert all(torch.equal(*both) for both in zip(results[0], other, strict=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_bfloat16_is_near_float32(shape):
    arguments = operands(SHAPES[shape], CLIPS[1])
    found = run(fast.lstm_layer, *arguments, precision=Precision(None, "bfloat16"))
    assert_near(found, exact(*arguments), 0.05)
