"""The token layer: the largest value over positions and its gradient; frozen, by the library."""

import itertools
import math

import pytest
import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import fast, library, reference, token_layer, tuning
from elmo_plugin.bilm.kernels.interface import Affine, Precision, TokenWeights
from elmo_plugin.bilm.kernels.token_layer import largest
from elmo_plugin.bilm.model.options import ACTIVATIONS


def test_gradient_of_the_largest_is_autograds():
    torch.manual_seed(0)
    convolved = torch.randn(7, 5, 3)
    convolved[2, 1, 0] = convolved[2, 4, 0] = 9.0  # two largest, as windows of padding are
    convolved[:, 3:, 1] = -torch.inf  # past the end of the row
    convolved.requires_grad_()
    weights = torch.randn(7, 3)
    (found,) = torch.autograd.grad((largest(convolved) * weights).sum(), convolved)
    (expected,) = torch.autograd.grad((convolved.amax(dim=1) * weights).sum(), convolved)
    assert torch.equal(found, expected)
    assert found[2, 1, 0] == found[2, 4, 0] == weights[2, 0] / 2


def test_the_largest_can_be_differentiated_twice_over_one_graph():
    convolved = torch.randn(4, 5, 3, requires_grad=True)
    total = largest(convolved).sum()
    once = torch.autograd.grad(total, convolved, retain_graph=True)
    assert torch.equal(once[0], torch.autograd.grad(total, convolved)[0])


# --- frozen, by the library ----------------------------------------------------------------------

needs_library = pytest.mark.skipif(library.variant() is None, reason="no library of kernels")
# Largest error over the largest value.
TOLERANCE = {None: 1e-6, "float16": 1e-3, "bfloat16": 0.05, "int8": 0.05}
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE)
each_variant = pytest.mark.parametrize("variant", library.runnable_variants())


def random_weights(filters, num_highways, projection_dim, activation=torch.relu, dim=16):
    def affine(*shape):
        return Affine(torch.randn(shape) / math.prod(shape[1:]) ** 0.5, torch.randn(shape[0]) / 2)

    width = sum(number for _, number in filters)
    return TokenWeights(
        torch.randn(262, dim),
        [affine(number, dim, size) for size, number in filters],
        activation,
        [affine(2 * width, width) for _ in range(num_highways)],
        affine(projection_dim, width) if projection_dim else None,
        261,
    )


def random_ids(count, num_characters=50):
    ids = torch.randint(1, 261, (count, num_characters))
    # Some as long as there is room, and some all padding.
    lengths = torch.randint(0, num_characters + 8, (count, 1))
    return ids.masked_fill(torch.arange(num_characters) >= lengths, 261)


SHAPES = [
    (((1, 32), (2, 32), (3, 64)), 2, 32),
    (((1, 3), (2, 4), (4, 5)), 1, 7),
    (((7, 1),), 0, None),
    (((3, 20), (1, 45)), 1, None),
    (((2, 160), (7, 129)), 2, 130),
]


@needs_library
@each_variant
@each_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_against_the_definition(variant, dtype, shape, activation, monkeypatch):
    monkeypatch.setattr(tuning, "LEAST_HALVED", 0)
    torch.manual_seed(0)
    weights = random_weights(*shape, getattr(torch, activation))
    with library.use_variant(variant):
        layer = fast.frozen_token_layer(weights, dtype)
        for count in (0, 1, 3, 70):
            ids = random_ids(count)
            found, expected = layer(ids), reference.token_layer(ids, weights)
            assert found.shape == expected.shape
            most = float(expected.abs().max()) if count else 1.0
            torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype] * most, rtol=0)


@needs_library
@each_variant
@each_dtype
@pytest.mark.parametrize("scale", [1e3, 1e-20, 1e-41, 0.0])
def test_extreme_weights(variant, dtype, scale, monkeypatch):
    """Large, small, denormal and zero."""
    monkeypatch.setattr(tuning, "LEAST_HALVED", 0)
    torch.manual_seed(0)
    weights = random_weights(((2, 33), (3, 1)), 1, 7)
    for affine in (*weights.convolutions, *weights.highways, weights.projection):
        affine.weight.mul_(scale)
    ids = random_ids(5)
    with library.use_variant(variant):
        found = fast.frozen_token_layer(weights, dtype)(ids)
    expected = reference.token_layer(ids, weights)
    atol = TOLERANCE[dtype] * float(expected.abs().max())
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)


@needs_library
@each_variant
@each_dtype
def test_a_token_does_not_depend_on_the_tokens_beside_it_or_on_threads(variant, dtype, set_threads):
    torch.manual_seed(0)
    weights = random_weights(((1, 32), (2, 70), (5, 64)), 2, 40)
    ids = random_ids(70)
    with library.use_variant(variant):
        layer = fast.frozen_token_layer(weights, dtype)
        together = layer(ids)
        for count, part in itertools.product((1, 2, 3, 5), (1, 2, 13)):
            set_threads(count)
            found = torch.cat([layer(some) for some in ids.split(part)])
            assert torch.equal(found, together)


@needs_library
def test_all_variants_give_the_same_bits():
    torch.manual_seed(0)
    weights, ids = random_weights(((1, 32), (3, 70)), 1, 40), random_ids(30)
    for dtype in (None, "float16", "int8"):
        found = []
        for variant in library.runnable_variants():
            with library.use_variant(variant):
                found.append(fast.frozen_token_layer(weights, dtype)(ids))
        assert all(torch.equal(found[0], other) for other in found)


