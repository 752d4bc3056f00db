"""
Speed or memory of `embed-corpus` on this machine. Speed is the tokens per second of one worker and
of two, with one thread each. `--memory` measures peak memory for each given number of lines.

    python -m benchmarks.embed_corpus [--options-file O --weight-file W] [--tokens 100000]
    python -m benchmarks.embed_corpus --memory 10000 1000000

Nothing else should run on the machine while speed is measured. Memory is Linux's VmHWM, of the
driver and of its largest worker.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tqdm import tqdm

from benchmarks.processes import status
from benchmarks.rounds import machine
from elmo_plugin import CorpusSettings, embed_corpus

TEXT = Path(__file__).parents[1] / "examples" / "ner" / "train.txt"
SHARDS = 20
WORDS = ["the", "cat", "sat", "on", "a", "mat", "moon", "."]


class Times(tqdm):
    """Progress bar that records the time and the number of tokens of each batch."""

    def __init__(self):
        self.told = []
        super().__init__(disable=True)

    def update(self, n=1):
        if n:
            self.told.append((time.perf_counter(), n))

    def rate(self):
        """Return tokens per second after the first batch, so that loading is not included."""
        (first, _), *later = self.told
        return sum(n for _, n in later) / (later[-1][0] - first)


def write_lines(path, count, words, shortest, longest):
    generator = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            length = generator.randint(shortest, longest)
            file.write(" ".join(generator.choices(words, k=length)) + "\n")


def rate(lines, folder, workers, options):
    times = Times()
    settings = CorpusSettings(shard_tokens=options.tokens // SHARDS, max_tokens=1024)
    embed_corpus(
        [lines],
        folder / f"out{workers}",
        settings,
        options_file=options.options_file,
        weight_file=options.weight_file,
        workers=workers,
        progress=times,
    )
    return times.rate()


def peaks(command):
    """Run a command; return peak memory (MB) of it and of its largest child, and wall seconds."""
    start = time.perf_counter()
    driver = subprocess.Popen(command)
    of_driver = of_worker = 0.0
    while driver.poll() is None:
        of_driver = max(of_driver, high_water(driver.pid))
        children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children")
        try:
            below = children.read_text().split()
        except OSError:
            continue
        of_worker = max([of_worker, *map(high_water, below)])
        time.sleep(0.2)
    if driver.returncode:
        sys.exit(f"status {driver.returncode} of {command}")
    return of_driver, of_worker, time.perf_counter() - start


def high_water(process):
    try:
        return status("VmHWM", process)
    except (OSError, ValueError):  # a process that has ended has no status
        return 0.0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--options-file", default="embedded")
    parser.add_argument("--weight-file")
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--memory", type=int, nargs="+", metavar="LINES")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.memory:
            print("lines    driver   worker  seconds")
            for count in args.memory:
                lines = folder / f"{count}.txt"
                write_lines(lines, count, WORDS, 1, 4)
                command = [sys.executable, "-m", "elmo_plugin", "embed-corpus", str(lines)]
                command += [str(folder / f"out{count}"), "--workers", "2"]
                command += ["--options-file", args.options_file, "--file-friendly-logging"]
                command += ["--weight-file", args.weight_file] if args.weight_file else []
                driver, worker, seconds = peaks(command)
                print(f"{count:8d} {driver:5.0f} MB {worker:5.0f} MB {seconds:6.0f}", flush=True)
            return
        words = [line.split()[0] for line in TEXT.read_text("utf-8").splitlines() if line.strip()]
        write_lines(folder / "lines.txt", args.tokens // 20, words, 5, 35)
        rates = {n: rate(folder / "lines.txt", folder, n, args) for n in (1, 2)}
    found = {
        "machine": machine(),
        "tokens_per_second": {str(n): round(one, 1) for n, one in rates.items()},
        "two_workers_to_one": round(rates[2] / rates[1], 3),
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
