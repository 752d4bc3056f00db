"""
Time that our ELMo and AllenNLP's take for one sentence, and our training steps take, while other
processes use the cores.

    python -m benchmarks.noisy_neighbours

On a busy machine, a thread that spins while it waits may take the core of the thread that it waits
for. PyTorch reads its thread settings when it is imported, so AllenNLP's ELMo runs in a process of
its own, with PyTorch's defaults, and ours in another, with this package's settings.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.processes import in_process

# AllenNLP's ELMo and ours, on one sentence; steps that train ours.
STOCK, OURS = ("stock",), ("float32", "int8", "fine-tuning step", "pretraining step")
CANDIDATES = (*STOCK, *OURS)
# Busy processes of others.
LOADS = ("quiet", "one busy process", "one a core")
# Number of runs, enough to meet the scheduler's worst case.
RUNS = 10
WARM_UP_RUNS = 2


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


def run(files: tuple[str, str], threads: int, loads: tuple[str, ...] = LOADS) -> dict[str, Any]:
    """Return seconds in a nested dictionary: by load, by candidate, by `median` or `worst`."""
    counts = {"quiet": 0, "one busy process": 1, "one a core": len(os.sched_getaffinity(0))}
    found: dict[str, Any] = {}
    for load in loads:
        with busy_processes(counts[load]):
            times: dict[str, list[float]] = {}
            for each in (STOCK, OURS):
                times.update(in_process("noisy_neighbours", *files, RUNS, *each, threads=threads))
        found[load] = {
            which: {"median": statistics.median(one), "worst": max(one)}
            for which, one in times.items()
        }
    return found


def rows(found: dict[str, Any]) -> list[list[str]]:
    header = ["", *(f"{which}, median (worst), s" for which in CANDIDATES)]
    cells = [
        [name, *(f"{one[c]['median']:.3f} ({one[c]['worst']:.3f})" for c in CANDIDATES)]
        for name, one in found.items()
    ]
    return [header, *cells]


def _child(options: str, weights: str, runs: str, *candidates: str) -> None:
    if candidates != STOCK:
        import elmo_plugin  # noqa: F401 (before torch, so that its waiting threads sleep soon)
    found = {}
    for which in candidates:
        work = _work(which, (options, weights))
        times = []
        for _ in range(WARM_UP_RUNS + int(runs)):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        found[which] = times[WARM_UP_RUNS:]
    print(json.dumps(found))


def _work(which: str, files: tuple[str, str]) -> Callable[[], Any]:
    from benchmarks import fine_tuning, inference, pretraining
    from benchmarks.workload import Sentences

    if which == "fine-tuning step":
        tagger = fine_tuning.Tagger(fine_tuning.Elmo, files)
        ids = Sentences().batch(fine_tuning.BATCH_SIZE)

        def step() -> None:
            tagger.optimizer.zero_grad()
            tagger.passes(ids)
            tagger.optimizer.step()

        return step
    if which == "pretraining step":
        sizes = pretraining.BATCH_SIZE, pretraining.NUM_STEPS, pretraining.NUM_WORDS
        model, pair = pretraining.model(autograd=False), pretraining.batch_of(Sentences(), *sizes)
        return lambda: pretraining.step(model, pair)
    elmo, batch = inference.elmo_of(which, files), Sentences().batch(1)
    return lambda: inference.mix(elmo, batch)


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
