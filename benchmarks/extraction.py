"""
Tokens per second of the command `elmo` and of AllenNLP's `Elmo` in batches of 64, from the start
of the process to the finished file.

    python -m benchmarks.extraction OPTIONS WEIGHTS [--lines 20000] [--text FILE]

The text has a sentence per line; without `--text`, the lines of `examples/text` are repeated. Both
programs write the average of the layers in float32, one dataset per line. AllenNLP has had no such
command since 1.0, so a loop that calls its module is measured instead.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SAMPLE = [ROOT / "examples/text/train.txt", ROOT / "examples/text/heldout.txt"]
BATCH_SIZE = 64


def write_lines(path: Path, count: int, text: Path | None) -> int:
    """Write `count` non-blank lines of the text to a file, and return their number of tokens."""
    sources = SAMPLE if text is None else [text]
    lines = [line.split() for one in sources for line in one.read_text("utf-8").splitlines()]
    chosen = list(itertools.islice(itertools.cycle([line for line in lines if line]), count))
    path.write_text("\n".join(" ".join(line) for line in chosen) + "\n", encoding="utf-8")
    return sum(len(line) for line in chosen)


def run(
    files: tuple[str, str], count: int, threads: int, text: Path | None = None
) -> dict[str, Any]:
    """Return seconds and tokens per second of the command `elmo` and of AllenNLP's `Elmo`."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    found: dict[str, Any] = {"lines": count}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokens = write_lines(folder / "lines.txt", count, text)
        found["tokens"] = tokens
        for which in ("stock", "ours"):
            paths = [str(folder / "lines.txt"), str(folder / f"{which}.hdf5")]
            if which == "stock":
                command = ["-m", "benchmarks.extraction", "--stock", *files, *paths]
            else:
                command = ["-m", "elmo_plugin", "elmo", *paths, "--average"]
                command += ["--options-file", files[0], "--weight-file", files[1]]
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, *command], check=True, capture_output=True, cwd=ROOT,
                env=environment,
            )  # fmt: skip
            seconds = time.perf_counter() - start
            found[which] = {"seconds": seconds, "tokens_per_second": tokens / seconds}
    found["ratio"] = found["stock"]["seconds"] / found["ours"]["seconds"]
    return found


def stock(options: str, weights: str, source: str, output: str) -> None:
    """Write the vectors of all lines with AllenNLP's `Elmo`."""
    import h5py
    import torch
    from allennlp.modules.elmo import Elmo, batch_to_ids

    elmo = Elmo(options, weights, 1, dropout=0.0).eval()
    lines = [line.split() for line in Path(source).read_text("utf-8").splitlines()]
    with torch.no_grad(), h5py.File(output, "w") as file:
        for first in range(0, len(lines), BATCH_SIZE):
            batch = lines[first : first + BATCH_SIZE]
            # The scalar mix of an untrained `Elmo` is the average of the layers.
            vectors = elmo(batch_to_ids(batch))["elmo_representations"][0].numpy()
            for row, tokens in enumerate(batch):
                file.create_dataset(str(first + row), data=vectors[row, : len(tokens)])


def main() -> None:
    if sys.argv[1:2] == ["--stock"]:
        stock(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.extraction")
    parser.add_argument("options")
    parser.add_argument("weights")
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--text", type=Path, help="sentences, one a line")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    print(json.dumps(run((given.options, given.weights), given.lines, given.threads, given.text)))


if __name__ == "__main__":
    main()
