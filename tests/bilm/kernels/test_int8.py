import pytest
import torch

from elmo_plugin.bilm.kernels import int8 as int8_kernels
from elmo_plugin.bilm.kernels.int8 import FbgemmKernel, FloatKernel, OneDnnKernel, kernels, works


def whole_numbers(output_dim=48, input_dim=70):
    torch.manual_seed(0)
    integers = torch.randint(-127, 128, (output_dim, input_dim)).float()
    return integers, torch.rand(output_dim) + 0.1


def test_the_definition_by_hand():
    kernel = FloatKernel(torch.tensor([[127.0, -2.0]]), torch.tensor([0.5]))
    # -63.5 is rounded to the even -64.
    assert kernel(torch.tensor([[3.2, -63.5]])).tolist() == [[0.5 * (127 * 3 + 2 * 64)]]


@pytest.mark.parametrize("kind", [FbgemmKernel, OneDnnKernel])
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
    expected = FloatKernel(integers, scales)(rows.clone())
    torch.testing.assert_close(kind(integers, scales)(rows), expected, rtol=1e-6, atol=1e-6)


def test_which_are_used(monkeypatch):
    monkeypatch.setattr(int8_kernels, "works", lambda kind: True)
    wide, narrow = whole_numbers(300), whole_numbers(100)
    assert [type(kernel) for kernel in kernels(*wide)] == [FbgemmKernel, OneDnnKernel]
    of_few, of_many = kernels(*narrow)
    assert type(of_few) is FbgemmKernel
    assert of_few is of_many
    in_float64 = kernels(*(tensor.double() for tensor in wide))
    assert [type(kernel) for kernel in in_float64] == [FloatKernel] * 2
    for kind in (FbgemmKernel, OneDnnKernel):
        monkeypatch.setattr(int8_kernels, "works", lambda other, kind=kind: other is kind)
        assert [type(kernel) for kernel in kernels(*wide)] == [kind] * 2
    monkeypatch.setattr(int8_kernels, "works", lambda kind: False)
    assert [type(kernel) for kernel in kernels(*wide)] == [FloatKernel] * 2


@pytest.mark.parametrize("fault", [AttributeError, RuntimeError, "wrong"])
def test_a_kernel_that_fails_or_errs_does_not_work(fault):
    class Broken(FloatKernel):
        def __call__(self, rows):
            if fault == "wrong":
                return super().__call__(rows) + 0.01
            raise fault("gone")

    assert not works(Broken)
    assert works(FloatKernel)
