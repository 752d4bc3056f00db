"""
Tokens per second and memory of pretraining on a CPU, for several batch sizes and numbers of steps.

    python -m benchmarks.throughput --quick    # half a minute: the config's batch size and twice it
    python -m benchmarks.throughput            # under five minutes on two cores

Model, softmax and optimizer are those of `training_config/pretraining/bilm_cpu.jsonnet`. The
command writes `benchmarks/reports/DATE-throughput.json`, and tables as `.md`. Nothing else should
run on the machine. The report has its load at the start, and `torch.mm`'s rate before and after.
"""

import argparse
import datetime
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import _jsonnet
import torch

from benchmarks.report import table, write
from benchmarks.rounds import MatrixRate, machine
from benchmarks.training_cell import measure
from benchmarks.workload import Sentences
from elmo_plugin.bilm.pretraining.vocabulary import SPECIAL_WORDS, WordVocabulary

CONFIG = Path(__file__).parents[1] / "training_config/pretraining/bilm_cpu.jsonnet"
# The embedded biLM's vocabulary has as many words.
NUM_WORDS = 36_729
NUM_SENTENCES = 10_000

DTYPES = ("float32", "bfloat16")
BATCH_SIZES, UNROLLS = (16, 32, 64, 128), (10, 20, 40, 80)
QUICK_BATCH_SIZES, QUICK_UNROLLS = (64, 128), (20,)


def recipe() -> dict[str, Any]:
    """Return the settings in the config that a training step needs."""
    names = ("TRAIN_PATH", "HELDOUT_PATH", "VOCAB_PATH")
    variables = {f"BIDIRECTIONAL_LM_{name}": "" for name in names}
    config = json.loads(_jsonnet.evaluate_file(str(CONFIG), ext_vars=variables))
    model, trainer = config["model"], config["trainer"]
    optimizer = trainer["optimizer"]
    if optimizer["type"] not in ("adamw", "fused_adamw"):
        raise ValueError(f"{CONFIG} has the optimizer {optimizer['type']}, expected AdamW")
    return {
        "options": model["options"],
        "num_samples": model["softmax"]["num_samples"],
        "dropout": model["dropout"],
        "grad_norm": trainer["grad_norm"],
        "adamw": {
            "lr": optimizer["lr"],
            "weight_decay": optimizer["weight_decay"],
            "fused": optimizer["type"] == "fused_adamw",
        },
    }


def write_text(folder: Path) -> None:
    """Write a text of Zipf-distributed words, and a vocabulary of `NUM_WORDS` sorted by rank."""
    sentences = Sentences(num_words=NUM_WORDS)
    lines = [" ".join(words) for words in sentences.tokens(NUM_SENTENCES)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = [*SPECIAL_WORDS, *dict.fromkeys(sentences.words)]
    # Random short words may repeat. Replace repeated ones by numbers, which are not in the text.
    words += [str(number) for number in range(NUM_WORDS - len(words))]
    WordVocabulary(words[:NUM_WORDS]).save(folder / "vocabulary.txt")


def markdown(results: dict[str, Any]) -> str:
    """Return tables with a row for each batch size and a column for each number of steps."""
    host, sizes = results["machine"], results["recipe"]
    lstm, filters = sizes["options"]["lstm"], sizes["options"]["char_cnn"]["filters"]
    rates = " and ".join(f"{rate:.0f}" for rate in results["gflops_torch.mm"])
    lines = [
        f"# Throughput of pretraining, {results['date']}",
        "",
        f"{host['processor']} ({host['instructions']}), Python {host['python']}, torch "
        f"{host['torch']}; load {results['load']:.1f} at the start. `torch.mm`, float32, "
        f"{host['threads']} threads: {rates} GFLOP/s before and after.",
        "",
        f"`{CONFIG.relative_to(CONFIG.parents[2])}`: {lstm['n_layers']} x {lstm['dim']}/"
        f"{lstm['projection_dim']}, {sum(count for _, count in filters)} filters, "
        f"{sizes['num_samples']:,} negatives, {results['num_words']:,} words; Zipf words, random "
        "weights. A step is all of it: batch from text, loss, gradients, clipping, "
        f"{'fused ' if sizes['adamw']['fused'] else ''}AdamW.",
        "",
        "Tokens per second count each position once: batch size x unroll a step, though both "
        "directions predict as many targets each. Median of the steps.",
        "",
    ]
    for dtype in dict.fromkeys(cell["dtype"] for cell in results["cells"]):
        cells = [cell for cell in results["cells"] if cell["dtype"] == dtype]
        for threads in cells[0]["threads"]:
            lines += [f"## {dtype}, {threads} thread{'' if threads == '1' else 's'}: tokens/s", ""]
            lines += _grid(
                cells,
                {(c["batch_size"], c["num_steps"]): f"{tokens_per_second(c, threads):,.0f}"
                 for c in cells},
            )  # fmt: skip
        lines += [
            f"## {dtype}: peak memory, MB",
            "",
            "What model, optimizer and steps add to the imported modules / whole process.",
            "",
            *_grid(
                cells,
                {(c["batch_size"], c["num_steps"]): f"{c['peak'] - c['before']:.0f} / "
                 f"{c['peak']:.0f}" for c in cells},
            ),
        ]  # fmt: skip
    return "\n".join(lines)


def tokens_per_second(cell: dict[str, Any], threads: str) -> float:
    return cell["batch_size"] * cell["num_steps"] / cell["threads"][threads]["seconds"]


def _grid(cells: list[dict[str, Any]], texts: dict[Any, str]) -> list[str]:
    batch_sizes = dict.fromkeys(cell["batch_size"] for cell in cells)
    unrolls = dict.fromkeys(cell["num_steps"] for cell in cells)
    header = ["batch size", *(f"unroll {unroll}" for unroll in unrolls)]
    rows = [[str(size), *(texts[size, unroll] for unroll in unrolls)] for size in batch_sizes]
    return table(header, rows)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.throughput", description=__doc__.split("\n")[1]
    )
    parser.add_argument("--quick", action="store_true", help="two cells of each type")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, len(os.sched_getaffinity(0))])
    parser.add_argument("--seconds", type=float, default=0.5, help="timed, of each cell")
    parser.add_argument("--reports", type=Path, default=Path("benchmarks/reports"))
    return parser.parse_args()


def main() -> None:
    options = arguments()
    threads = list(dict.fromkeys(options.threads))
    torch.set_num_threads(max(threads))
    load, rate = os.getloadavg()[0], MatrixRate(time.perf_counter)
    rates = [rate()]
    sizes, cells = recipe(), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder)
        (folder / "recipe.json").write_text(json.dumps(sizes), encoding="utf-8")
        for dtype in options.dtypes:
            for size in QUICK_BATCH_SIZES if options.quick else BATCH_SIZES:
                for unroll in QUICK_UNROLLS if options.quick else UNROLLS:
                    print(f"{time.strftime('%H:%M:%S')} {dtype} {size} x {unroll}", flush=True)
                    found = measure(folder, size, unroll, dtype, options.seconds, threads)
                    cell = {"dtype": dtype, "batch_size": size, "num_steps": unroll, **found}
                    cells.append(cell)
    results = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "quick": options.quick,
        "machine": machine(),
        "load": load,
        "gflops_torch.mm": [*rates, rate()],
        "recipe": sizes,
        "num_words": NUM_WORDS,
        "cells": cells,
    }
    name = results["date"][:10] + "-throughput" + ("-quick" if options.quick else "")
    write(options.reports, name, results, markdown(results))


if __name__ == "__main__":
    main()
