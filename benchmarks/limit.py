"""
What this machine could do at best: the yardstick beside the ratio to AllenNLP.

A case's limit is the larger of two times. One is its multiplications at the best rate of a product
that any library at hand reaches here in that precision (MKL, oneDNN, FBGEMM; a large weight, many
rows). The other is the reading of each step's weights: as many bytes are read as often, one after
the other, and that is timed. What is elementwise is not counted.

Inputs' products come before the steps that read, and the one does not go on while the other does.
Both in turn take longer than the limit, and say which share of it can be had at most.

Rates of products are measured once. Reading is timed anew for each limit, so that it is of the same
moment as what it is compared with: a cache that other guests of the machine share gives twice as
much in one second as in another.
"""

import functools
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from benchmarks.rounds import Clock, seconds
from elmo_plugin.bilm.kernels import (
    compiled,
    int8,
    lstm_compiled,
    prepacked_linear,
    processors,
)
from elmo_plugin.bilm.model.options import ElmoOptions

# Rows, inputs, outputs: some of the Original's input products, and a square one. What comes out is
# small enough for the allocator to keep.
SHAPES = ((256, 512, 16384), (1024, 1024, 1024))
TRIES = 5
# Of the weights that a core keeps in its own cache, and of such a layer.
OWN_BYTES, OWN_DIM, OWN_STEPS = 5 * 256 * 128 * 4, 256, 200
# Bytes of an element of a weight. Libraries multiply float32 where weights are in half precision.
ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}

Product = Callable[[], Any]


class Work(NamedTuple):
    """
    `flops`: of all products. `step_flops`: of those within steps. `step_elements`: of the weights
    that a step of one layer and direction reads. `step_reads`: how often that is.
    `other_elements`: of weights that are read once.
    """

    flops: float
    step_flops: float
    step_elements: int
    step_reads: int
    other_elements: int


class Machine:
    """
    The rates of the machine.

    # Parameters

    clock : `Clock`
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.gflops: dict[str, dict[str, float]] = {}
        self._reading_rates: dict[int, list[float]] = {}

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

    def reading_seconds(self, num_bytes: int, times: int) -> float:
        """Of reading so many bytes so often, now."""
        numbers = torch.ones(max(1, num_bytes // 4))
        numbers.sum()
        found = seconds(lambda: [numbers.sum() for _ in range(times)], self._clock)
        self._reading_rates.setdefault(num_bytes, []).append(4e-9 * len(numbers) * times / found)
        return found

    def own_cache_rates(self) -> dict[str, float]:
        """
        GB/s at which steps of one sentence in C++ go through weights that lie in one core's own
        cache. Where these are no more than a core's share of the reading rate, it is arithmetic, or
        the widening of weights, that bounds a step. Types that do not run so are left out.
        """
        threads, found = torch.get_num_threads(), {}
        torch.set_num_threads(1)
        for dtype, item_bytes in ITEM_BYTES.items():
            torch_dtype = getattr(torch, processors.row().compiled_layers.get(dtype, dtype))
            if compiled.compiler() is None or not lstm_compiled.works(torch_dtype):
                continue
            cells = OWN_BYTES // (5 * OWN_DIM * item_bytes)
            panels = [
                lstm_compiled.in_panels(torch.randn(shape), torch_dtype)
                for shape in ((4 * cells, OWN_DIM), (OWN_DIM, cells))
            ]
            products = torch.zeros(4 * cells // 32, OWN_STEPS, 32).transpose(0, 1)
            hidden, cell = torch.zeros(1, OWN_DIM), torch.zeros(1, cells)
            outputs = torch.zeros(OWN_STEPS, OWN_DIM)
            steps = functools.partial(
                compiled.frozen_layer,
                *(products, *panels, hidden, cell, outputs, [1] * OWN_STEPS, 3.0, 3.0),
            )
            steps()
            best = min(seconds(steps, self._clock) for _ in range(4 * TRIES))
            found[dtype] = 1e-9 * OWN_BYTES * OWN_STEPS / best
        torch.set_num_threads(threads)
        return found

    @property
    def gigabytes(self) -> dict[int, tuple[float, float, float]]:
        """Of each number of bytes that was read: the median rate, the least and the most, GB/s."""
        return {
            size: (statistics.median(rates), min(rates), max(rates))
            for size, rates in self._reading_rates.items()
        }

    def limit(self, work: Work, dtype: str) -> dict[str, float]:
        """
        Seconds: `multiplying`, `reading`, the larger of both, `limit`, and `in_turn`: inputs'
        products, then the steps' products or reading.
        """
        multiplying = 1e-9 * work.flops / self.best_gflops(dtype)
        in_steps = 1e-9 * work.step_flops / self.best_gflops(dtype)
        # What is read once counts as so many more steps' weights.
        reads = work.step_reads + work.other_elements / work.step_elements
        step_bytes = ITEM_BYTES[dtype] * work.step_elements
        reading = self.reading_seconds(step_bytes, work.step_reads) * reads / work.step_reads
        return {
            "multiplying": multiplying,
            "reading": reading,
            "limit": max(multiplying, reading),
            "in_turn": multiplying - in_steps + max(in_steps, reading),
        }


def lstm_work(options: ElmoOptions, lengths: Sequence[int]) -> Work:
    """Both directions' layers over sentences of so many tokens, boundaries counted."""
    cells = 2 * options.num_layers
    products = 4 * options.cell_size * options.projection_dim
    step_elements = products + options.cell_size * options.projection_dim
    flops_of_one = 2.0 * cells * sum(lengths)
    return Work(
        flops_of_one * (products + step_elements),
        flops_of_one * step_elements,
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
    return Work(flops, 0.0, 0, 0, per_place + dense)


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
