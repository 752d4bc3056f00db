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
from elmo_plugin.bilm.kernels.same_bits import (
    in_steady_rows,
    least_rows,
    pad_rows,
    steady_rows,
)


class LinearKernel:
    """
    `rows W^T`, for one weight.

    # Parameters

    weight : `torch.Tensor`
        Shape `(output_dim, input_dim)`; it is not watched for changes (see `derived.py`).
    """

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight

    @property
    def product_dtype(self) -> torch.dtype:
        """The type in which products are taken: rows of it need not be converted."""
        return self.weight.dtype

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


class PaddedLinear(LinearKernel):
    """
    A library's product of no fewer rows than those from which on it adds up a row in one order: or
    the last bits of a row's product would depend on how many rows are beside it.
    """

    least_rows = 1

    @property
    def product_dtype(self) -> torch.dtype:
        """As `LinearKernel`; a packed weight may be in a form that has no type."""
        return torch.float32

    def __call__(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        padded = pad_rows(rows, self.least_rows - len(rows))
        return self.product(padded, bias)[: len(rows)]

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        sums.add_(self(rows))

    def product(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """The library's, of as many rows as there are; here oneDNN's in float32."""
        return onednn_linear(rows, self.weight, bias)


class UncopiedLinear(PaddedLinear):
    """oneDNN's product with a float32 weight as it is: no copy of it, a little slower."""

    least_rows = tuning.LEAST_ROWS


class PrepackedLinear(PaddedLinear):
    """
    oneDNN's product with a float32 weight that it has packed.

    # Parameters

    weight : `torch.Tensor`
        As in `LinearKernel`.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__(prepack(weight))
        self.least_rows = least_rows("oneDNN", self.product, *weight.shape)


class MklLinear(PaddedLinear):
    """
    MKL's product with a float32 weight that it has packed: on Intel processors the fastest for few
    rows and for many, and a row's bits are the same among any number of others.

    # Parameters

    weight : `torch.Tensor`
        As in `LinearKernel`.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        # Packed for a single row, MKL would treat that in another way than many.
        packed = torch.ops.mkl._mkl_reorder_linear_weight(
            weight.contiguous(), tuning.MKL_PACKED_FOR_ROWS
        )
        super().__init__(packed)
        # Of the weight as it was only the shape is asked.
        self._shape = torch.empty(1, 1, dtype=weight.dtype).expand(weight.shape)
        self.least_rows = least_rows("MKL", self.product, *weight.shape)

    def product(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """MKL's."""
        return torch.ops.mkl._mkl_linear(rows, self.weight, self._shape, bias, len(rows))


class Float16Linear(PaddedLinear):
    """
    FBGEMM's product with a weight in half precision, arithmetic in float32: half the bytes of it,
    and nothing else is rounded.

    # Parameters

    weight : `torch.Tensor`
        As in `LinearKernel`.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__(torch.ops.quantized.linear_prepack_fp16(weight, None))

    def product(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """FBGEMM's."""
        product = torch.ops.quantized.linear_dynamic_fp16(rows, self.weight)
        return product if bias is None else product.add_(bias)


class RoundedLinear(LinearKernel):
    """
    Inputs and weight rounded to a type of fewer bits; sums in float32.

    # Parameters

    weight : `torch.Tensor`
        As in `LinearKernel`.
    dtype : `torch.dtype`
        `torch.bfloat16` (8 bits of precision) or `torch.float16` (11).
    """

    def __init__(self, weight: torch.Tensor, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__(weight.to(dtype))
        self._dtype = dtype

    def __call__(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        product = self.unconverted(rows).to(rows.dtype)
        return product if bias is None else product.add_(bias)

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        sums.add_(self.unconverted(rows))

    def unconverted(self, rows: torch.Tensor) -> torch.Tensor:
        return functional.linear(rows.to(self._dtype), self.weight)


class PrepackedBFloat16Linear(RoundedLinear):
    """
    The same in bfloat16 by oneDNN on a CPU.

    # Parameters

    weight : `torch.Tensor`
        As in `LinearKernel`.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__(weight)
        self.weight = prepack(self.weight)

    def unconverted(self, rows: torch.Tensor) -> torch.Tensor:
        return onednn_linear(rows.to(torch.bfloat16), self.weight, None)


class SteadyBFloat16Linear(PrepackedBFloat16Linear):
    """
    The same in numbers of rows for which oneDNN adds up a row in one order, so that a row's bits
    are the same among any number of others. With AMX that costs a quarter of one row's time.

    # Parameters

    weight : `torch.Tensor`
        As in `LinearKernel`.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__(weight)
        self._steady_rows = steady_rows("oneDNN, bfloat16", _bfloat16_product, *weight.shape)

    def unconverted(self, rows: torch.Tensor) -> torch.Tensor:
        # Half as much to pad.
        return in_steady_rows(super().unconverted, rows.to(torch.bfloat16), self._steady_rows)


def _bfloat16_product(weight: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    return PrepackedBFloat16Linear(weight).unconverted


def prepack(weight: torch.Tensor) -> torch.Tensor:
    """The weight as oneDNN reads it fastest."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)


def onednn_linear(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """`functional.linear` by oneDNN; the weight prepacked or as it is."""
    return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")


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
def mkl_works() -> bool:
    """Whether MKL's private operators are there and multiply as they should; tried once."""
    return _multiplies(lambda rows, weight: MklLinear(weight)(rows), rounding=0.0)


@functools.cache
def float16_works() -> bool:
    """Whether FBGEMM multiplies weights in half precision; tried once."""
    return _multiplies(lambda rows, weight: Float16Linear(weight)(rows), rounding=0.0)


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
