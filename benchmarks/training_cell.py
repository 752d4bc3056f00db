"""
Speed and peak memory of whole pretraining steps in a new process, for `benchmarks.throughput`.

    python -m benchmarks.training_cell FOLDER BATCH_SIZE NUM_STEPS DTYPE SECONDS THREADS...

`FOLDER` has `recipe.json`, `vocabulary.txt` and `text.txt`, written by `benchmarks.throughput`. A
step makes a batch from text and computes loss, gradients, clipping and AdamW's update. For each
number of threads, steps are timed for `SECONDS`, at least two, after one warm-up step.

The program prints JSON. Memory is in MB (2^20 bytes): `before` is its use after the imports, before
the model is built, and `peak` is the maximum after that.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.processes import in_process, memory_before, status
from elmo_plugin.bilm.files.options import parse_options
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.pretraining.language_model import LanguageModel
from elmo_plugin.bilm.pretraining.loader import StreamLoader
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax
from elmo_plugin.bilm.pretraining.vocabulary import WordVocabulary

LEAST_STEPS = 2


def measure(
    folder: Path, batch_size: int, num_steps: int, dtype: str, seconds: float, threads: list[int]
) -> dict[str, Any]:
    """Measure pretraining steps in a new process, and return its JSON output."""
    numbers = [batch_size, num_steps, dtype, seconds, *threads]
    return in_process("training_cell", folder, *numbers)


def training(folder: Path, batch_size: int, num_steps: int, dtype: str) -> Callable[[], None]:
    """Return a function that runs the next training step."""
    recipe = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    vocabulary = WordVocabulary.from_file(folder / "vocabulary.txt")
    options = parse_options(recipe["options"])
    torch.manual_seed(0)
    model = LanguageModel(
        BiLm(options),
        WordSoftmax(len(vocabulary), options.projection_dim, recipe["num_samples"]),
        recipe["dropout"],
        None if dtype == "float32" else dtype,
    ).train()
    optimizer = torch.optim.AdamW(model.parameters(), **recipe["adamw"])
    batches = StreamLoader([folder / "text.txt"], batch_size, num_steps).pairs(
        vocabulary, endless=True
    )
    states = None

    def step() -> None:
        nonlocal states
        output = model(next(batches), states)
        states = output.states
        optimizer.zero_grad()
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe["grad_norm"])
        optimizer.step()

    return step


def timed(step: Callable[[], None], seconds: float) -> dict[str, float]:
    """Run `step` for about `seconds`; return its median, least and greatest time, and the count."""
    step()
    times: list[float] = []
    while len(times) < LEAST_STEPS or sum(times) < seconds:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return {
        "seconds": statistics.median(times),
        "least": min(times),
        "most": max(times),
        "steps": len(times),
    }


def main() -> None:
    folder, batch_size, num_steps, dtype, seconds, *threads = sys.argv[1:]
    before = memory_before()
    step = training(Path(folder), int(batch_size), int(num_steps), dtype)
    found = {}
    for number in threads:
        torch.set_num_threads(int(number))
        found[number] = timed(step, float(seconds))
    print(json.dumps({"threads": found, "before": before, "peak": status("VmHWM")}))


if __name__ == "__main__":
    main()
