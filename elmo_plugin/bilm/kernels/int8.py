"""
Products of rows with a weight of 8-bit integers: by FBGEMM, by oneDNN, or in floating point.

Both libraries are reached through operators that PyTorch does not promise to keep, so each is tried
on a small product first. `chooser.py` says which one runs.
"""

import functools

import torch
from torch.nn import functional

# What stands for zero among unsigned integers: processors multiply unsigned with signed bytes.
ZERO = 128


class FloatInt8Kernel:
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


class OneDnnInt8Kernel:
    """
    The same products; float32 on a CPU.

    # Parameters

    integers, scales : `torch.Tensor`
        As in `FloatInt8Kernel`.
    """

    def __init__(self, integers: torch.Tensor, scales: torch.Tensor) -> None:
        self._weight = torch.ops.onednn.qlinear_prepack(integers.to(torch.int8), None)
        self._scales = scales
        self._zero_points = torch.zeros(len(scales), dtype=torch.int32)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """See `FloatInt8Kernel`."""
        return torch.ops.onednn.qlinear_pointwise(
            rows.add_(ZERO).round_().to(torch.uint8), 1.0, ZERO, self._weight, self._scales,
            self._zero_points, None, 1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip


class FbgemmInt8Kernel:
    """
    The same products; float32 on a CPU of the x86 family.

    # Parameters

    integers, scales : `torch.Tensor`
        As in `FloatInt8Kernel`.
    """

    def __init__(self, integers: torch.Tensor, scales: torch.Tensor) -> None:
        zero_points = torch.zeros(len(scales), dtype=torch.int64)
        # `torch.quantize_per_channel` of their products would give the same, after many passes.
        weight = torch._make_per_channel_quantized_tensor(
            integers.to(torch.int8), scales.double(), zero_points, 0
        )
        self._weight = torch.ops.quantized.linear_prepack(weight, None)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """See `FloatInt8Kernel`."""
        return torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            rows, 1.0, ZERO, self._weight
        )


Int8Kernel = FloatInt8Kernel | OneDnnInt8Kernel | FbgemmInt8Kernel


@functools.cache
def works(kernel: type[Int8Kernel]) -> bool:
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
    expected = FloatInt8Kernel(*arguments)(rows)
    try:
        return torch.allclose(kernel(*arguments)(rows), expected, rtol=1e-5, atol=1e-5)
    except (AttributeError, RuntimeError, TypeError, NotImplementedError):
        return False
