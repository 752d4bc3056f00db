"""
Products with a frozen weight, laid out once for the processor, in lower precision if asked for.

The fast ones are oneDNN's, through operators that PyTorch uses inside its compiler and does not
promise to keep. So they are looked up at run time and tried on a small product first; without them
the same numbers come from public operators.
"""

import functools
import weakref
from typing import Any, Callable, NamedTuple, Optional

import torch
from torch.nn import functional

DTYPES = ("bfloat16", "int8")


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


class _PreparedProduct(Product):
    """oneDNN's product with its own layout of a float32 weight."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__(_reordered(weight))

    def __call__(self, rows: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        return _linear(rows, self.weight, bias)

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        sums.add_(_linear(rows, self.weight, None))


class _BFloat16Product(Product):
    """Inputs and weight rounded to bfloat16 (8 bits of precision); sums in float32."""

    def __init__(self, weight: torch.Tensor) -> None:
        weight = weight.to(torch.bfloat16)
        self._prepared = weight.device.type == "cpu" and onednn_works("bfloat16")
        super().__init__(_reordered(weight) if self._prepared else weight)

    def __call__(self, rows: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        rounded = rows.to(torch.bfloat16)
        if self._prepared:
            product = _linear(rounded, self.weight, None)
        else:
            product = functional.linear(rounded, self.weight)
        product = product.to(rows.dtype)
        return product if bias is None else product.add_(bias)

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        sums.add_(self(rows))


class _Int8Product(Product):
    """
    Weight rows and input rows as 8-bit integers, each row with a scale of its own: its largest
    absolute value is 127. So what a row gives does not depend on the rows beside it.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        largest = _largest_by_row(weight)
        integers = (weight / largest).mul_(127).round_()
        self._half = weight.new_tensor(128.5)
        # What one step of the integers is worth, but for a row's largest value.
        self._scales = largest.squeeze(1) / 127**2
        self._prepared = weight.device.type == "cpu" and onednn_works("int8")
        if self._prepared:
            self._scales = self._scales.float()
            self._zero_points = torch.zeros(len(weight), dtype=torch.int32)
            integers = torch.ops.onednn.qlinear_prepack(integers.to(torch.int8), None)
        super().__init__(integers)

    def _product(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The product of the rows divided by their largest value, and these."""
        largest = _largest_by_row(rows)
        if not self._prepared:
            integers = (rows / largest).mul_(127).round_()
            return functional.linear(integers, self.weight) * self._scales, largest
        # 128 stands for zero: the processor multiplies unsigned with signed bytes. The half makes
        # the cut to integers a rounding.
        unsigned = torch.addcdiv(self._half, rows, largest, value=127).to(torch.uint8)
        product = torch.ops.onednn.qlinear_pointwise(
            unsigned, 1.0, 128, self.weight, self._scales, self._zero_points, None,
            1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return product, largest

    def __call__(self, rows: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        product, largest = self._product(rows)
        product.mul_(largest)
        return product if bias is None else product.add_(bias)

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        product, largest = self._product(rows)
        sums.addcmul_(product, largest)


def _largest_by_row(rows: torch.Tensor) -> torch.Tensor:
    """Shape `(num_rows, 1)`, absolute; above zero for a row of zeros too."""
    return rows.abs().amax(dim=1, keepdim=True).clamp_min_(1e-30)


def prepare(weight: torch.Tensor, dtype: Optional[str] = None) -> Product:
    """
    # Parameters

    weight : `torch.Tensor`
        Shape `(output_dim, input_dim)`; it is not watched for changes (see `ProductModule`).
    dtype : `Optional[str]`, optional (default = `None`)
        `None` for the weight's own, `"bfloat16"` or `"int8"`.

    # Returns

    `Product`
        The fastest that works here.
    """
    weight = weight.detach()
    if dtype == "bfloat16":
        return _BFloat16Product(weight)
    if dtype == "int8":
        return _Int8Product(weight)
    on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
    return _PreparedProduct(weight) if on_cpu and onednn_works("float32") else Product(weight)


def _reordered(weight: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)


def _linear(rows: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor]) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")


@functools.cache
def onednn_works(dtype: str) -> bool:
    """
    Whether oneDNN's private operators are there and multiply as they should, for `"float32"`,
    `"bfloat16"` or `"int8"`; tried once.
    """
    generator = torch.Generator().manual_seed(0)
    # Small whole numbers: every sum is exact. All extremes in int8, where processors without
    # VNNI would overflow.
    rows, weight = (
        torch.randint(-3, 4, shape, generator=generator).float() for shape in ((5, 64), (48, 64))
    )
    rows[0], weight[0] = 127.0, 127.0
    rows[:, 0], weight[:, 0] = 127.0, -127.0
    try:
        if dtype == "int8":
            operators = torch.ops.onednn
            packed = operators.qlinear_prepack(weight.to(torch.int8), None)
            product = operators.qlinear_pointwise(
                (rows + 128).to(torch.uint8), 1.0, 128, packed, torch.ones(len(weight)),
                torch.zeros(len(weight), dtype=torch.int32), None,
                1.0, 0, torch.float32, "none", [], "",
            )  # fmt: skip
        else:
            kind = getattr(torch, dtype)
            product = _linear(rows.to(kind), _reordered(weight.to(kind)), None).float()
        rounding = 0.01 if dtype == "bfloat16" else 0.0
        expected = rows @ weight.t()
        return bool(torch.allclose(product, expected, rtol=rounding, atol=rounding))
    except (AttributeError, RuntimeError, TypeError, NotImplementedError):
        return False


class _Prepared(NamedTuple):
    parameter: Any
    state: tuple[Any, ...]
    product: Product


class ProductModule(torch.nn.Module):
    """
    A module whose weights are prepared when first used without gradients, and again when they have
    changed. Prepared weights are never part of a `state_dict`, nor of a copy, deep or pickled.

    # Attributes

    dtype : `Optional[str]`
        See `prepare`.
    training_dtype : `Optional[str]`
        The same while gradients are wanted; `"bfloat16"` alone, see `trained_linear`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dtype: Optional[str] = None
        self.training_dtype: Optional[str] = None
        self._products: dict[int, _Prepared] = {}  # by the parameter's id

    def product(
        self,
        parameter: torch.Tensor,
        convert: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.detach,
    ) -> Product:
        """
        # Parameters

        parameter : `torch.Tensor`
            What the weight is made of.
        convert : `Callable[[torch.Tensor], torch.Tensor]`
            From the parameter to the weight, shape `(output_dim, input_dim)`.

        # Returns

        `Product`
        """
        state = (parameter._version, parameter.data_ptr(), self.dtype)
        known = self._products.get(id(parameter))
        if known is None or known.state != state or known.parameter() is not parameter:
            with torch.no_grad():
                product = prepare(convert(parameter.detach()), self.dtype)
            known = _Prepared(weakref.ref(parameter), state, product)
            self._products[id(parameter)] = known
        return known.product

    def forget_derived(self) -> None:
        """Frees what was made of the parameters; it is made again when needed."""
        self._products.clear()

    def train(self, mode: bool = True) -> "ProductModule":
        """
        Also forgets the prepared weights: parameters changed by way of `.data`, as AllenNLP's
        moving average does it before and after an evaluation, show no sign of it.
        """
        self.forget_derived()
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_products": {}}

    def _apply(self, fn: Any, recurse: bool = True) -> "ProductModule":
        """`.to()` puts new values into old parameters."""
        self.forget_derived()
        return super()._apply(fn, recurse)
