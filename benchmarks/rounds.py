"""
Timing of several candidates in alternating rounds. Each round also times a fixed product: it shows
whether other programs slow the machine down.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from elmo_plugin.bilm.kernels.backend import use_backend
from elmo_plugin.bilm.kernels.machine import model_name

# A round is repeated if `torch.mm` runs slower than its best rate by more than this fraction. There
# are at most as many repeats as rounds.
TOLERATED_DROP = 0.1

Clock = Callable[[], float]


def machine() -> dict[str, Any]:
    """Return processor, instruction set, number of threads, and versions of Python and PyTorch."""
    return {
        "processor": model_name(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
    }


def seconds(work: Callable[[], Any], clock: Clock = time.perf_counter) -> float:
    start = clock()
    work()
    return clock() - start


class MatrixRate:
    """Callable that returns the best GFLOP/s of four `torch.mm`, 1024x1024 by 1024x4096."""

    def __init__(
        self, clock: Clock, dtype: torch.dtype = torch.float32, device: str = "cpu"
    ) -> None:
        self._clock = clock
        self._left = torch.randn(1024, 1024).to(device, dtype)
        self._right = torch.randn(1024, 4096).to(device, dtype)
        self()

    def __call__(self) -> float:
        best = min(
            seconds(lambda: torch.mm(self._left, self._right), self._clock) for _ in range(4)
        )
        return 2e-9 * 1024 * 1024 * 4096 / best


def counted_flops(work: Callable[[], Any]) -> int:
    """Count the operations of all products in the plain definition of `work`."""
    with use_backend("reference"), FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def in_turn(
    candidates: Callable[[], dict[str, Callable[[], Any]]],
    rounds: int,
    clock: Clock,
    rate: MatrixRate | None = None,
) -> dict[str, Any]:
    """
    Time every candidate once in each round. Return a dictionary. Its entry `candidates` has, by
    name, the median `seconds` and the speedup over the first candidate: median `ratio`, `least` and
    `most`. Other entries have the rates of `torch.mm` and the numbers of rounds.

    `candidates` is called before each round and returns the functions to time, by name. Within a
    round, all get the same input. `rate` measures the machine's speed, by default its CPU's.
    """
    rate = rate or MatrixRate(clock)
    times: dict[str, list[float]] = {}
    rates: list[float] = []
    kept = repeated = 0
    best = rate()
    while kept < rounds:
        works = candidates()
        before = rate()
        found = {name: seconds(work, clock) for name, work in works.items()}
        after = rate()
        best = max(best, before, after)
        if min(before, after) < (1 - TOLERATED_DROP) * best and repeated < rounds:
            repeated += 1
            continue
        kept += 1
        rates += [before, after]
        for name, value in found.items():
            times.setdefault(name, []).append(value)
    reference = times[next(iter(times))]
    return {
        "torch.mm_gflops": {"median": statistics.median(rates), "least": min(rates)},
        "rounds": kept,
        "repeated_rounds": repeated,
        "candidates": {
            name: {
                "seconds": statistics.median(values),
                **_ratios([stock / ours for stock, ours in zip(reference, values)]),
            }
            for name, values in times.items()
        },
    }


def _ratios(ratios: list[float]) -> dict[str, float]:
    return {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
