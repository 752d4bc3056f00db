"""
Peak memory of the command `elmo` for 2,000 and for 200,000 sentences of 20 words on average. It
should not depend on the length of the input.

    python benchmarks/extraction_memory.py --options-file O --weight-file W [--layout ragged]
"""

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

WORDS = Path(__file__).parents[1] / "examples" / "ner" / "train.txt"


def write_sentences(path, count):
    words = [line.split()[0] for line in WORDS.read_text("utf-8").splitlines() if line.strip()]
    generator = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            file.write(" ".join(generator.choices(words, k=generator.randint(5, 35))) + "\n")


def measure(arguments):
    """Run a command; return its peak memory in MB and its seconds."""
    start = time.perf_counter()
    child = os.posix_spawn(sys.executable, [sys.executable, *arguments], os.environ)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit(f"status {status} of {arguments}")
    return usage.ru_maxrss / 1024, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--options-file", default="embedded")
    parser.add_argument("--weight-file")
    parser.add_argument("--layout", default="sentences")
    parser.add_argument("--counts", type=int, nargs="+", default=[2_000, 200_000])
    args = parser.parse_args()
    weights = ["--weight-file", args.weight_file] if args.weight_file else []
    print("sentences  peak memory  seconds  output")
    with tempfile.TemporaryDirectory() as folder:
        for count in args.counts:
            lines, output = Path(folder) / f"{count}.txt", Path(folder) / f"{count}.hdf5"
            write_sentences(lines, count)
            command = ["-m", "elmo_plugin", "elmo", str(lines), str(output), "--all"]
            command += ["--layout", args.layout, "--options-file", args.options_file, *weights]
            megabytes, seconds = measure(command)
            size = output.stat().st_size / 1e6
            print(f"{count:9d}  {megabytes:8.0f} MB  {seconds:7.0f}  {size:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
