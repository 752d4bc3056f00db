"""
Time that our ELMo and AllenNLP's take for one sentence while other processes use the cores.

    python -m benchmarks.noisy_neighbours

On a busy machine, a thread that spins while it waits may take the core of the thread that it waits
for. PyTorch reads its thread settings when it is imported, so each measurement runs in a new
process. Our ELMo runs with this package's settings, AllenNLP's with PyTorch's defaults.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.processes import in_process

CANDIDATES = ("stock", "float32", "int8")
# Number of runs on one sentence, enough to meet the scheduler's worst case.
RUNS = 10
WARM_UP_RUNS = 3


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Context manager in which `count` other processes each keep a core busy."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run(files: tuple[str, str], threads: int, runs: int = RUNS) -> dict[str, Any]:
    """
    Return seconds in a nested dictionary: by load, by candidate, and by `median` or `worst`. The
    loads are no busy process, one busy process, and one busy process per core.
    """
    cores = len(os.sched_getaffinity(0))
    found: dict[str, Any] = {}
    for name, count in (("quiet", 0), ("one busy process", 1), ("one a core", cores)):
        with busy_processes(count):
            found[name] = {which: _measure(which, files, threads, runs) for which in CANDIDATES}
    return found


def _measure(which: str, files: tuple[str, str], threads: int, runs: int) -> dict[str, float]:
    times = in_process("noisy_neighbours", which, *files, runs, threads=threads)
    return {"median": statistics.median(times), "worst": max(times)}


def rows(found: dict[str, Any]) -> list[list[str]]:
    header = ["", *(f"{which}, median (worst), s" for which in CANDIDATES)]
    cells = [
        [name, *(f"{one[c]['median']:.3f} ({one[c]['worst']:.3f})" for c in CANDIDATES)]
        for name, one in found.items()
    ]
    return [header, *cells]


def _child(which: str, options: str, weights: str, runs: str) -> None:
    if which != "stock":
        import elmo_plugin  # noqa: F401 (before torch, so that its waiting threads sleep soon)
    from benchmarks.inference import elmo_of, mix
    from benchmarks.workload import Sentences

    elmo = elmo_of(which, (options, weights))
    batch = Sentences().batch(1)
    times = []
    for _ in range(WARM_UP_RUNS + int(runs)):
        start = time.perf_counter()
        mix(elmo, batch)
        times.append(time.perf_counter() - start)
    print(json.dumps(times[WARM_UP_RUNS:]))


def main() -> None:
    if len(sys.argv) > 1:
        _child(*sys.argv[1:])
        return
    from benchmarks.workload import write_weights

    with tempfile.TemporaryDirectory() as folder:
        found = run(write_weights("original", Path(folder)), len(os.sched_getaffinity(0)))
    for row in rows(found):
        print(" | ".join(row))


if __name__ == "__main__":
    main()
