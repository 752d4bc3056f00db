import pytest
import torch

from elmo_plugin.bilm.kernels import int8
from elmo_plugin.bilm.kernels.chooser import int8_kernels
from elmo_plugin.bilm.kernels.int8 import (
    FbgemmInt8Kernel,
    FloatInt8Kernel,
    OneDnnInt8Kernel,
    works,
)
from elmo_plugin.bilm.kernels.int8_linear import TwoDigitLinear
from elmo_plugin.bilm.model.characters import batch_to_ids
from tests.tiny_bilm import random_bilm


def whole_numbers(output_dim=48, input_dim=70):
    torch.manual_seed(0)
    integers = torch.randint(-127, 128, (output_dim, input_dim)).float()
    return integers, torch.rand(output_dim) + 0.1


def test_the_definition_by_hand():
    kernel = FloatInt8Kernel(torch.tensor([[127.0, -2.0]]), torch.tensor([0.5]))
    # -63.5 is rounded to the even -64.
    assert kernel(torch.tensor([[3.2, -63.5]])).tolist() == [[0.5 * (127 * 3 + 2 * 64)]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_weights_of_other_types(dtype):
    bilm = random_bilm(dtype="int8").eval()
    bilm.state = "reset"
    ids = batch_to_ids([["The", "cat"], ["a"]])
    with torch.no_grad():
        expected = bilm(ids)["activations"]
        found = bilm.to(dtype)(ids)["activations"]
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        assert (
            torch.nn.functional.cosine_similarity(one.float().flatten(), other.flatten(), 0) > 0.999
        )


@pytest.mark.parametrize("kind", [FbgemmInt8Kernel, OneDnnInt8Kernel])
@pytest.mark.parametrize("num_rows", [0, 1, 9, 400])
def test_kernels_give_the_same(kind, num_rows):
    """Few rows and many go different ways, and a sentence is not to depend on the batch's size."""
    if not works(kind):
        pytest.skip("not on this processor")
    torch.manual_seed(1)
    # Halves and their neighbours, where roundings part, and anything else.
    rows = torch.randint(-127, 127, (num_rows, 70)) + 0.5
    rows[:, ::2] += torch.randn(num_rows, 35) * 1e-5
    rows[:, ::5] = torch.rand(num_rows, 14) * 254 - 127
    integers, scales = whole_numbers()
    expected = FloatInt8Kernel(integers, scales)(rows.clone())
    torch.testing.assert_close(kind(integers, scales)(rows), expected, rtol=1e-6, atol=1e-6)


def test_which_are_used(monkeypatch):
    monkeypatch.setenv("ELMO_PLUGIN_PROCESSOR", "safe")
    monkeypatch.setattr(int8, "works", lambda kind: True)
    wide, narrow = whole_numbers(300)[0], whole_numbers(100)[0]
    assert int8_kernels(wide) == (FbgemmInt8Kernel, OneDnnInt8Kernel, 16)
    assert int8_kernels(narrow)[:2] == (FbgemmInt8Kernel,) * 2
    assert int8_kernels(wide.double())[:2] == (FloatInt8Kernel,) * 2
    for kind in (FbgemmInt8Kernel, OneDnnInt8Kernel):
        monkeypatch.setattr(int8, "works", lambda other, kind=kind: other is kind)
        assert int8_kernels(wide)[:2] == (kind,) * 2
    monkeypatch.setattr(int8, "works", lambda kind: False)
    assert int8_kernels(wide)[:2] == (FloatInt8Kernel,) * 2
    monkeypatch.setenv("ELMO_PLUGIN_PROCESSOR", "avx512_bf16_slow")
    monkeypatch.setattr(int8, "works", lambda kind: True)
    assert int8_kernels(wide) == (FbgemmInt8Kernel, OneDnnInt8Kernel, 32)
    assert int8_kernels(narrow) == (FbgemmInt8Kernel, OneDnnInt8Kernel, 64)


def test_two_digits_by_hand():
    """Whole numbers of 1/32385 keep all but the second digits' product."""
    scale = 127 * 255
    weight = torch.tensor([[1.0, 255 * 3 / scale], [100 / scale, -1.0]])
    rows = torch.tensor([[-1.0, 255 * 5 / scale], [7 / scale, 1.0]])
    kernel = TwoDigitLinear(weight, FloatInt8Kernel)
    exact = rows.double() @ weight.double().t()
    # 100 = 0 x 255 + 100 and 7 = 0 x 255 + 7 are second digits.
    exact[1, 1] -= 7 * 100 / scale**2
    torch.testing.assert_close(kernel(rows).double(), exact, rtol=1e-6, atol=1e-9)


def test_two_digits_are_more_exact_than_half_precision():
    torch.manual_seed(0)
    weight, rows = torch.randn(64, 512), torch.randn(30, 512) * torch.rand(30, 1)
    exact = rows.double() @ weight.double().t()
    kernel = TwoDigitLinear(weight, FloatInt8Kernel)
    half = rows.double() @ weight.half().double().t()
    ours = (kernel(rows) - exact).square().mean(dim=1)
    assert (ours < (half - exact).square().mean(dim=1)).all()


@pytest.mark.parametrize("fault", [AttributeError, RuntimeError, "wrong"])
def test_a_kernel_that_fails_or_errs_does_not_work(fault):
    class Broken(FloatInt8Kernel):
        def __call__(self, rows):
            if fault == "wrong":
                return super().__call__(rows) + 0.01
            raise fault("gone")

    assert not works(Broken)
    assert works(FloatInt8Kernel)
