import pytest
import torch

from benchmarks import operators


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mkl::_mkl_linear", "products"),
        ("onednn::qlinear_pointwise", "products"),
        ("aten::addmm", "products"),
        ("aten::sub_", "elementwise"),
        ("aten::amax", "elementwise"),
        ("aten::index_copy_", "moving"),
        ("aten::empty_strided", "other operators"),
    ],
)
def test_operators_are_told_apart_by_name(name, expected):
    assert operators.kind(name) == expected


def test_shares_are_of_the_whole_time():
    left = torch.randn(400, 400)
    mostly_products = operators.shares(lambda: [left @ left for _ in range(20)])
    assert sum(mostly_products.values()) == pytest.approx(1.0, abs=0.02)
    assert mostly_products["products"] > 0.5
    assert operators.shares(lambda: [left.sigmoid() for _ in range(20)])["elementwise"] > 0.5
