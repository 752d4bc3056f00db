import numpy
import pytest
import torch

from elmo_plugin.modules.answer_span import best_span, boundary_loss, draw_one
from tests.numpy_squad import best_span as reference_span
from tests.numpy_squad import loss as reference_loss

LEAST = torch.finfo(torch.float32).min


@pytest.mark.parametrize("bound", [1, 2, 17, 40])
def test_the_best_span_of_all_that_are_allowed(bound):
    torch.manual_seed(bound)
    for length in (1, 2, 16, 17, 18, 39):
        start, end = torch.randn(2, 8, length).unbind()
        # Rows of other lengths: padding is never chosen.
        lengths = torch.randint(1, length + 1, (8,))
        padding = torch.arange(length) >= lengths.unsqueeze(1)
        found = best_span(
            start.masked_fill(padding, LEAST), end.masked_fill(padding, LEAST), bound
        ).tolist()
        for row, span in enumerate(found):
            logits = (t[row, : lengths[row]].numpy() for t in (start, end))
            assert tuple(span) == reference_span(*logits, bound)


def test_a_better_span_that_is_too_long_is_not_taken():
    start, end = torch.full((1, 30), -9.0), torch.full((1, 30), -9.0)
    start[0, 2], end[0, 19], end[0, 5] = 5.0, 5.0, 0.0
    assert best_span(start, end, 17).tolist() == [[2, 5]]
    assert best_span(start, end, 18).tolist() == [[2, 19]]


def test_losses():
    torch.manual_seed(1)
    start, end = torch.randn(2, 2, 6, dtype=torch.float64).unbind()
    answers = [[(1, 2)], [(0, 3), (4, 4), (0, 5)]]
    found = boundary_loss(start, [[1], [0, 4, 0]]) + boundary_loss(end, [[2], [3, 4, 5]])
    rows = zip(start.numpy(), end.numpy(), answers, strict=True)
    assert found.item() == pytest.approx(numpy.mean([reference_loss(*row) for row in rows]))
    single = torch.nn.functional.cross_entropy(start, torch.tensor([1, 3]))
    assert boundary_loss(start, [[1], [3]]).item() == pytest.approx(single.item())


def test_the_loss_has_a_gradient_with_padding_and_extreme_logits():
    logits = torch.tensor([[0.0, 300.0, LEAST], [-300.0, 0.0, 1.0]], requires_grad=True)
    boundary_loss(logits, [[0], [0, 1]]).backward()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0].tolist() == pytest.approx([-0.5, 0.5, 0.0])


def test_the_only_answer_is_taken_without_a_draw():
    before = torch.random.get_rng_state()
    assert draw_one([[(1, 2)], [(0, 0)]]) == [[(1, 2)], [(0, 0)]]
    assert torch.equal(before, torch.random.get_rng_state())
