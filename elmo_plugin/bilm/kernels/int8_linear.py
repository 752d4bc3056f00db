"""
Products with 8-bit integers: one a number, or two, which are then digits. `chooser.py` says which
kernels multiply them.
"""

from abc import abstractmethod

import torch

from elmo_plugin.bilm.kernels.int8 import Int8Kernel
from elmo_plugin.bilm.kernels.prepacked_linear import LinearKernel

LARGEST_INTEGER = torch.tensor(127.0)
# Two digits from -127 to 127, of which the first counts so much.
BASE = 255
LARGEST_PAIR = torch.tensor(127.0 * BASE)


class IntegerLinear(LinearKernel):
    """Products of integers, to be multiplied with a number of each row's."""

    def __call__(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """As `LinearKernel`."""
        product, largest = self._product(rows)
        if bias is None:
            return product.mul_(largest)
        return torch.addcmul(bias, product, largest, out=product)

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        """As `LinearKernel`."""
        product, largest = self._product(rows)
        sums.addcmul_(product, largest)

    @abstractmethod
    def _product(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The product of the rows divided by their largest value, and these."""


class Int8Linear(IntegerLinear):
    """
    Weight rows and input rows as 8-bit integers, each row with a scale of its own: its largest
    absolute value is 127. So what a row gives does not depend on the rows beside it.

    # Parameters

    weight : `torch.Tensor`
        Shape `(output_dim, input_dim)`.
    few, many : `type[Int8Kernel]`
        What multiplies fewer than `many_rows` rows, and what multiplies more.
    many_rows : `int`
    """

    def __init__(
        self,
        weight: torch.Tensor,
        few: type[Int8Kernel],
        many: type[Int8Kernel],
        many_rows: int,
    ) -> None:
        super().__init__(weight[:0])
        integers, self._scales = in_integers(weight.float())
        self._integers: torch.Tensor | None = integers.to(torch.int8)
        self._many_rows = many_rows
        self._kinds = few, many
        self._kernels: list[Int8Kernel | None] = [None, None]

    def _product(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # Sums of integers do not fit 16 bits.
        exact = rows.float()
        largest = _largest_by_row(exact)
        kernel = self._kernel(int(len(rows) >= self._many_rows))
        product = kernel(exact * (LARGEST_INTEGER / largest))
        return product.to(rows.dtype), largest.to(rows.dtype)

    def _kernel(self, number: int) -> Int8Kernel:
        """Made when it is first needed: a sentence alone needs one of them."""
        # In this order, for several threads: without integers both kernels are there.
        integers = self._integers
        kernel = self._kernels[number]
        if kernel is None:
            assert integers is not None
            kernel = self._kinds[number](integers.float(), self._scales)
            self._kernels[number] = kernel
            if self._kinds[0] is self._kinds[1]:
                self._kernels = [kernel, kernel]
            if None not in self._kernels:
                self._integers = None
        return kernel


class TwoDigitLinear(IntegerLinear):
    """
    Weight rows and input rows as 16-bit integers, each row with a scale of its own, multiplied as
    two digits of 8 bits; the product of the second digits is left out. More exact than a weight in
    half precision, as small, and by far the fastest of its kind where processors multiply bytes.

    # Parameters

    weight : `torch.Tensor`
        Shape `(output_dim, input_dim)`.
    kernel : `type[Int8Kernel]`
        What multiplies.
    """

    def __init__(self, weight: torch.Tensor, kernel: type[Int8Kernel]) -> None:
        super().__init__(weight[:0])
        largest = _largest_by_row(weight)
        high, low = _digits(weight, largest)
        scales = largest.squeeze(1) * (BASE / float(LARGEST_PAIR) ** 2)
        self._high, self._low = kernel(high, scales), kernel(low, scales)

    def _product(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        largest = _largest_by_row(rows)
        high, low = _digits(rows, largest)
        # Kernels may overwrite what they are given; this is a copy.
        by_high = self._high(torch.cat([high, low]))
        product, by_low = by_high[: len(rows)], by_high[len(rows) :]
        return product.mul_(BASE).add_(by_low).add_(self._low(high)), largest


def in_integers(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Whole numbers from -127 to 127, and what a product with integers is worth, shape
    `(output_dim,)`, but for a row's largest value.
    """
    largest = _largest_by_row(weight)
    return (weight / largest).mul_(127).round_(), largest.squeeze(1) / 127**2


def _digits(rows: torch.Tensor, largest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers from -127 to 127; the first counts `BASE` times the second."""
    integers = (rows * (LARGEST_PAIR / largest)).round_()
    high = (integers / BASE).round_()
    return high, integers.sub_(high, alpha=BASE)


def _largest_by_row(rows: torch.Tensor) -> torch.Tensor:
    """Shape `(num_rows, 1)`, absolute; above zero for a row of zeros too."""
    return rows.abs().amax(dim=1, keepdim=True).clamp_min_(1e-30)
