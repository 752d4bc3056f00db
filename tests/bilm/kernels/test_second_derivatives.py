"""Second derivatives: those of the reference, or one clear error."""

import pytest
import torch

from elmo_plugin.bilm.kernels.backend import use_backend
from elmo_plugin.bilm.kernels.gradients import hand_written
from elmo_plugin.bilm.model.characters import batch_to_ids
from tests.tiny_bilm import BATCHES, random_bilm

IDS = batch_to_ids(BATCHES[0])


def penalty_gradients(loss, backend, training_dtype=None):
    """Gradients of `|grad loss|^2`, as a gradient penalty has them."""
    bilm = random_bilm().double()
    bilm.state = "reset"
    for module in bilm.modules():
        module.training_dtype = training_dtype
    parameters = [one for one in bilm.parameters() if one.requires_grad]
    with use_backend(backend):
        layers = torch.stack(bilm(IDS)["activations"])
        first = torch.autograd.grad(loss(layers), parameters, create_graph=True)
        penalty = sum(one.square().sum() for one in first)
        return [penalty, *torch.autograd.grad(penalty, parameters)]


@pytest.mark.parametrize(
    "loss", [torch.sum, lambda layers: layers.pow(3).sum()], ids=["linear", "cubic"]
)
def test_second_derivatives_are_those_of_the_reference(loss):
    found, expected = (penalty_gradients(loss, name) for name in ("fast", "reference"))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)
    assert float(expected[0].detach()) > 1


def test_second_derivatives_of_bfloat16_products_are_those_of_exact_ones():
    found = penalty_gradients(torch.sum, "fast", "bfloat16")
    expected = penalty_gradients(torch.sum, "reference")
    # The forward pass is rounded, and the gradient is of what it gave.
    assert float(found[0].detach()) == pytest.approx(float(expected[0].detach()), rel=0.02)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        ctx.save_for_backward(values)
        return values.square()

    @staticmethod
    @hand_written()
    def backward(ctx, gradient):
        return ctx.saved_tensors[0].mul(2).mul_(gradient)


def test_without_a_definition_a_second_derivative_is_always_an_error():
    values = torch.tensor([3.0], requires_grad=True)
    assert torch.autograd.grad(Square.apply(values), values) == (torch.tensor([6.0]),)
    for loss in (torch.sum, lambda squares: squares.pow(3).sum()):
        with pytest.raises(RuntimeError, match="gradient of Square is written by hand"):
            torch.autograd.grad(loss(Square.apply(values)), values, create_graph=True)


class OptionalGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        ctx.set_materialize_grads(False)
        return values * 2, values * 3

    @staticmethod
    @hand_written()
    def backward(ctx, first, second):
        return None if first is None and second is None else (first or 0) * 2 + (second or 0) * 3


def test_a_function_none_of_whose_outputs_has_a_gradient():
    values = torch.tensor([3.0], requires_grad=True)
    first, _ = OptionalGradient.apply(values)
    # A function behind it that passes no gradient on.
    torch.autograd.backward([NoGradient.apply(first).sum()])
    assert values.grad is None


class NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        return values.clone()

    @staticmethod
    def backward(ctx, gradient):
        return None


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("create_graph", [False, True])
def test_many_gradients_at_once_are_those_of_one_after_another(dtype, create_graph):
    """As `torch.autograd.functional.jacobian(vectorize=True)` asks for."""
    bilm = random_bilm().to(dtype)
    layers = torch.stack(bilm(IDS)["activations"])
    parameters, outputs = list(bilm.parameters()), torch.randn(3, *layers.shape, dtype=dtype)
    found = torch.autograd.grad(
        layers, parameters, outputs, True, create_graph, is_grads_batched=True
    )
    for number, one in enumerate(outputs):
        expected = torch.autograd.grad(layers, parameters, one, retain_graph=True)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours[number], theirs, rtol=1e-4, atol=1e-5)
