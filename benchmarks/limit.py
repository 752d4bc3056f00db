"""
What this machine could do at best: the yardstick beside the ratio to AllenNLP.

A case's limit is the larger of two times. One is its multiplications at the best rate of a product
that any library at hand reaches here in that precision (MKL, oneDNN, FBGEMM; a large weight, many
rows). The other is the reading of each step's weights at the rate at which this machine reads as
many bytes again and again. What is elementwise is not counted.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from benchmarks.rounds import Clock, seconds
from elmo_plugin.bilm.kernels import int8, prepacked_linear
from elmo_plugin.bilm.model.options import ElmoOptions

# Rows, inputs, outputs: some of the Original's input products, and a square one. What comes out is
# small enough for the allocator to keep.
SHAPES = ((256, 512, 16384), (1024, 1024, 1024))
TRIES = 5
# Bytes of an element of a weight. In float16 what is multiplied is float32.
ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}

Product = Callable[[], Any]


class Work(NamedTuple):
    """
    `flops`: of all products. `step_elements`: of the weights that a step of one layer and direction
    reads. `step_reads`: how often that is. `other_elements`: of weights that are read once.
    """

    flops: float
    step_elements: int
    step_reads: int
    other_elements: int


class Machine:
    """
    The rates of the machine, measured when first asked for.

    # Parameters

    clock : `Clock`
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.gflops: dict[str, dict[str, float]] = {}
        self.gigabytes: dict[int, float] = {}

    def measure(self) -> None:
        """GFLOP/s of products, by precision and library; what a library cannot do is left out."""
        for dtype, products in (("float32", _float32), ("bfloat16", _bfloat16), ("int8", _int8)):
            rates: dict[str, float] = {}
            for num_rows, input_dim, output_dim in SHAPES:
                rows, weight = torch.randn(num_rows, input_dim), torch.randn(output_dim, input_dim)
                for name, product in products(rows, weight):
                    try:
                        product()
                    except (AttributeError, RuntimeError, NotImplementedError):
                        continue
                    best = min(seconds(product, self._clock) for _ in range(TRIES))
                    rate = 2e-9 * num_rows * input_dim * output_dim / best
                    rates[name] = max(rate, rates.get(name, 0.0))
            self.gflops[dtype] = rates

    def best_gflops(self, dtype: str) -> float:
        """Of all libraries."""
        if not self.gflops:
            self.measure()
        return max(self.gflops["float32" if dtype == "float16" else dtype].values())

    def reading_rate(self, num_bytes: int) -> float:
        """GB/s of reading as many bytes again and again."""
        if num_bytes not in self.gigabytes:
            numbers = torch.ones(max(1, num_bytes // 4))
            numbers.sum()
            best = min(seconds(numbers.sum, self._clock) for _ in range(4 * TRIES))
            self.gigabytes[num_bytes] = 4e-9 * len(numbers) / best
        return self.gigabytes[num_bytes]

    def limit(self, work: Work, dtype: str) -> dict[str, float]:
        """Seconds: `multiplying`, `reading`, and the larger of both, `limit`."""
        multiplying = 1e-9 * work.flops / self.best_gflops(dtype)
        step_bytes = ITEM_BYTES[dtype] * work.step_elements
        num_bytes = step_bytes * work.step_reads + ITEM_BYTES[dtype] * work.other_elements
        reading = 1e-9 * num_bytes / self.reading_rate(step_bytes)
        return {
            "multiplying": multiplying,
            "reading": reading,
            "limit": max(multiplying, reading),
        }


def lstm_work(options: ElmoOptions, lengths: Sequence[int]) -> Work:
    """Both directions' layers over sentences of so many tokens, boundaries counted."""
    cells = 2 * options.num_layers
    products = 4 * options.cell_size * options.projection_dim
    step_elements = products + options.cell_size * options.projection_dim
    return Work(
        2.0 * cells * sum(lengths) * (products + step_elements),
        step_elements,
        cells * max(lengths),
        cells * products,
    )


def token_work(options: ElmoOptions, tokens: Sequence[str]) -> Work:
    """
    The token layer over tokens never seen before: each distinct one once, filters at as many
    places as the word has characters, its two marks counted.
    """
    width = options.num_filters
    per_place = sum(size * number * options.char_embedding_dim for size, number in options.filters)
    dense = options.num_highways * 2 * width**2 + width * options.projection_dim
    distinct = set(tokens)
    places = sum(min(len(token.encode()), options.num_characters - 2) + 2 for token in distinct)
    flops = 2.0 * (places * per_place + len(distinct) * dense)
    return Work(flops, 0, 0, per_place + dense)


def both(one: Work, other: Work) -> Work:
    """One after the other."""
    return one._replace(
        flops=one.flops + other.flops,
        other_elements=one.other_elements + other.other_elements,
    )


def _float32(rows: torch.Tensor, weight: torch.Tensor) -> Iterator[tuple[str, Product]]:
    transposed = weight.t().contiguous()
    yield "MKL", lambda: torch.mm(rows, transposed)
    packed: list[torch.Tensor] = []

    def mkl_prepacked() -> torch.Tensor:
        if not packed:
            packed.append(torch.ops.mkl._mkl_reorder_linear_weight(weight, len(rows)))
        return torch.ops.mkl._mkl_linear(rows, packed[0], weight, None, len(rows))

    yield "MKL, prepacked", mkl_prepacked
    yield "oneDNN, prepacked", _onednn(rows, weight)


def _bfloat16(rows: torch.Tensor, weight: torch.Tensor) -> Iterator[tuple[str, Product]]:
    rows, weight = rows.bfloat16(), weight.bfloat16()
    yield "torch.mm", lambda: torch.mm(rows, weight.t())
    yield "oneDNN, prepacked", _onednn(rows, weight)


def _onednn(rows: torch.Tensor, weight: torch.Tensor) -> Product:
    packed: list[torch.Tensor] = []

    def product() -> torch.Tensor:
        if not packed:
            packed.append(prepacked_linear.prepack(weight))
        return prepacked_linear.onednn_linear(rows, packed[0], None)

    return product


def _int8(rows: torch.Tensor, weight: torch.Tensor) -> Iterator[tuple[str, Product]]:
    for name, kind in (("FBGEMM", int8.FbgemmInt8Kernel), ("oneDNN", int8.OneDnnInt8Kernel)):
        if int8.works(kind):
            kernel = kind(weight.mul(20).round(), torch.ones(len(weight)))
            # What they make of the rows first is part of the product.
            yield name, lambda kernel=kernel: kernel(rows.clone())
