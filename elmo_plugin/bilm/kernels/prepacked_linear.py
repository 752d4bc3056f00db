"""
Products with a frozen weight, laid out once for the processor, in lower precision if asked for.

The fast ones are oneDNN's, through operators that PyTorch uses inside its compiler and does not
promise to keep. So they are looked up at run time and tried on a small product first; without them
the same numbers come from public operators.
"""

import functools
from typing import Callable, Optional

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.int8 import MANY_ROWS, kernels

# Fewer rows than this are multiplied faster where they are than in oneDNN's tensors.
CONVERTED_ROWS = 32

# Weights of so many elements (32 MB) are not copied for products of many rows. Of fewer rows than
# the second number oneDNN takes the sums in another order then: true of the released biLMs' shapes,
# where smaller weights and some other widths would need more.
LARGE_WEIGHT, LEAST_ROWS = 1 << 23, 32

# oneDNN prepares itself for each number of rows that it has not met yet, which takes longer than a
# few more rows: worth filling up to a multiple of this where the number varies.
ROWS_IN_STEPS_OF = 8

DTYPES = ("bfloat16", "int8")

LARGEST_INTEGER = torch.tensor(127.0)


class Product:
    """
    `rows W^T`, for one weight.

    # Parameters

    weight : `torch.Tensor`
        Shape `(output_dim, input_dim)`.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight

    def __call__(self, rows: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Shape `(num_rows, input_dim)` to `(num_rows, output_dim)`; the type of `rows`."""
        return functional.linear(rows, self.weight, bias)

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        """`sums += rows W^T`."""
        sums.addmm_(rows, self.weight.t())

    def unconverted(self, rows: torch.Tensor) -> torch.Tensor:
        """`rows W^T` in the type in which it is taken."""
        return self(rows)