@needs_library
@each_variant
@each_dtype
@pytest.mark.parametrize("place", ["embedding", "convolution", "highway", "projection", "bias"])
def test_a_nan_weight_shows(variant, dtype, place, monkeypatch):
    monkeypatch.setattr(tuning, "LEAST_HALVED", 0)
    torch.manual_seed(0)
    weights = random_weights(((1, 32), (3, 70)), 1, 40)
    tensors = {
        "embedding": weights.embedding, "convolution": weights.convolutions[1].weight,
        "highway": weights.highways[0].weight, "projection": weights.projection.weight,
        "bias": weights.convolutions[0].bias,
    }  # fmt: skip
    tensors[place].view(-1)[5 if place != "embedding" else 40 * 16] = torch.nan
    ids = random_ids(6)
    ids[:, 0] = 40
    with library.use_variant(variant):
        found = fast.frozen_token_layer(weights, dtype)(ids)
    assert found.isnan().any(dim=1).all()


@needs_library
@pytest.mark.parametrize("wrong", [-1, 262])
def test_an_id_without_an_embedding_is_an_error(wrong):
    layer = fast.frozen_token_layer(random_weights(((1, 32),), 0, None), None)
    with pytest.raises(IndexError, match=rf"character ids are .*{wrong}.*, expected 0 to 261"):
        layer(torch.tensor([[5, wrong, 7]]))


# --- trained, by the library ---------------------------------------------------------------------


def gradients(layer, ids, weights, dtype=torch.float32, needed=None, **settings):
    """Return the layer's outputs, and the gradients of the weights (or of one, by number)."""
    tensors = [one.detach().to(dtype).requires_grad_() for one in weights.tensors]
    for index, one in enumerate(tensors):
        one.requires_grad_(needed in (None, index))
    embedding, *rest = tensors
    affine = [Affine(*both) for both in zip(rest[::2], rest[1::2], strict=True)]
    convolutions = len(weights.convolutions)
    last = None if weights.projection is None else affine.pop()
    own = weights._replace(
        embedding=embedding, convolutions=affine[:convolutions], highways=affine[convolutions:],
        projection=last,
    )  # fmt: skip
    outputs = layer(ids, own, **settings)
    gradient = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    wanted = [one for one in tensors if one.requires_grad]
    return [outputs.detach(), *torch.autograd.grad(outputs, wanted, gradient)]


def assert_near(found, expected, error):
    """The error is relative to the largest value; a sum of many may be near zero."""
    most = max(float(one.abs().max()) for one in expected)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        assert one.shape == other.shape
        assert (one - other).abs().max() <= error * max(most / 10, other.abs().max())


@pytest.mark.parametrize("variant", [*library.runnable_variants(), library.NONE])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_are_those_of_the_reference(variant, shape, activation):
    torch.manual_seed(0)
    weights = random_weights(*shape, getattr(torch, activation))
    for count in (1, 3, 70):
        ids = random_ids(count)
        expected = gradients(reference.token_layer, ids, weights, torch.float64)
        with library.use_variant(variant):
            found = gradients(fast.token_layer, ids, weights, precision=Precision())
        assert_near(found, expected, 1e-5)


@needs_library
@pytest.mark.parametrize("needed", range(9))
def test_only_needed_gradients(needed):
    torch.manual_seed(0)
    weights, ids = random_weights(*SHAPES[1], torch.tanh), random_ids(9)
    found = gradients(fast.token_layer, ids, weights, needed=needed, precision=Precision())
    expected = gradients(reference.token_layer, ids, weights, torch.float64, needed=needed)
    assert_near(found, expected, 1e-5)


@needs_library
@pytest.mark.parametrize("training_dtype", [None, "bfloat16"])
def test_gradients_are_bitwise_identical_for_any_number_of_threads(training_dtype, set_threads):
    if (training_dtype or "float32") not in library.trained_formats():
        pytest.skip("no bfloat16 products here")
    torch.manual_seed(0)
    weights, ids = random_weights(*SHAPES[4]), random_ids(150)
    results, precision = [], Precision(None, training_dtype)
    for count in (1, 2, 5):
        set_threads(count)
        results.append(gradients(fast.token_layer, ids, weights, precision=precision))
    for other in results[1:]:
        assert all(torch.equal(*both) for both in zip(results[0], other, strict=True))


def test_training_without_rows():
    weights = random_weights(*SHAPES[0])
    found = gradients(fast.token_layer, random_ids(0), weights, precision=Precision())
    assert len(found[0]) == 0
    assert not any(one.any() for one in found[1:])


def test_on_a_gpu_the_gradient_of_embeddings_is_a_sum_of_products(monkeypatch):
    monkeypatch.setattr(token_layer, "IDS_AT_ONCE", 4)
    weight = torch.randn(6, 3, requires_grad=True)
    ids = torch.tensor([[0, 5, 5], [2, 5, 0], [1, 1, 5]])
    gradient = torch.randn(3, 3, 3)
    (found,) = torch.autograd.grad(token_layer._Embedded.apply(weight, ids), weight, gradient)
    (expected,) = torch.autograd.grad(functional.embedding(ids, weight), weight, gradient)
    torch.testing.assert_close(found, expected)
