"""
Products of rows with a weight of 8-bit integers: by FBGEMM, by oneDNN, or in floating point.

Both libraries are reached through operators that PyTorch does not promise to keep, so each is tried
on a small product first. FBGEMM's is the faster one for few rows, a quarter or more; oneDNN's for
many rows into a wide output.
"""

import functools
from typing import Union

import torch
from torch.nn import functional

# From so many rows on a product is of many.
MANY_ROWS = 16

# What stands for zero among unsigned integers: processors multiply unsigned with signed bytes.
ZERO = 128


class FloatKernel:
    """
    Whole numbers in floating point: exact, and works everywhere.

    # Parameters

    integers : `torch.Tensor`
        Whole numbers from -127 to 127, shape `(output_dim, input_dim)`.
    scales : `torch.Tensor`
        Shape `(output_dim,)`: what a product of integers is worth.
    """

    def __init__(self, integers: torch.Tensor, scales: torch.Tensor) -> None:
        self._integers = integers
        self._scales = scales

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """
        # Parameters

        rows : `torch.Tensor`
            From -127 to 127, shape `(num_rows, input_dim)`; may be overwritten. Rounded to whole
            numbers, as all kernels do, after `ZERO` was added: sums in float32 decide near halves.

        # Returns

        `torch.Tensor`
            Shape `(num_rows, output_dim)`.
        """
        integers = rows.add_(ZERO).round_().sub_(ZERO)
        return functional.linear(integers, self._integers) * self._scales


class OneDnnKernel:
    """
    As `FloatKernel`; float32 on a CPU.

    # Parameters

    integers, scales : `torch.Tensor`
        See there.
    """

    def __init__(self, integers: torch.Tensor, scales: torch.Tensor) -> None:
        self._weight = torch.ops.onednn.qlinear_prepack(integers.to(torch.int8), None)
        self._scales = scales
        self._zero_points = torch.zeros(len(scales), dtype=torch.int32)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """See `FloatKernel`."""
        return torch.ops.onednn.qlinear_pointwise(
            rows.add_(ZERO).round_().to(torch.uint8), 1.0, ZERO, self._weight, self._scales,
            self._zero_points, None, 1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip


class FbgemmKernel:
    """
    As `FloatKernel`; float32 on a CPU of the x86 family.

    # Parameters

    integers, scales : `torch.Tensor`
        See there.
    """

    def __init__(self, integers: torch.Tensor, scales: torch.Tensor) -> None:
        zero_points = torch.zeros(len(scales), dtype=torch.int64)
        weight = torch.quantize_per_channel(
            integers * scales.unsqueeze(1), scales, zero_points, 0, torch.qint8
        )
        self._weight = torch.ops.quantized.linear_prepack(weight, None)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """See `FloatKernel`."""
        return torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            rows, 1.0, ZERO, self._weight
        )


Kernel = Union[FloatKernel, OneDnnKernel, FbgemmKernel]


@functools.cache
def works(kind: type[Kernel]) -> bool:
    """Whether a kernel is there and multiplies as it should; tried once."""
    generator = torch.Generator().manual_seed(0)
    rows, weight = (
        torch.randint(-127, 128, shape, generator=generator).float()
        for shape in ((5, 64), (48, 64))
    )
    # All extremes, where processors without VNNI would overflow.
    rows[0], weight[0] = 127.0, 127.0
    rows[:, 0], weight[:, 0] = 127.0, -127.0
    arguments = weight, torch.full((len(weight),), 1 / 127**2)
    expected = FloatKernel(*arguments)(rows)
    try:
        return torch.allclose(kind(*arguments)(rows), expected, rtol=1e-5, atol=1e-5)
    except (AttributeError, RuntimeError, TypeError, NotImplementedError):
        return False


def kernels(integers: torch.Tensor, scales: torch.Tensor) -> tuple[Kernel, Kernel]:
    """
    # Parameters

    integers, scales : `torch.Tensor`
        See `FloatKernel`.

    # Returns

    `tuple[Kernel, Kernel]`
        The fastest that work here: for fewer than `MANY_ROWS` rows, and for more.
    """
    kinds: list[type[Kernel]] = [FloatKernel]
    if integers.device.type == "cpu" and integers.dtype == torch.float32:
        kinds = [kind for kind in (FbgemmKernel, OneDnnKernel) if works(kind)] or kinds
    output_dim, input_dim = integers.shape
    of_few = kinds[0](integers, scales)
    of_many = kinds[-1](integers, scales) if output_dim > 2 * input_dim else of_few
    return of_few, of_many