class _ConvertedProduct(Product):
    """
    oneDNN's product of a float32 weight by public operators: the rows are copied into one of its
    tensors, and the product out of one, which pays when there are many. Twice as fast as MKL's.
    """

    def __call__(self, rows: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        if len(rows) < CONVERTED_ROWS:
            return super().__call__(rows, bias)
        return torch.ops.aten.mkldnn_linear(rows.to_mkldnn(), self.weight, bias).to_dense()

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        if len(rows) < CONVERTED_ROWS:
            super().add_to(sums, rows)
        else:
            sums.add_(self(rows))


class _OneDnnProduct(Product):
    """oneDNN's product with a float32 weight; laid out by it, the fastest for few rows."""

    def __call__(self, rows: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        return _linear(rows, self.weight, bias)

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        sums.add_(self(rows))


class _UncopiedProduct(_OneDnnProduct):
    """The same with a weight as it is: no copy of it, a little slower."""

    def __call__(self, rows: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        # Or the last bits of a row's product would depend on how many rows are beside it.
        filled = filled_up(rows, LEAST_ROWS - len(rows))
        return super().__call__(filled, bias)[: len(rows)]


class _BFloat16Product(Product):
    """Inputs and weight rounded to bfloat16 (8 bits of precision); sums in float32."""

    def __init__(self, weight: torch.Tensor) -> None:
        weight = weight.to(torch.bfloat16)
        self._prepared = weight.device.type == "cpu" and onednn_works("bfloat16")
        super().__init__(_reordered(weight) if self._prepared else weight)

    def __call__(self, rows: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        product = self.unconverted(rows).to(rows.dtype)
        return product if bias is None else product.add_(bias)

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        sums.add_(self.unconverted(rows))

    def unconverted(self, rows: torch.Tensor) -> torch.Tensor:
        rounded = rows.to(torch.bfloat16)
        if self._prepared:
            return _linear(rounded, self.weight, None)
        return functional.linear(rounded, self.weight)


class _Int8Product(Product):
    """
    Weight rows and input rows as 8-bit integers, each row with a scale of its own: its largest
    absolute value is 127. So what a row gives does not depend on the rows beside it.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        largest = _largest_by_row(weight)
        integers = (weight / largest).mul_(127).round_()
        # What a product of integers is worth, but for a row's largest value.
        self._of_few, self._of_many = kernels(integers, largest.squeeze(1) / 127**2)

    def _product(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The product of the rows divided by their largest value, and these."""
        largest = _largest_by_row(rows)
        kernel = self._of_few if len(rows) < MANY_ROWS else self._of_many
        return kernel(rows * (LARGEST_INTEGER / largest)), largest

    def __call__(self, rows: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        product, largest = self._product(rows)
        if bias is None:
            return product.mul_(largest)
        return torch.addcmul(bias, product, largest, out=product)

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        product, largest = self._product(rows)
        sums.addcmul_(product, largest)


def _largest_by_row(rows: torch.Tensor) -> torch.Tensor:
    """Shape `(num_rows, 1)`, absolute; above zero for a row of zeros too."""
    return rows.abs().amax(dim=1, keepdim=True).clamp_min_(1e-30)


def prepare(
    weight: torch.Tensor, dtype: Optional[str] = None, for_many_rows: bool = False
) -> Product:
    """
    # Parameters

    weight : `torch.Tensor`
        Shape `(output_dim, input_dim)`; it is not watched for changes (see `product_module.py`).
    dtype : `Optional[str]`, optional (default = `None`)
        `None` for the weight's own, `"bfloat16"` or `"int8"`.
    for_many_rows : `bool`, optional (default = `False`)
        Whether it is usually called with dozens of rows or more. Then a copy of a large weight
        would gain a tenth or so, and is not made where the weight can be used as it lies.

    # Returns

    `Product`
        The fastest that works here.
    """
    weight = weight.detach()
    if dtype == "bfloat16":
        return _BFloat16Product(weight)
    if dtype == "int8":
        return _Int8Product(weight)
    if weight.device.type == "cpu" and weight.dtype == torch.float32:
        if onednn_works("float32"):
            if for_many_rows and weight.numel() >= LARGE_WEIGHT:
                return _UncopiedProduct(weight)
            return _OneDnnProduct(_reordered(weight))
        if conversion_works():
            return _ConvertedProduct(weight)
    return Product(weight)


def filled_up(rows: torch.Tensor, more: int, value: float = 0.0) -> torch.Tensor:
    """On a CPU with so many more rows below, if that is above zero; else the rows themselves."""
    if more <= 0 or rows.device.type != "cpu":
        return rows
    return functional.pad(rows, (0, 0, 0, more), value=value)


def _reordered(weight: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)


def _linear(rows: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor]) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")


@functools.cache
def onednn_works(dtype: str) -> bool:
    """
    Whether oneDNN's private operators are there and multiply as they should, for `"float32"` or
    `"bfloat16"`; tried once.
    """
    kind = getattr(torch, dtype)

    def multiply(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return _linear(rows.to(kind), _reordered(weight.to(kind)), None).float()

    return _multiplies(multiply, rounding=0.01 if dtype == "bfloat16" else 0.0)


@functools.cache
def conversion_works() -> bool:
    """Whether this PyTorch has oneDNN's tensors, and they multiply as they should; tried once."""
    return _multiplies(lambda rows, weight: _ConvertedProduct(weight)(rows), rounding=0.0)


def _multiplies(
    multiply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], rounding: float
) -> bool:
    generator = torch.Generator().manual_seed(0)
    # Small whole numbers: every sum is exact.
    rows, weight = (
        torch.randint(-3, 4, shape, generator=generator).float()
        for shape in ((CONVERTED_ROWS, 64), (48, 64))
    )
    try:
        product = multiply(rows, weight)
        return torch.allclose(product, rows @ weight.t(), rtol=rounding, atol=rounding)
    except (AttributeError, RuntimeError, TypeError, NotImplementedError):
        return False
