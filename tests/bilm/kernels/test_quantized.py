"""Products with frozen weights by PyTorch, in lower precision."""

import pytest
import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.kernels.fast import linear_kernel
from elmo_plugin.bilm.kernels.quantized import (
    DynamicInt8Linear,
    ExactLinear,
    Int8Linear,
    LinearKernel,
    has_dynamic_int8,
)
from tests.bilm.kernels.number_formats import BFloat16Linear, Int16Linear


def rounded(weight):
    return LinearKernel(weight.bfloat16())


# Largest error over the largest value.
TOLERANCE = {
    ExactLinear: 2e-6,
    Int16Linear: 2e-4,
    rounded: 0.01,
    BFloat16Linear: 0.01,
    Int8Linear: 0.02,
    DynamicInt8Linear: 0.02,
}


def rows_and_weight(num_rows=9, input_dim=70, output_dim=48):
    torch.manual_seed(0)
    weight = torch.randn(output_dim, input_dim) * torch.rand(output_dim, 1)
    return torch.randn(num_rows, input_dim) * 3 * torch.rand(num_rows, 1), weight


@pytest.mark.parametrize("kernel", TOLERANCE)
@pytest.mark.parametrize("num_rows", [0, 1, 9, 300])
def test_the_product(kernel, num_rows):
    rows, weight = rows_and_weight(num_rows)
    product, bias = kernel(weight), torch.randn(48)
    before = rows.clone()
    expected = functional.linear(rows, weight, bias)
    atol = TOLERANCE[kernel] * float((rows @ weight.t()).abs().max()) if num_rows else 0
    torch.testing.assert_close(product(rows, bias), expected, atol=atol, rtol=0)
    torch.testing.assert_close(product(rows) + bias, expected, atol=atol, rtol=0)
    assert torch.equal(rows, before)
    sums = bias.repeat(num_rows, 1)
    product.add_to(sums, rows)
    torch.testing.assert_close(sums, expected, atol=atol, rtol=0)


@pytest.mark.parametrize("kernel", [Int8Linear, DynamicInt8Linear, Int16Linear])
def test_a_rows_scale_does_not_depend_on_the_rows_beside_it(kernel):
    rows, weight = rows_and_weight(40)
    product = kernel(weight)
    together = product(rows)
    rows[1:] *= 1000
    torch.testing.assert_close(product(rows)[:1], together[:1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kernel", [Int8Linear, DynamicInt8Linear, Int16Linear])
def test_rows_of_zeros(kernel):
    _, weight = rows_and_weight()
    assert torch.equal(kernel(weight)(torch.zeros(3, 70)), torch.zeros(3, 48))
    assert torch.equal(kernel(weight * 0)(torch.ones(3, 70)), torch.zeros(3, 48))


@pytest.mark.parametrize("kernel", TOLERANCE)
def test_a_nan_weight_shows(kernel):
    rows, weight = rows_and_weight()
    weight[7, 3] = torch.nan
    assert kernel(weight)(rows)[:, 7].isnan().all()


@pytest.mark.skipif(
    not any(one.endswith(("vnni", "bf16", "amx")) for one in library.runnable_variants()),
    reason="PyTorch's quantized product is known to be exact with VNNI alone",
)
def test_the_dynamic_product_is_that_of_each_row_alone():
    """Bitwise; an infinity or NaN spoils its own row and column alone."""
    assert has_dynamic_int8()
    for shape in ((1, 1, 1), (33, 130, 47), (70, 512, 96)):
        rows, weight = rows_and_weight(*shape)
        rows[0], weight[-1] = 3.0, -2.0
        exact, dynamic = Int8Linear(weight), DynamicInt8Linear(weight)
        expected = exact(rows)
        assert torch.equal(dynamic(rows), expected)
        for row, one in zip(rows, expected, strict=True):
            assert torch.equal(dynamic(row[None])[0], one)
    rows[0, 0], rows[2, 1], weight[3, 2] = torch.inf, torch.nan, torch.inf
    expected = Int8Linear(weight)(rows)
    assert expected.isnan().sum() == 2 * 96 + 68
    found = DynamicInt8Linear(weight)(rows)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_int8_by_hand():
    """Scales are 2 / 127 and 4 / 127; 1.0 becomes 63.5, which is rounded to the even 64."""
    product = Int8Linear(torch.tensor([[2.0, 1.0]]))(torch.tensor([[4.0, -4.0]]))
    assert product.item() == pytest.approx((127 - 64) * 127 * 2 * 4 / 127**2)


def test_which_product_runs_without_the_library():
    _, weight = rows_and_weight()
    kinds = [type(linear_kernel(weight, dtype)) for dtype in (None, "float16", "bfloat16", "int8")]
    assert kinds == [ExactLinear] * 3 + [DynamicInt8Linear if has_dynamic_int8() else Int8Linear]
    assert type(linear_kernel(weight, "int8", precise=True)) is ExactLinear
    meta = weight.to("meta")
    kinds = [linear_kernel(meta, dtype).weight.dtype for dtype in (None, "float16", "bfloat16")]
    assert kinds == [torch.float32, torch.float16, torch.bfloat16]
