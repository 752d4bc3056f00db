import pytest
import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import int8, prepacked_linear, tuning
from elmo_plugin.bilm.kernels.chooser import linear_kernel
from elmo_plugin.bilm.kernels.prepacked_linear import conversion_works, onednn_works
from elmo_plugin.bilm.kernels.processors import use_processor, vendor

# Largest error over the largest value.
TOLERANCE = {None: 2e-6, "float16": 1e-3, "bfloat16": 0.01, "int8": 0.02}


def rows_and_weight(num_rows=9, input_dim=70, output_dim=48):
    torch.manual_seed(0)
    weight = torch.randn(output_dim, input_dim) * torch.rand(output_dim, 1)
    return torch.randn(num_rows, input_dim) * 3 * torch.rand(num_rows, 1), weight


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("num_rows", [0, 1, 9, 300])
@pytest.mark.parametrize("many_rows", [False, True])
def test_the_product_and_its_sum(operators, dtype, num_rows, many_rows, monkeypatch):
    monkeypatch.setattr(tuning, "LARGE_WEIGHT", 1)
    rows, weight = rows_and_weight(num_rows)
    product, bias = linear_kernel(weight, dtype, many_rows), torch.randn(48)
    expected = functional.linear(rows, weight, bias)
    atol = TOLERANCE[dtype] * float((rows @ weight.t()).abs().max()) if num_rows else 0
    torch.testing.assert_close(product(rows, bias), expected, atol=atol, rtol=0)
    torch.testing.assert_close(product(rows) + bias, expected, atol=atol, rtol=0)
    sums = bias.repeat(num_rows, 1)
    product.add_to(sums, rows)
    torch.testing.assert_close(sums, expected, atol=atol, rtol=0)


def test_here_onednn_is_what_runs():
    if not torch.backends.mkldnn.is_available():
        pytest.skip("PyTorch was built without oneDNN")
    _, weight = rows_and_weight()
    assert onednn_works("float32")
    with use_processor("safe"):
        assert linear_kernel(weight).weight.layout == torch._mkldnn


def test_many_rows_a_large_weight_is_not_copied(monkeypatch):
    if not onednn_works("float32"):
        pytest.skip("oneDNN is not what runs")
    _, weight = rows_and_weight()
    assert linear_kernel(weight, many_rows=True).weight.layout == torch._mkldnn
    monkeypatch.setattr(tuning, "LARGE_WEIGHT", weight.numel())
    assert linear_kernel(weight).weight.layout == torch._mkldnn
    assert linear_kernel(weight, many_rows=True).weight.data_ptr() == weight.data_ptr()


def test_few_rows_of_a_large_weight_are_filled_up(monkeypatch):
    if not onednn_works("float32"):
        pytest.skip("oneDNN is not what runs")
    monkeypatch.setattr(tuning, "LARGE_WEIGHT", 1)
    rows, weight = rows_and_weight(40)
    multiply, sizes = prepacked_linear.onednn_linear, []
    monkeypatch.setattr(
        prepacked_linear,
        "onednn_linear",
        lambda rows, *others: sizes.append(len(rows)) or multiply(rows, *others),
    )
    product = linear_kernel(weight, many_rows=True)
    assert [len(product(rows[:num_rows])) for num_rows in (1, 31, 32, 40)] == [1, 31, 32, 40]
    assert sizes == [32, 32, 32, 40]


@pytest.mark.parametrize(("input_dim", "output_dim"), [(512, 16384), (2048, 4096)])
def test_the_last_bits_of_the_originals_products_do_not_depend_on_the_number_of_rows(
    input_dim, output_dim
):
    """Extraction's `--resume` gives the same bytes, though its first batch may be another."""
    amd = vendor() == "AuthenticAMD"
    if not (amd and torch.backends.cpu.get_cpu_capability() == "AVX512"):
        pytest.skip("which bits there are depends on the processor; tried on AMD's with AVX-512")
    if not onednn_works("float32"):
        pytest.skip("oneDNN is not what runs")
    rows, weight = rows_and_weight(40, input_dim, output_dim)
    product = linear_kernel(weight, many_rows=True)
    together = product(rows)
    for num_rows in (1, 8, 24, 31, 32, 33):
        assert torch.equal(product(rows[:num_rows]), together[:num_rows])


