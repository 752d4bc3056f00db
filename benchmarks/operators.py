"""
Where the time of a batch goes, by kind of operator: what bounds a case whose share of the machine's
limit is small.
"""

import time
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile

# Parts of PyTorch's names of operators; the first kind with one of them counts.
KINDS = {
    "products": ("linear", "mm", "matmul", "conv", "dot"),
    "moving": ("copy", "cat", "index", "stack", "gather", "scatter", "embedding", "fill", "zero"),
    "elementwise": ("sigmoid", "tanh", "mul", "add", "sub", "div", "clamp", "relu", "max", "min",
                    "abs", "round", "sum", "exp", "neg"),
}  # fmt: skip


def shares(work: Callable[[], Any]) -> dict[str, float]:
    """
    Of the time of one run: of each of `KINDS`, and of what is `between` operators (Python, their
    start and choice). Profiling itself adds to the last.
    """
    work()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        begun = time.perf_counter()
        work()
        whole = time.perf_counter() - begun
    found = dict.fromkeys((*KINDS, "other operators"), 0.0)
    for event in profiler.key_averages():
        found[kind(event.key)] += 1e-6 * event.self_cpu_time_total / whole
    return {**found, "between": max(0.0, 1.0 - sum(found.values()))}


def kind(operator: str) -> str:
    """Of an operator by its name; of what PyTorch's profiler says of itself, too."""
    name = operator.split("::")[-1].lower()
    return next(
        (kind for kind, parts in KINDS.items() if any(part in name for part in parts)),
        "other operators",
    )
