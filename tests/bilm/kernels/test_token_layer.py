"""The largest value over positions, and its gradient."""

import torch

from elmo_plugin.bilm.kernels.token_layer import largest


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
