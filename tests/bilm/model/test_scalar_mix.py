import numpy
import pytest
import torch
from allennlp.modules.scalar_mix import ScalarMix as StockScalarMix

from elmo_plugin.bilm.model.scalar_mix import ScalarMix


def layers_and_mask(dtype=torch.float32):
    torch.manual_seed(0)
    layers = [torch.randn(2, 4, 3, dtype=dtype) + k for k in range(3)]
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    return layers, mask


def test_by_hand():
    mix = ScalarMix(2, initial_scalar_parameters=[0.0, 1.0])
    with torch.no_grad():
        mix.gamma.fill_(3.0)
    layers = [torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[5.0, -1.0]]])]
    weights = numpy.exp([0.0, 1.0]) / numpy.exp([0.0, 1.0]).sum()
    expected = 3 * (weights[0] * numpy.array([1, 2]) + weights[1] * numpy.array([5, -1]))
    numpy.testing.assert_allclose(mix(layers)[0, 0].detach(), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_layer_norm_of_many_tokens_in_half_precision(dtype):
    """Float16 ends at 65,504, which the sum of squares exceeds."""
    layer = torch.randn(1, 1200, 512).to(dtype)
    mask = torch.ones(1, 1200, dtype=torch.bool)
    found = ScalarMix(1, do_layer_norm=True).to(dtype)([layer], mask)
    assert found.dtype == dtype
    assert float(found.float().std()) == pytest.approx(1, abs=0.01)


def test_layer_norm_by_hand():
    """One mean and one variance of the real tokens' numbers, applied to padding too."""
    mix = ScalarMix(1, do_layer_norm=True)
    layer = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [100.0, 100.0]]])
    mask = torch.tensor([[True, True, False]])
    mean, deviation = 3.0, numpy.std([1, 2, 3, 6])
    expected = (layer.numpy() - mean) / deviation
    numpy.testing.assert_allclose(mix([layer], mask).detach(), expected, rtol=1e-5)


@pytest.mark.parametrize("do_layer_norm", [False, True])
@pytest.mark.parametrize("initial", [None, [0.3, -1.0, 2.0], [-9e10, -9e10, 1]])
def test_equals_allennlp(do_layer_norm, initial):
    layers, mask = layers_and_mask()
    ours = ScalarMix(3, do_layer_norm, initial)
    theirs = StockScalarMix(3, do_layer_norm, initial)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    torch.testing.assert_close(ours(layers, mask), theirs(layers, mask), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("do_layer_norm", [False, True])
def test_gradients_in_float64(do_layer_norm):
    pairs = []
    for kind in (ScalarMix, StockScalarMix):
        mix = kind(3, do_layer_norm, [0.3, -1.0, 2.0], trainable=True).double()
        layers, mask = layers_and_mask(torch.float64)
        wanted = [*mix.parameters(), *(layer.requires_grad_() for layer in layers)]
        pairs.append(torch.autograd.grad(mix(layers, mask).sin().sum(), wanted))
    torch.testing.assert_close(*pairs, atol=1e-12, rtol=1e-9)


def test_fixed_weights_do_not_train():
    assert not any(p.requires_grad for p in ScalarMix(2, trainable=False).parameters())
    assert all(p.requires_grad for p in ScalarMix(2).parameters())


def test_refusals():
    with pytest.raises(ValueError, match=r"\[1, 2\] are 2 numbers, expected 3"):
        ScalarMix(3, initial_scalar_parameters=[1, 2])
    layers, _ = layers_and_mask()
    with pytest.raises(ValueError, match="2 layers to mix, expected 3"):
        ScalarMix(3)(layers[:2])
    with pytest.raises(ValueError, match="no mask given"):
        ScalarMix(3, do_layer_norm=True)(layers)


def test_gamma_that_transformers_renamed_is_loaded(caplog):
    """`from_pretrained` of transformers 4.48 makes `weight` of every `gamma`."""
    mix, renamed = ScalarMix(2), dict(ScalarMix(2).state_dict())
    renamed["weight"] = 3 * renamed.pop("gamma")
    mix.load_state_dict(renamed)
    assert mix.gamma.item() == 3.0
    assert "gamma was renamed to weight" in caplog.text
    with pytest.raises(RuntimeError, match="Unexpected key"):
        mix.load_state_dict({**mix.state_dict(), "weight": torch.ones(1)})
