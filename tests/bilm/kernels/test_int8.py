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


def whole_numbers(output_dim=48, input_dim=70):
    torch.manual_seed(0)
    integers = torch.randint(-127, 128, (output_dim, input_dim)).float()
    return integers, torch.rand(output_dim) + 0.1


def test_the_definition_by_hand():
    kernel = FloatInt8Kernel(torch.tensor([[127.0, -2.0]]), torch.tensor([0.5]))
    # -63.5 is rounded to the even -64.
    assert kernel(torch.tensor([[3.2, -63.5]])).tolist() == [[0.5 * (127 * 3 + 2 * 64)]]


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
    monkeypatch.setattr(int8, "works", lambda kind: True)
    wide, narrow = whole_numbers(300)[0], whole_numbers(100)[0]
    assert int8_kernels(wide) == (FbgemmInt8Kernel, OneDnnInt8Kernel)
    assert int8_kernels(narrow) == (FbgemmInt8Kernel,) * 2
    assert int8_kernels(wide.double()) == (FloatInt8Kernel,) * 2
    for kind in (FbgemmInt8Kernel, OneDnnInt8Kernel):
        monkeypatch.setattr(int8, "works", lambda other, kind=kind: other is kind)
        assert int8_kernels(wide) == (kind,) * 2
    monkeypatch.setattr(int8, "works", lambda kind: False)
    assert int8_kernels(wide) == (FloatInt8Kernel,) * 2


@pytest.mark.parametrize("fault", [AttributeError, RuntimeError, "wrong"])
def test_a_kernel_that_fails_or_errs_does_not_work(fault):
    class Broken(FloatInt8Kernel):
        def __call__(self, rows):
            if fault == "wrong":
                return super().__call__(rows) + 0.01
            raise fault("gone")

    assert not works(Broken)
    assert works(FloatInt8Kernel)
