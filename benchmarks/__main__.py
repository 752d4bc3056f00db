"""
Measure speed and memory of our biLM and of AllenNLP's, in alternating rounds.

    python -m benchmarks --quick        # about ten minutes on two cores
    python -m benchmarks                # every shape, batch size and precision

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
from benchmarks.limit import Machine
from benchmarks.report import markdown, write
from benchmarks.rounds import MatrixRate, machine
from benchmarks.workload import write_weights

# Cases to measure: model size, batch size and number of rounds.
QUICK = [("original", 1, 5), ("original", 64, 3), ("original", 256, 3), ("small", 32, 5)]
FULL = [(shape, size, 7) for shape in ("original", "small") for size in (1, 8, 32, 64)]
FULL.insert(4, ("original", 256, 3))
# Number of lines to extract in the quick and in the full run.
LINES = 1_000, 20_000
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
    cases = QUICK if options.quick else FULL
    rates = Machine(clock)
    rates.measure()
    results: dict[str, Any] = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "quick": options.quick,
        "clock": options.clock,
        "machine": machine(),
        "gflops_torch.mm": {
            str(dtype)[6:]: MatrixRate(clock, dtype)() for dtype in (torch.float32, torch.bfloat16)
        },
        "products": rates.gflops,
        "own_cache": rates.own_cache_rates(),
        "inference": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        for shape in ("original", "small"):
            files = write_weights(shape, Path(folder))
            comparison = inference.Comparison(files, rates)
            for _, size, rounds in [case for case in cases if case[0] == shape]:
                note(f"{shape}, batch {size}")
                public = size == 64 or not options.quick
                stock = size <= LARGEST_WITH_STOCK
                found = comparison.run(size, rounds, clock, public and stock, stock)
                results["inference"].append({"shape": shape, "batch_size": size, **found})
            if shape == "original":
                note("LSTM alone; memory")
                results["lstm"] = comparison.lstm_rate(64, 3 if options.quick else 7, clock)
                del comparison
                results["preparation"] = inference.preparation(files, clock)
                dtypes = [dtype or "float32" for dtype in inference.DTYPES]
                times = 1 if options.quick else memory.PROCESSES
                results["memory"] = {
                    "stock": memory.measure("stock", files, 64, times),
                    **{dtype: memory.measure(dtype, files, 64, times) for dtype in dtypes},
                    **{
                        f"{dtype}, AllenNLP imported": memory.measure(dtype, files, 64, times, True)
                        for dtype in (dtypes[:1] if options.quick else dtypes)
                    },
                }
                note("fine-tuning")
                results["fine_tuning"] = {
                    which: fine_tuning.measure(which, files, options.threads)
                    for which in fine_tuning.CANDIDATES
                }
                note("noisy neighbours")
                results["noisy_neighbours"] = noisy_neighbours.run(files, options.threads)
                note("extraction")
                count = LINES[0] if options.quick else LINES[1]
                results["extraction"] = extraction.run(files, count, options.threads)
                note("NER")
                results["ner_epoch"] = ner_epoch.run(files, 3 if options.quick else 7, clock)
    results["reading"] = rates.gigabytes
    note("startup")
    results["startup"] = startup.run(options.threads)
    note("pretraining")
    results["pretraining"] = pretraining.run(3 if options.quick else 7, clock)
    name = results["date"][:10] + ("-quick" if options.quick else "")
    write(options.reports, name, results, markdown(results))


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    main()
