"""
How many rows a product must have so that what a row gives does not depend, to the last bit, on how
many rows are beside it. Libraries add up in another order for other numbers of rows; which ones is
tried out, once a shape. What is tried is the same in every run.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import tuning

Product = Callable[[torch.Tensor], torch.Tensor]

# By kernel, output_dim, input_dim and threads.
_least_rows: dict[tuple[str, int, int, int], int] = {}
_steady: dict[tuple[str, int, int, int], tuple[int, ...]] = {}


def pad_rows(rows: torch.Tensor, count: int, value: float = 0.0) -> torch.Tensor:
    """With so many more rows below; the rows themselves where that is not above zero."""
    return functional.pad(rows, (0, 0, 0, count), value=value) if count > 0 else rows


def least_rows(kernel: str, product: Product, output_dim: int, input_dim: int) -> int:
    """
    From how many rows on a kernel adds up a row of a float32 product in the same order.

    # Parameters

    kernel : `str`
        Its name.
    product : `Product`
        From rows, shape `(num_rows, input_dim)`, to `(num_rows, output_dim)`.
    output_dim, input_dim : `int`
        The weight's shape.
    """
    key = kernel, output_dim, input_dim, torch.get_num_threads()
    if key not in _least_rows:
        rows = _rows(2 * tuning.TRIED_ROWS[-1], input_dim)
        together = product(rows)
        # The first that differs, from above.
        _least_rows[key] = 1 + next(
            (
                count
                for count in reversed(tuning.TRIED_ROWS)
                if not torch.equal(product(rows[:count]), together[:count])
            ),
            0,
        )
    return _least_rows[key]


def steady_rows(
    kernel: str, prepack: Callable[[torch.Tensor], Product], output_dim: int, input_dim: int
) -> tuple[int, ...]:
    """
    The numbers of rows among `tuning.STEADY_ROWS`, the last one and others, with which a kernel
    adds up a row in the same order; none where it does with any.

    It is tried on sums that cancel, of which nothing but the order's rounding is left: where
    products are rounded to bfloat16 other sums would seldom show it.

    # Parameters

    kernel, output_dim, input_dim
        As in `least_rows`.
    prepack : `Callable[[torch.Tensor], Product]`
        From a weight to its product.
    """
    key = kernel, output_dim, input_dim, torch.get_num_threads()
    if key not in _steady:
        most = tuning.STEADY_ROWS[-1]
        half = _rows(most, input_dim // 2)
        rows = functional.pad(torch.cat([half, half], dim=1), (0, input_dim % 2))
        # Cheap to make, since it may be large: each output has other numbers.
        first = _rows(1, input_dim // 2) * torch.linspace(0.5, 1.5, output_dim).unsqueeze(1)
        weight = functional.pad(torch.cat([first, -first], dim=1), (0, input_dim % 2))
        product = prepack(weight)
        together = product(rows)
        steady = tuple(
            count
            for count in tuning.STEADY_ROWS
            if torch.equal(product(rows[:count]), together[:count])
        )
        if steady == tuning.STEADY_ROWS:
            many = product(rows.repeat(tuning.MANY_STEADY_ROWS // most, 1))
            steady = () if torch.equal(many[:most], together) else steady
        _steady[key] = steady
    return _steady[key]


def in_steady_rows(product: Product, rows: torch.Tensor, steady: tuple[int, ...]) -> torch.Tensor:
    """The product, of as many rows at a time as one of `steady`, zeros below; if any, at once."""
    if not steady:
        return product(rows)

    def padded(part: torch.Tensor) -> torch.Tensor:
        count = next(count for count in steady if count >= len(part))
        return product(pad_rows(part, count - len(part)))[: len(part)]

    if len(rows) <= steady[-1]:
        return padded(rows)
    return torch.cat([padded(part) for part in rows.split(steady[-1])])


def _rows(num_rows: int, dim: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(num_rows, dim, generator=generator, device="cpu")
