import pytest
import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.kernels.compiled_training import log_sum_exp, trained_format, training_linear


def operands(kind=torch.float32, num_rows=6, input_dim=40, output_dim=24):
    generator = torch.Generator().manual_seed(0)
    shapes = (num_rows, input_dim), (output_dim, input_dim), (output_dim,)
    return [torch.randn(shape, generator=generator).to(kind).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("output_dim", [8, 100])
@pytest.mark.parametrize("with_bias", [True, False])
def test_value_and_gradients_are_linears(kind, output_dim, with_bias):
    tensors = operands(kind, output_dim=output_dim)[: 3 if with_bias else 2]
    found, expected = training_linear(*tensors), functional.linear(*tensors)
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(
        torch.autograd.grad(found.square().sum(), tensors),
        torch.autograd.grad(expected.square().sum(), tensors),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-5)


def test_overlapping_windows():
    _, weight, _ = (tensor.detach() for tensor in operands())
    # One token's windows over its characters lie in one another.
    windows = torch.arange(60.0).view(1, 60).unfold(1, 40, 4).flatten(0, 1).requires_grad_()
    assert not windows.is_contiguous()
    weight.requires_grad_()
    training_linear(windows, weight).sum().backward()
    torch.testing.assert_close(weight.grad, windows.detach().sum(dim=0).expand_as(weight))


def test_bfloat16_rounds_what_is_multiplied_and_nothing_else():
    rows, weight, bias = operands()
    # On processors without bfloat16 products, the library computes in float32.
    is_rounded = trained_format(weight, "bfloat16") != "float32"

    def rounded(tensor):
        return tensor.detach().bfloat16().float() if is_rounded else tensor.detach()

    gradient = torch.randn(6, 24, generator=torch.Generator().manual_seed(1))
    found = training_linear(rows, weight, bias, "bfloat16")
    sums = rounded(rows) @ rounded(weight).t()
    # PyTorch's operators also round the sums, to 8 binary digits; the bias is not rounded.
    torch.testing.assert_close(found - bias, sums, atol=1e-5, rtol=2**-8)
    assert found.dtype == torch.float32
    in_float32 = functional.linear(rows, weight, bias)
    assert torch.allclose(found, in_float32, atol=1e-4) is not is_rounded
    found.backward(gradient)
    for grad, expected in [
        (rows.grad, rounded(gradient) @ rounded(weight)),
        (weight.grad, rounded(gradient).t() @ rounded(rows)),
    ]:
        torch.testing.assert_close(grad, expected, atol=1e-5, rtol=2**-8)
    torch.testing.assert_close(bias.grad, gradient.sum(dim=0))


def test_autocast_says_the_type_where_none_is_given():
    rows, weight, bias = operands()
    with torch.autocast("cpu", torch.bfloat16):
        found = training_linear(rows, weight, bias)
    assert torch.equal(found, training_linear(rows, weight, bias, "bfloat16"))
    found.sum().backward()
    assert {tensor.grad.dtype for tensor in (rows, weight, bias)} == {torch.float32}


SHAPES = [(300, 40, 77, 7), (1, 32, 64, 5), (0, 8, 3, 2), (9, 8, 3, 1)]


@pytest.mark.parametrize(("dtype", "error"), [(None, 1e-5), ("bfloat16", 2e-2)])
@pytest.mark.parametrize(("num_rows", "dim", "num_words", "num_ids"), SHAPES)
def test_log_sum_exp(dtype, error, num_rows, dim, num_words, num_ids, set_threads):
    """Rows leave out words with their target's id: none, several, or (with one id) all of them."""
    tensors = operands(num_rows=num_rows, input_dim=dim, output_dim=num_words)
    tensors[2].data.mul_(30)  # some words count next to nothing
    ids, targets = torch.arange(num_words) % num_ids, torch.arange(num_rows) % (num_ids + 2)
    weights = torch.rand(num_rows, generator=torch.Generator().manual_seed(1))

    def derivatives(results):
        finite = results.masked_fill(results == -torch.inf, 0) * weights
        first = torch.autograd.grad(finite.sum(), tensors, retain_graph=True)
        again = torch.autograd.grad(finite.sum(), tensors, create_graph=True)
        penalty = sum(one.square().sum() for one in again)
        return [finite, *first, *torch.autograd.grad(penalty, tensors)]

    def definition(*own):
        logits = functional.linear(*own).masked_fill(targets.unsqueeze(1) == ids, -torch.inf)
        return logits.logsumexp(dim=1)

    found = {}
    for count in (1, 2, 3):
        set_threads(count)
        found[count] = derivatives(log_sum_exp(*tensors, ids, targets, dtype))
    for number, (ours, theirs) in enumerate(zip(found[1], derivatives(definition(*tensors)))):
        if library.variant() and number <= 3:
            assert all(torch.equal(one[number], ours) for one in found.values())
        assert (ours - theirs).norm() <= error * theirs.norm()
    is_rounded = dtype in library.trained_formats() and num_rows > 1
    assert not is_rounded or not torch.allclose(found[1][0], definition(*tensors) * weights)
