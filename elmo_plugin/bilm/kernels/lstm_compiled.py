"""A frozen LSTM layer on a CPU, all of its steps in C++: what it is given, and whether it works."""

import functools
import threading
from collections.abc import Sequence

import torch

from elmo_plugin.bilm.kernels import compiled, reference
from elmo_plugin.bilm.kernels.interface import LstmWeights
from elmo_plugin.bilm.kernels.lstm_inference import FrozenLstm
from elmo_plugin.bilm.kernels.prepacked_linear import LinearKernel
from elmo_plugin.bilm.kernels.trial import passes

# As in `lstm_layer.cpp`.
COLUMNS = 32
# The trial's largest error that is rounding.
TOLERANCE = 1e-5


# Each thread's place for products, kept: pages that come anew cost more than the products' tenth.
_kept = threading.local()


class PanelLinear(LinearKernel):
    """
    Products of inputs by `lstm_layer.cpp`, in the shape in which its steps read them best. They
    last until a thread's next ones.

    # Parameters

    weight : `torch.Tensor`
        Shape `(output_dim, input_dim)`.
    dtype : `torch.dtype`
        As in `CompiledLstm`.
    """

    def __init__(self, weight: torch.Tensor, dtype: torch.dtype) -> None:
        super().__init__(in_panels(weight, dtype))

    def __call__(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Shape `(num_rows, input_dim)` to `(num_rows, output_dim / 32, 32)`."""
        assert bias is not None
        size = len(rows) * len(bias)
        place: torch.Tensor | None = getattr(_kept, "products", None)
        if place is None or len(place) < size:
            place = _kept.products = torch.empty(size)
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
        with torch.no_grad():
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
    A weight of shape `(output_dim, input_dim)` in panels of 32 of its rows, shape
    `(output_dim / 32, input_dim, 32)`.
    """
    largest = torch.finfo(dtype).max
    panels = weight.clamp(-largest, largest).view(-1, COLUMNS, weight.shape[1])
    return panels.transpose(1, 2).to(dtype).contiguous()


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
    batch_sizes, cell_size, dim = [27, 14, 13, 1], 9 * COLUMNS, 2 * COLUMNS

    def random(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return scale * torch.randn(shape, generator=generator, device="cpu")

    # Tensors made in inference mode would stay so.
    with torch.inference_mode(False), torch.no_grad():
        shapes = (4 * cell_size, dim), (4 * cell_size, dim), (dim, cell_size)
        inputs, state, projection = (
            random(*shape, scale=0.2).to(dtype).float() for shape in shapes
        )
        weights = LstmWeights(inputs, state, random(4 * cell_size), projection, 0.8, 0.9)
        start = random(sum(batch_sizes), dim), batch_sizes, random(27, dim), random(27, cell_size)
        # A few steps at a time.
        layer = CompiledLstm(weights, dtype, 30 * 4 * cell_size)
        found = layer(*start)
        names = ("input", "state", "bias", "projection")
        double = weights._replace(**{name: getattr(weights, name).double() for name in names})
        inputs, _, hidden, cell = start
        expected = reference.lstm_layer(
            inputs.double(), batch_sizes, hidden.double(), cell.double(), double
        )
    results = "outputs", "hidden states", "cells"
    return [
        name
        for name, one, exact in zip(results, found, expected, strict=True)
        if not torch.allclose(one.double(), exact, rtol=TOLERANCE, atol=TOLERANCE)
    ]