@pytest.mark.parametrize(
    ("input_dim", "output_dim"), [(128, 4096), (112, 2048), (4096, 512), (512, 1024), (70, 48)]
)
def test_the_last_bits_of_a_row_do_not_depend_on_the_rows_beside_it(input_dim, output_dim):
    """Few rows are padded to as many as this processor wants for that."""
    if not onednn_works("float32"):
        pytest.skip("oneDNN is not what runs")
    rows, weight = rows_and_weight(600, input_dim, output_dim)
    product, bias = linear_kernel(weight), torch.randn(output_dim)
    together = product(rows, bias)
    for num_rows in (*range(1, 34), 64, 333):
        assert torch.equal(product(rows[:num_rows], bias), together[:num_rows])


@pytest.mark.parametrize("num_rows", [31, 32])
def test_without_the_private_operators_many_rows_go_to_onednn_all_the_same(num_rows, monkeypatch):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("PyTorch was built without oneDNN")
    assert conversion_works()
    monkeypatch.setattr(prepacked_linear, "onednn_works", lambda dtype: False)
    rows, weight = rows_and_weight(num_rows)
    product = linear_kernel(weight)
    convert, converted = torch.Tensor.to_mkldnn, []
    monkeypatch.setattr(
        torch.Tensor, "to_mkldnn", lambda rows: converted.append(rows) or convert(rows)
    )
    product(rows)
    product.add_to(torch.zeros(num_rows, 48), rows)
    assert len(converted) == (2 if num_rows == 32 else 0)
    # Rows that do not lie side by side.
    torch.testing.assert_close(product(rows.t().contiguous().t()), product(rows))


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_lower_precision_gives_the_same_without_the_private_operators(dtype, monkeypatch):
    rows, weight = rows_and_weight()
    private = linear_kernel(weight, dtype)(rows)
    monkeypatch.setattr(prepacked_linear, "onednn_works", lambda dtype: False)
    monkeypatch.setattr(int8, "works", lambda kind: False)
    # bfloat16: both round their sums to it; int8: sums of integers, exact.
    rtol = 0.01 if dtype == "bfloat16" else 1e-5
    torch.testing.assert_close(linear_kernel(weight, dtype)(rows), private, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("output_dim", [48, 300])
def test_in_int8_a_row_does_not_depend_on_the_rows_beside_it(operators, output_dim):
    """Nor on their number, though few rows into a wide output take another kernel."""
    rows, weight = rows_and_weight(40, output_dim=output_dim)
    product = linear_kernel(weight, "int8")
    together = product(rows)
    rows[1:] *= 1000
    for others in (rows, rows[:9], rows[:1]):
        torch.testing.assert_close(product(others)[:1], together[:1], rtol=1e-6, atol=1e-6)


def test_rows_of_zeros_in_int8(operators):
    _, weight = rows_and_weight()
    assert torch.equal(linear_kernel(weight, "int8")(torch.zeros(3, 70)), torch.zeros(3, 48))
    assert torch.equal(linear_kernel(weight * 0, "int8")(torch.ones(3, 70)), torch.zeros(3, 48))


@pytest.mark.parametrize("fault", [AttributeError, RuntimeError, "wrong"])
def test_operators_that_fail_or_err_are_not_used(fault, monkeypatch):
    def broken(rows, weight, bias):
        if fault == "wrong":
            return torch.zeros(len(rows), 48, dtype=rows.dtype)
        raise fault("gone")

    monkeypatch.setattr(prepacked_linear, "onednn_linear", broken)
    onednn_works.cache_clear()
    try:
        assert not onednn_works("float32")
        assert not onednn_works("bfloat16")
        rows, weight = rows_and_weight()
        torch.testing.assert_close(linear_kernel(weight)(rows), functional.linear(rows, weight))
    finally:
        onednn_works.cache_clear()


@pytest.mark.parametrize("fault", [NotImplementedError, "wrong"])
def test_a_conversion_that_fails_or_errs_is_not_used(fault, monkeypatch):
    class Broken(prepacked_linear.ConvertedLinear):
        def __call__(self, rows, bias=None):
            if fault == "wrong":
                return torch.zeros(len(rows), 48)
            raise fault("gone")

    monkeypatch.setattr(prepacked_linear, "onednn_works", lambda dtype: False)
    monkeypatch.setattr(prepacked_linear, "ConvertedLinear", Broken)
    conversion_works.cache_clear()
    try:
        assert not conversion_works()
        assert type(linear_kernel(torch.ones(48, 64))) is prepacked_linear.LinearKernel
    finally:
        conversion_works.cache_clear()
