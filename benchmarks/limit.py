"""
Lower bound of the time that a biLM can take on this machine (a roofline model).

The bound of a computation is the larger of two times. One is the time of its matrix products, at
the highest throughput of PyTorch or this package for large matrices in that precision. The
other is the time to read the weights in each LSTM step, measured by reading a buffer of their size
once per step. Elementwise operations are not counted.

The bound assumes that products and reading overlap. No program reaches it: the input projections
are products that run before the LSTM steps, so they overlap no reading. `Machine.limit` also
returns `in_turn`, without overlap.

The throughput of products is measured once. Reading is timed again for each bound, in the same
round as the computation. Its speed can change within seconds if other programs use the cache.
"""

import functools
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from benchmarks.rounds import Clock, seconds
from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.kernels.compiled import CompiledLinear, CompiledLstm
from elmo_plugin.bilm.kernels.interface import Affine, LstmWeights
from elmo_plugin.bilm.kernels.quantized import Int8Linear
from elmo_plugin.bilm.model.options import ElmoOptions

# Rows, input width and output width of the products to measure: the input projection of the biLM
# `original`, and a square one. Outputs are so small that the allocator reuses their memory.
SHAPES = ((256, 512, 16384), (1024, 1024, 1024))
TRIES = 5
# Bytes of an LSTM's weights that fit in a core's private cache, its `projection_dim` and steps.
OWN_BYTES, OWN_DIM, OWN_STEPS = 5 * 256 * 128 * 4, 256, 200
# Bytes per element of a weight. float16 weights are converted to float32 for products.
ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}

Product = Callable[[], Any]


class Work(NamedTuple):
    """
    Operations and weight reads of a computation.

    `flops` counts the operations of all matrix products, `step_flops` only those inside LSTM steps.
    A step of one layer and direction reads `step_elements` weights; `step_reads` is the
    number of such steps. `other_elements` is the number of weights that are read only once.
    """

    flops: float
    step_flops: float
    step_elements: int
    step_reads: int
    other_elements: int


class Machine:
    """Measured rates of this machine, for matrix products and for reading memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.gflops: dict[str, dict[str, float]] = {}
        self._reading_rates: dict[int, list[float]] = {}

    def measure(self) -> None:
        """Measure GFLOP/s of matrix products, for each dtype and each library that supports it."""
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
        """Return the highest GFLOP/s that any library reaches in this dtype."""
        if not self.gflops:
            self.measure()
        return max(self.gflops["float32" if dtype == "float16" else dtype].values())

    def reading_seconds(self, num_bytes: int, times: int) -> float:
        """Return the time, in seconds, of `times` passes over a buffer of `num_bytes`."""
        numbers = torch.ones(max(1, num_bytes // 4))
        numbers.sum()
        found = seconds(lambda: [numbers.sum() for _ in range(times)], self._clock)
        self._reading_rates.setdefault(num_bytes, []).append(4e-9 * len(numbers) * times / found)
        return found

    def own_cache_rates(self) -> dict[str, float]:
        """
        Return the GB/s at which the C++ LSTM steps of one sentence read weights from a core's
        private cache, by dtype. If each core's share of the machine's reading rate is as high, then
        arithmetic or conversion limits a step, not reading.
        """
        threads, found = torch.get_num_threads(), {}
        torch.set_num_threads(1)
        for dtype, item_bytes in ITEM_BYTES.items():
            number_format = "int16" if dtype == "float16" else dtype
            if number_format not in library.formats():
                continue
            cells = OWN_BYTES // (5 * OWN_DIM * item_bytes)
            shapes = (4 * cells, 32), (4 * cells, OWN_DIM), (4 * cells,), (OWN_DIM, cells)
            weights = LstmWeights(*(torch.randn(shape) for shape in shapes), 3.0, 3.0)
            steps = functools.partial(
                CompiledLstm(weights, number_format),
                *(torch.zeros(OWN_STEPS, 32), [1] * OWN_STEPS),
                *(torch.zeros(1, OWN_DIM), torch.zeros(1, cells)),
            )
            steps()
            best = min(seconds(steps, self._clock) for _ in range(4 * TRIES))
            found[dtype] = 1e-9 * OWN_BYTES * OWN_STEPS / best
        torch.set_num_threads(threads)
        return found

    @property
    def gigabytes(self) -> dict[int, tuple[float, float, float]]:
        """Median, smallest and largest GB/s of `reading_seconds`, by number of bytes."""
        return {
            size: (statistics.median(rates), min(rates), max(rates))
            for size, rates in self._reading_rates.items()
        }

    def limit(self, work: Work, dtype: str) -> dict[str, float]:
        """
        Return seconds: `multiplying` for all products, `reading` for all weights, and the larger of
        the two as `limit`. `in_turn` is the time of the products outside LSTM steps, plus the
        larger of `reading` and the time of the products in steps.
        """
        multiplying = 1e-9 * work.flops / self.best_gflops(dtype)
        in_steps = 1e-9 * work.step_flops / self.best_gflops(dtype)
        # Convert the weights that are read once to the number of steps that read as many weights.
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
    """Return the work of the LSTM layers in both directions, for sentences of these lengths."""
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
    Return the work of the token layer if no token vector is cached. Each distinct token is computed
    once. The convolutions of a token have a position for each byte and for two boundary marks.
    """
    width = options.num_filters
    per_place = sum(size * number * options.char_embedding_dim for size, number in options.filters)
    dense = options.num_highways * 2 * width**2 + width * options.projection_dim
    distinct = set(tokens)
    places = sum(min(len(token.encode()), options.num_characters - 2) + 2 for token in distinct)
    flops = 2.0 * (places * per_place + len(distinct) * dense)
    return Work(flops, 0.0, 0, 0, per_place + dense)


def both(one: Work, other: Work) -> Work:
    """Return the total work of the LSTM layers (`one`) and the token layer (`other`)."""
    return one._replace(
        flops=one.flops + other.flops,
        other_elements=one.other_elements + other.other_elements,
    )


def _float32(rows: torch.Tensor, weight: torch.Tensor) -> Iterator[tuple[str, Product]]:
    transposed = weight.t().contiguous()
    yield "MKL", lambda: torch.mm(rows, transposed)
    yield from _library(rows, weight, "float32")


def _bfloat16(rows: torch.Tensor, weight: torch.Tensor) -> Iterator[tuple[str, Product]]:
    rounded_rows, rounded_weight = rows.bfloat16(), weight.bfloat16()
    yield "torch.mm", lambda: torch.mm(rounded_rows, rounded_weight.t())
    yield from _library(rows, weight, "bfloat16")


def _int8(rows: torch.Tensor, weight: torch.Tensor) -> Iterator[tuple[str, Product]]:
    yield from _library(rows, weight, "int8")
    linear = Int8Linear(weight)
    yield "PyTorch, as float32", lambda: linear(rows)


def _library(
    rows: torch.Tensor, weight: torch.Tensor, number_format: str
) -> Iterator[tuple[str, Product]]:
    if number_format in library.formats():
        linear = CompiledLinear(Affine(weight, torch.zeros(len(weight))), number_format)
        yield "ours", lambda: linear(rows)
