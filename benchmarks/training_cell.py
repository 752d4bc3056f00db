"""
Speed and peak memory of whole training steps, in a process of its own.

    python -m benchmarks.training_cell FOLDER BATCH_SIZE NUM_STEPS DTYPE SECONDS THREADS...

`FOLDER` is what `benchmarks.throughput` wrote: `recipe.json`, `vocabulary.txt`, `text.txt`. A step
is what training does for a batch: the batch is made from text, loss, gradients, clipping, AdamW.
After one step to warm up, steps are timed for `SECONDS` (two at least), with each number of
threads.

Prints JSON. Memory in megabytes (2^20 bytes): before there is a model, all modules imported; and
the peak from then on.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.memory import status
from elmo_plugin.bilm.files.options import parse_options
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.training.language_model import LanguageModel
from elmo_plugin.bilm.training.softmax import WordSoftmax
from elmo_plugin.bilm.training.streams import BatchPair, TokenStreams
from elmo_plugin.bilm.training.vocabulary import WordVocabulary

LEAST_STEPS = 2


def measure(
    folder: Path, batch_size: int, num_steps: int, dtype: str, seconds: float, threads: list[int]
) -> dict[str, Any]:
    """The measurement in a new process."""
    numbers = [batch_size, num_steps, dtype, seconds, *threads]
    command = [sys.executable, "-m", "benchmarks.training_cell", str(folder), *map(str, numbers)]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=root)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def training(folder: Path, batch_size: int, num_steps: int, dtype: str) -> Callable[[], None]:
    """A function that takes the next step."""
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
    shape = {"batch_size": batch_size, "num_steps": num_steps}
    streams = (
        TokenStreams([folder / "text.txt"], vocabulary, direction, **shape).batches(endless=True)
        for direction in ("forward", "backward")
    )
    batches = map(BatchPair, *streams)
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
    """Seconds of a step."""
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
    # A first step of any optimizer imports modules of PyTorch.
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)]).step()
    before = status("VmRSS")
    # The kernel's high-water mark starts again here.
    Path("/proc/self/clear_refs").write_text("5")
    step = training(Path(folder), int(batch_size), int(num_steps), dtype)
    found = {}
    for number in threads:
        torch.set_num_threads(int(number))
        found[number] = timed(step, float(seconds))
    print(json.dumps({"threads": found, "before": before, "peak": status("VmHWM")}))


if __name__ == "__main__":
    main()
