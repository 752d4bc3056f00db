"""
Linear kernels: products with one frozen weight, prepacked for the processor, in lower precision if
asked for. `chooser.py` says which one runs.

The fast ones are oneDNN's, through operators that PyTorch uses inside its compiler and does not
promise to keep. So they are looked up at run time and tried on a small product first; without them
the same numbers come from public operators.
"""

import functools
from collections.abc import Callable

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import tuning
from elmo_plugin.bilm.kernels.int8 import Int8Kernel


class LinearKernel:
    """
    `rows W^T`, for one weight.

    # Parameters

    weight : `torch.Tensor`
        Shape `(output_dim, input_dim)`; it is not watched for changes (see `derived.py`).
    """

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight

    def __call__(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Shape `(num_rows, input_dim)` to `(num_rows, output_dim)`; the type of `rows`."""
        return functional.linear(rows, self.weight, bias)

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        """`sums += rows W^T`."""
        sums.addmm_(rows, self.weight.t())

    def unconverted(self, rows: torch.Tensor) -> torch.Tensor:
        """`rows W^T` in the type in which it is taken."""
        return self(rows)


class ConvertedLinear(LinearKernel):
    """
    oneDNN's product of a float32 weight by public operators: the rows are copied into one of its
    tensors, and the product out of one, which pays when there are many. Twice as fast as MKL's.
    """

    def __call__(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if len(rows) < tuning.CONVERTED_ROWS:
            return super().__call__(rows, bias)
        return torch.ops.aten.mkldnn_linear(rows.to_mkldnn(), self.weight, bias).to_dense()

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        if len(rows) < tuning.CONVERTED_ROWS:
            super().add_to(sums, rows)
        else:
            sums.add_(self(rows))


class UncopiedLinear(LinearKernel):
    """oneDNN's product with a float32 weight as it is: no copy of it, a little slower."""

    def __call__(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        # Or the last bits of a row's product would depend on how many rows are beside it.
        padded = pad_rows(rows, tuning.LEAST_ROWS - len(rows))
        return onednn_linear(padded, self.weight, bias)[: len(rows)]

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        sums.add_(self(rows))


class PrepackedLinear(LinearKernel):
    """
    oneDNN's product with a float32 weight that it has packed, the fastest for few rows.

    # Parameters

    weight : `torch.Tensor`
        As in `LinearKernel`.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__(prepack(weight))
        self._least_rows = least_rows(self.weight, *weight.shape)

    def __call__(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        # Or the last bits of a row's product would depend on how many rows are beside it.
        padded = pad_rows(rows, self._least_rows - len(rows))
        return onednn_linear(padded, self.weight, bias)[: len(rows)]

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        sums.add_(self(rows))


class BFloat16Linear(LinearKernel):
    """
    Inputs and weight rounded to bfloat16 (8 bits of precision); sums in float32.

    # Parameters

    weight : `torch.Tensor`
        As in `LinearKernel`.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__(weight.to(torch.bfloat16))

    def __call__(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        product = self.unconverted(rows).to(rows.dtype)
        return product if bias is None else product.add_(bias)

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        sums.add_(self.unconverted(rows))

    def unconverted(self, rows: torch.Tensor) -> torch.Tensor:
        return functional.linear(rows.to(torch.bfloat16), self.weight)


class PrepackedBFloat16Linear(BFloat16Linear):
    """
    The same by oneDNN on a CPU.

    # Parameters

    weight : `torch.Tensor`
        As in `LinearKernel`.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__(weight)
        self.weight = prepack(self.weight)

    def unconverted(self, rows: torch.Tensor) -> torch.Tensor:
        return onednn_linear(rows.to(torch.bfloat16), self.weight, None)


class Int8Linear(LinearKernel):
    """
    Weight rows and input rows as 8-bit integers, each row with a scale of its own: its largest
    absolute value is 127. So what a row gives does not depend on the rows beside it.

    # Parameters

    weight : `torch.Tensor`
        Shape `(output_dim, input_dim)`.
    few, many : `type[Int8Kernel]`
        What multiplies fewer than `tuning.INT8_MANY_ROWS` rows, and what multiplies more.
    """

    def __init__(self, weight: torch.Tensor, few: type[Int8Kernel], many: type[Int8Kernel]) -> None:
        largest = _largest_by_row(weight)
        integers = (weight / largest).mul_(127).round_()
        # What a product of integers is worth, but for a row's largest value.
        scales = largest.squeeze(1) / 127**2
        self._few = few(integers, scales)
        self._many = self._few if many is few else many(integers, scales)

    def __call__(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        product, largest = self._product(rows)
        if bias is None:
            return product.mul_(largest)
        return torch.addcmul(bias, product, largest, out=product)

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        product, largest = self._product(rows)
        sums.addcmul_(product, largest)

    def _product(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The product of the rows divided by their largest value, and these."""
        largest = _largest_by_row(rows)
        kernel = self._few if len(rows) < tuning.INT8_MANY_ROWS else self._many
        return kernel(rows * (LARGEST_INTEGER / largest)), largest


LARGEST_INTEGER = torch.tensor(127.0)


def _largest_by_row(rows: torch.Tensor) -> torch.Tensor:
    """Shape `(num_rows, 1)`, absolute; above zero for a row of zeros too."""
    return rows.abs().amax(dim=1, keepdim=True).clamp_min_(1e-30)


def pad_rows(rows: torch.Tensor, count: int, value: float = 0.0) -> torch.Tensor:
    """With so many more rows below; the rows themselves where that is not above zero."""
    return functional.pad(rows, (0, 0, 0, count), value=value) if count > 0 else rows


def prepack(weight: torch.Tensor) -> torch.Tensor:
    """The weight as oneDNN reads it fastest."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)


def onednn_linear(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """`functional.linear` by oneDNN; the weight prepacked or as it is."""
    return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")


# By output_dim, input_dim and threads.
_least_rows: dict[tuple[int, int, int], int] = {}


def least_rows(prepacked: torch.Tensor, output_dim: int, input_dim: int) -> int:
    """
    From how many rows on oneDNN adds up a row of a float32 product in the same order, whatever is
    beside it. Tried once a shape: which shapes and how many rows depends on the processor (on Intel
    with AMX it was 16 at most).
    """
    shape = output_dim, input_dim, torch.get_num_threads()
    if shape not in _least_rows:
        generator = torch.Generator().manual_seed(0)
        most = tuning.MOST_LEAST_ROWS
        rows = torch.randn(2 * most, input_dim, generator=generator, device="cpu")
        together = onednn_linear(rows, prepacked, None)
        _least_rows[shape] = 1 + max(
            (
                count
                for count in range(1, most)
                if not torch.equal(onednn_linear(rows[:count], prepacked, None), together[:count])
            ),
            default=0,
        )
    return _least_rows[shape]


@functools.cache
def onednn_works(dtype: str) -> bool:
    """
    Whether oneDNN's private operators are there and multiply as they should, for `"float32"` or
    `"bfloat16"`; tried once.
    """
    torch_dtype = getattr(torch, dtype)

    def multiply(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return onednn_linear(rows.to(torch_dtype), prepack(weight.to(torch_dtype)), None).float()

    return _multiplies(multiply, rounding=0.01 if dtype == "bfloat16" else 0.0)


@functools.cache
def conversion_works() -> bool:
    """Whether this PyTorch has oneDNN's tensors, and they multiply as they should; tried once."""
    return _multiplies(lambda rows, weight: ConvertedLinear(weight)(rows), rounding=0.0)


def _multiplies(
    multiply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], rounding: float
) -> bool:
    generator = torch.Generator().manual_seed(0)
    # Small whole numbers: every sum is exact.
    rows, weight = (
        torch.randint(-3, 4, shape, generator=generator).float()
        for shape in ((tuning.CONVERTED_ROWS, 64), (48, 64))
    )
    try:
        product = multiply(rows, weight)
        return torch.allclose(product, rows @ weight.t(), rtol=rounding, atol=rounding)
    except (AttributeError, RuntimeError, TypeError, NotImplementedError):
        return False
