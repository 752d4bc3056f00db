"""
Measure speed and memory of our biLM and of AllenNLP's, in alternating rounds.

    python -m benchmarks --quick        # under twelve minutes on two cores
    python -m benchmarks                # every shape, batch size and load

The command writes the measurements to `benchmarks/reports/DATE.json` and their tables to `DATE.md`.
It uses only the CPU. Nothing else should run on the machine. A round in which the machine slows
down is repeated. If the machine is slow all the time, only the rate of `torch.mm` shows it.
"""

import argparse
import datetime
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks import (
    extraction,
    fine_tuning,
    inference,
    memory,
    ner_epoch,
    noisy_neighbours,
    pretraining,
    startup,
)
from benchmarks.report import markdown, write
from benchmarks.rounds import MatrixRate, machine
from benchmarks.workload import write_weights

# Cases to measure: model size, batch size and number of rounds.
QUICK = [("original", 1, 5), ("original", 64, 3), ("small", 32, 5)]
FULL = [(shape, size, 7) for shape in ("original", "small") for size in (1, 8, 32, 64)]
FULL.insert(4, ("original", 256, 3))
# Number of lines to extract in the quick and in the full run, and of rounds of other cases.
LINES = 500, 20_000
ROUNDS = 3, 7
# Largest batch size for AllenNLP. A larger batch would take a minute and gigabytes of memory.
LARGEST_WITH_STOCK = 64


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.split("\n")[1]
    )
    parser.add_argument("--quick", action="store_true", help="the main cases, few rounds")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu: processor time, for one thread on a machine that others use",
    )
    parser.add_argument("--reports", type=Path, default=Path("benchmarks/reports"))
    return parser.parse_args()


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    cases, lines, rounds = (
        (QUICK, LINES[0], ROUNDS[0]) if options.quick else (FULL, LINES[1], ROUNDS[1])
    )
    start = time.perf_counter()
    results: dict[str, Any] = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "quick": options.quick,
        "clock": options.clock,
        "machine": machine(),
        "gflops_torch.mm": {
            str(dtype)[6:]: MatrixRate(clock, dtype)() for dtype in (torch.float32, torch.bfloat16)
        },
        "inference": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        for shape in ("original", "small"):
            files = write_weights(shape, Path(folder))
            comparison = inference.Comparison(files)
            for _, size, times in [case for case in cases if case[0] == shape]:
                note(f"{shape}, batch {size}")
                found = comparison.run(size, times, clock, size <= LARGEST_WITH_STOCK)
                results["inference"].append({"shape": shape, "batch_size": size, **found})
            del comparison
            if shape == "original":
                note("memory")
                results["memory"] = memory.run(files, options.quick)
                note("fine-tuning")
                steps = 2 if options.quick else fine_tuning.STEPS
                results["fine_tuning"] = fine_tuning.run(files, options.threads, steps)
                note("noisy neighbours")
                loads = noisy_neighbours.LOADS[:: 2 if options.quick else 1]
                results["noisy_neighbours"] = noisy_neighbours.run(files, options.threads, loads)
                note("extraction")
                results["extraction"] = extraction.run(files, lines, options.threads)
                note("NER")
                results["ner_epoch"] = ner_epoch.run(files, rounds, clock)
    note("startup")
    results["startup"] = startup.run(options.threads, 1 if options.quick else startup.TRIES)
    note("pretraining")
    results["pretraining"] = pretraining.run(rounds, clock)
    results["minutes"] = (time.perf_counter() - start) / 60
    name = results["date"][:10] + ("-quick" if options.quick else "")
    write(options.reports, name, results, markdown(results))


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    main()
