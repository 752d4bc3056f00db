"""A frozen LSTM layer on a CPU, all of its steps in C++: what it is given, and whether it works."""

import functools
import threading
from collections.abc import Sequence
from typing import Any

import torch

from elmo_plugin.bilm.kernels import compiled, int8, reference
from elmo_plugin.bilm.kernels.int8_linear import Int8Linear, in_integers
from elmo_plugin.bilm.kernels.int16_linear import Int16Linear, in_int16
from elmo_plugin.bilm.kernels.interface import LstmWeights
from elmo_plugin.bilm.kernels.large_pages import on_large_pages
from elmo_plugin.bilm.kernels.lstm_inference import FrozenLstm, PlainLstm
from elmo_plugin.bilm.kernels.prepacked_linear import LinearKernel
from elmo_plugin.bilm.kernels.trial import passes

# As in `panels.h`; numbers of the other types share a lane of 32 bits, as in `packed_panels.h`.
COLUMNS = 32
SHARING_A_LANE = (torch.bfloat16, torch.int8, torch.int16)
# Rows of a weight that are converted at a time: what remains of their copies adds to the peak.
ROWS_AT_ONCE = 64 * COLUMNS
# The trial's largest error that is rounding; where rows are rounded, too, that of a number between
# two others, a 127th part, or of 16 bits.
TOLERANCE = 1e-5
ROUNDED_TOLERANCE = {torch.bfloat16: 2e-2, torch.int8: 2e-2, torch.int16: 1e-4}


# Each thread's place for products, kept: pages that come anew cost more than the products' tenth.
_kept = threading.local()


