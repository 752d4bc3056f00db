"""
Weights quantized to int8 and int16, and products with a frozen weight in plain PyTorch, which run
on GPUs and on machines without the C++ library.
"""

import functools

import torch
from torch.nn import functional

# Each int8 row is scaled to a largest absolute value of 127. Packed weights store int8 + 128.
LARGEST_INT8 = 127
ZERO_POINT = 128
# int16 products are summed in int32 over blocks of 128 numbers. Scales limit the Euclidean norm of
# each block, and the largest number of a weight row, so that no sum overflows.
BLOCK = 128
WEIGHT_NORM, ROW_NORM, LARGEST_INT16 = 65532.0, 32750.0, 32767.0


def weight_in_int8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Quantize each row of a weight to int8 with a scale of its own.

    Return integers from -127 to 127 in the weight's dtype, and scales, shape `(output_dim,)`. A
    result is the product of integers, times the weight row's scale, times the input row's largest
    absolute value.
    """
    largest = _largest(weight)
    integers = (weight / largest).mul_(LARGEST_INT8).round_()
    return integers, largest.squeeze(1) / LARGEST_INT8**2


def weight_in_int16(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Quantize as `weight_in_int8`, but to int16. The product is multiplied by the input row's largest
    block norm, not by its largest absolute value.
    """
    largest = weight.abs().amax(dim=1, keepdim=True)
    scale = torch.maximum(largest / LARGEST_INT16, largest_norm(weight) / WEIGHT_NORM)
    return (weight / scale).round_(), scale.squeeze(1) / ROW_NORM


class LinearKernel:
    """
    Product `rows W^T` with a frozen weight, in PyTorch and in the weight's dtype, such as half
    precision. Subclasses choose another number format.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight

    def product(self, rows: torch.Tensor) -> torch.Tensor:
        """Return `rows W^T`, in a floating-point dtype that depends on the class."""
        return functional.linear(rows.to(self.weight.dtype), self.weight)

    def __call__(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Return `product(rows)` plus a bias, shape `(output_dim,)`, in the dtype of `rows`."""
        product = self.product(rows).to(rows.dtype)
        return product if bias is None else product.add_(bias)

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        """Add `product(rows)` to `sums`, shape `(num_rows, output_dim)`."""
        sums.add_(self.product(rows))


class ExactLinear(LinearKernel):
    """Product in the weight's own dtype."""

    def __call__(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Return the product plus the bias, both in one operator."""
        return functional.linear(rows, self.weight, bias)

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        """Add the product to `sums` in one operator."""
        sums.addmm_(rows, self.weight.t())


class Int8Linear(LinearKernel):
    """Product of rows and a weight, both quantized to int8, each row with a scale of its own."""

    def __init__(self, weight: torch.Tensor) -> None:
        integers, self._scales = weight_in_int8(weight.float())
        super().__init__(integers)

    def product(self, rows: torch.Tensor) -> torch.Tensor:
        """Return `rows W^T`. The int8 integers and their sums are represented in float32."""
        exact = rows.float()
        largest = _largest(exact)
        integers = (exact * (LARGEST_INT8 / largest)).round_()
        return self._sums(integers).mul_(self._scales * largest)

    def _sums(self, integers: torch.Tensor) -> torch.Tensor:
        return functional.linear(integers, self.weight)


class DynamicInt8Linear(Int8Linear):
    """
    `Int8Linear` on a CPU, by PyTorch's dynamic quantized product. That has one scale for all rows,
    which two more rows set to 1: so integers stay themselves, and rows stay independent.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__(weight)
        # An integer cannot be NaN, but its row's scale is.
        integers = self.weight.nan_to_num_().contiguous()
        quantized = torch.quantize_per_tensor(integers, 1.0, 0, torch.qint8)
        self._packed = torch.ops.quantized.linear_prepack(quantized, None)
        self.weight = integers.new_empty(0)  # its dtype is the products'; the packed one is enough
        # The lowest and the highest number of the 256 steps of 1.
        self._range = integers.new_tensor([[-127.0], [128.0]]).expand(2, weight.shape[1])

    def _sums(self, integers: torch.Tensor) -> torch.Tensor:
        rows = torch.cat((integers, self._range)).nan_to_num_()
        return torch.ops.quantized.linear_dynamic(rows, self._packed)[: len(integers)]


@functools.cache
def has_dynamic_int8() -> bool:
    """Return whether PyTorch's quantized product is exact here: without VNNI, its sums saturate."""
    weight = torch.tensor([[1.0], [-1.0]], device="cpu").repeat(1, 256)
    try:
        product = DynamicInt8Linear(weight)(weight)
    except (AttributeError, RuntimeError):
        return False
    return torch.equal(product, Int8Linear(weight)(weight))


def _largest(rows: torch.Tensor) -> torch.Tensor:
    """
    Return each row's largest absolute value, at least 1e-30, and NaN instead of infinity; shape
    `(num_rows, 1)`.
    """
    largest = rows.abs().amax(dim=1, keepdim=True).clamp_min_(1e-30)
    return largest.masked_fill_(largest.isinf(), torch.nan)


def largest_norm(rows: torch.Tensor) -> torch.Tensor:
    """Return each row's largest block norm, at least 1e-15; shape `(num_rows, 1)`."""
    padded = functional.pad(rows, (0, -rows.shape[1] % BLOCK))
    norms = padded.unflatten(1, (-1, BLOCK)).norm(dim=2)
    return norms.amax(dim=1, keepdim=True).clamp_min_(1e-15)