class PanelLinear(LinearKernel):
    """
    Products of inputs by `lstm_layer.cpp`, in the shape in which its steps read them best. They
    last until a thread's next ones.

    # Parameters

    weight : `torch.Tensor`
        Shape `(output_dim, input_dim)`; in float32 it is used as it lies.
    dtype : `torch.dtype`
        As in `CompiledLstm`.
    """

    def __init__(self, weight: torch.Tensor, dtype: torch.dtype) -> None:
        exact = dtype == torch.float32
        super().__init__(weight.contiguous() if exact else in_panels(weight, dtype))

    def __call__(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Shape `(num_rows, input_dim)` to `(num_rows, output_dim / 32, 32)`."""
        assert bias is not None
        size = len(rows) * len(bias)
        place: torch.Tensor | None = getattr(_kept, "products", None)
        if place is None or len(place) < size:
            place = _kept.products = torch.empty(size, dtype=torch.float32, device="cpu")
        products = place[:size].view(-1, len(rows), COLUMNS)
        compiled.input_products(rows.contiguous(), self.weight, bias, products)
        return products.transpose(0, 1)


class CompiledLstm(FrozenLstm):
    """
    `FrozenLstm` by `lstm_layer.cpp`.

    # Parameters

    weights : `LstmWeights`
        Of float32, on a CPU.
    dtype : `torch.dtype`
        `torch.float32`, or `torch.float16` for weights in half precision; arithmetic is in float32.
        `torch.bfloat16`, `torch.int8` and `torch.int16` for products of rows in this type, too,
        added up in float32 or whole; integers as `Int8Linear` and `Int16Linear` have them.
    input_product_elements : `int`
        As in `FrozenLstm`.
    """

    def __init__(
        self, weights: LstmWeights, dtype: torch.dtype, input_product_elements: int
    ) -> None:
        def prepack(weight: torch.Tensor, many_rows: bool) -> LinearKernel:
            return PanelLinear(weight, dtype)

        super().__init__(weights, prepack, 1, input_product_elements)
        self._state, self._projection = (
            in_panels(weight.detach(), dtype) for weight in (weights.state, weights.projection)
        )

    def _run(
        self,
        inputs: torch.Tensor,
        batch_sizes: Sequence[int],
        hidden: torch.Tensor,
        cell: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden, cell = (
            one.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
            for one in (hidden, cell)
        )
        outputs = hidden.new_empty(len(inputs), hidden.shape[1])
        start = 0
        for products, sizes in self._input_products(inputs, batch_sizes):
            found = outputs[start : start + len(products)]
            compiled.frozen_layer(
                products, self._state, self._projection, hidden, cell, found, sizes,
                self._cell_clip, self._projection_clip,
            )  # fmt: skip
            start += len(products)
        return outputs, hidden, cell


def in_panels(weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """
    A weight of float32, shape `(output_dim, input_dim)`, as panels of 32 of its rows in `dtype`,
    shape `(output_dim / 32, input_dim, 32)`; in `torch.bfloat16` with two inputs' numbers together.
    So in `torch.int16`, and in `torch.int8` with four, unsigned; these have their scales' bytes
    behind each panel, shapes `(output_dim / 32, 32 * (input_dim + 2))` and
    `(output_dim / 32, 32 * (input_dim + 4))`, the latter in `torch.uint8`.
    """
    if dtype == torch.float32:
        panels = on_large_pages((len(weight) // COLUMNS, weight.shape[1], COLUMNS), dtype)
        compiled.lay_out(weight.contiguous(), panels)
        return panels
    one = _converted(weight[:COLUMNS], dtype)
    panels = on_large_pages((len(weight) // COLUMNS, *one.shape[1:]), one.dtype)
    places = panels.split(ROWS_AT_ONCE // COLUMNS)
    for place, rows in zip(places, weight.split(ROWS_AT_ONCE), strict=True):
        place.copy_(_converted(rows, dtype))
    return panels


def _converted(rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`in_panels` of some of a weight's rows, by way of several copies."""
    scales = None
    if dtype == torch.int16:
        numbers, scales = in_int16(rows)
    elif dtype == torch.int8:
        integers, scales = in_integers(rows)
        numbers = integers.add_(int8.ZERO).to(torch.uint8)
    else:
        largest = torch.finfo(dtype).max
        numbers = rows.clamp(-largest, largest).to(dtype)
    if dtype not in SHARING_A_LANE:
        return numbers.unflatten(0, (-1, COLUMNS)).transpose(1, 2)
    # What shares a lane moves as one number.
    lanes = numbers.contiguous().view(torch.int32)
    panels = lanes.unflatten(0, (-1, COLUMNS)).transpose(1, 2)
    if scales is None:
        return panels.contiguous().view(dtype).view(len(panels), -1, COLUMNS)
    behind = scales.view(-1, 1, COLUMNS).view(torch.int32)
    return torch.cat([panels, behind], dim=1).flatten(1).view(numbers.dtype)


def usable(weights: LstmWeights, dtype: torch.dtype) -> bool:
    """
    # Parameters

    weights : `LstmWeights`
    dtype : `torch.dtype`
        See `CompiledLstm`.

    # Returns

    `bool`
        Whether these weights can run so: where there is a compiler and what it makes works.
    """
    bias, projection = weights.bias, weights.projection
    return (
        bias.device.type == "cpu"
        and bias.dtype == torch.float32
        and all(size % COLUMNS == 0 for size in (*projection.shape, weights.input.shape[1]))
        and compiled.compiler() is not None
        and works(dtype)
    )


@functools.cache
def works(dtype: torch.dtype) -> bool:
    """Whether the layer can be compiled and gives the right numbers; tried once, see `usable`."""
    return passes(
        lambda: _trial(dtype),
        f"the frozen LSTM layer in C++ is not used with weights in {dtype}",
    )


def _trial(dtype: torch.dtype) -> list[str]:
    """Names of what differs from the definition's, of sizes that are no multiples of anything."""
    generator = torch.Generator().manual_seed(0)
    batch_sizes, cell_size, dim = [27, 14, 13, 1], 17 * COLUMNS, 8 * COLUMNS

    def random(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return scale * torch.randn(shape, generator=generator, device="cpu")

    # Tensors made in inference mode would stay so.
    with torch.inference_mode(False), torch.no_grad():
        shapes = (4 * cell_size, dim), (4 * cell_size, dim), (dim, cell_size)
        inputs, state, projection = (random(*shape, scale=0.05) for shape in shapes)
        weights = LstmWeights(inputs, state, random(4 * cell_size), projection, 0.8, 0.9)
        start = random(sum(batch_sizes), dim), batch_sizes, random(27, dim), random(27, cell_size)
        # A few steps at a time.
        layer = CompiledLstm(weights, dtype, 30 * 4 * cell_size)
        found = layer(*start)
        tolerance = ROUNDED_TOLERANCE.get(dtype, TOLERANCE)
        defined = with_rounded_rows if dtype in ROUNDED_TOLERANCE else _in_double
        expected = defined(weights, dtype, *start)
    results = "outputs", "hidden states", "cells"
    return [
        name
        for name, one, exact in zip(results, found, expected, strict=True)
        if not torch.allclose(one.double(), exact.double(), rtol=tolerance, atol=tolerance)
    ]


def _in_double(
    weights: LstmWeights, dtype: torch.dtype, *start: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What weights in this type give, exactly."""
    rounded = {
        name: getattr(weights, name).to(dtype).double() for name in ("input", "state", "projection")
    }
    inputs, batch_sizes, hidden, cell = start
    return reference.lstm_layer(
        inputs.double(), batch_sizes, hidden.double(), cell.double(),
        weights._replace(bias=weights.bias.double(), **rounded),
    )  # fmt: skip


class _RoundedLinear(LinearKernel):
    """Products of rows and a weight that are rounded to bfloat16, in float32."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__(weight.bfloat16().float())

    def __call__(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return super().__call__(rows.bfloat16().float(), bias)

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        super().add_to(sums, rows.bfloat16().float())


def with_rounded_rows(
    weights: LstmWeights, dtype: torch.dtype, *start: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same where rows of each product are rounded, too."""

    def prepack(weight: torch.Tensor, many_rows: bool) -> LinearKernel:
        if dtype == torch.bfloat16:
            return _RoundedLinear(weight)
        if dtype == torch.int16:
            return Int16Linear(weight)
        return Int8Linear(weight, int8.FloatInt8Kernel, int8.FloatInt8Kernel, 0)

    return PlainLstm(weights, prepack, 1, 1 << 20)(*start)
