"""
Trains both configs beside this file with several seeds and prints the table of dev F1.

    WIKIGOLD=DIRECTORY python results/wikigold/run.py OUT [NUMBER_OF_SEEDS]
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev

HERE = Path(__file__).parent
METRIC = "best_validation_f1-measure-overall"


def train(config: str, seed: int, out: Path) -> float:
    """Dev F1 in per cent of one run, which is not repeated if it has already been made."""
    directory = out / f"{config}-{seed}"
    if not (directory / "metrics.json").exists():
        seeds = {f"{name}_seed": seed for name in ("random", "numpy", "pytorch")}
        command = ["-m", "allennlp", "train", str(HERE / f"{config}.jsonnet"), "-s", str(directory)]
        command += ["-o", json.dumps(seeds), "--include-package", "elmo_plugin", "--force"]
        subprocess.run([sys.executable, *command], check=True)
    return 100 * json.loads((directory / "metrics.json").read_text())[METRIC]


def main() -> None:
    """Runs and prints."""
    if "WIKIGOLD" not in os.environ or len(sys.argv) < 2:
        sys.exit(__doc__)
    seeds = range(1, 1 + int(sys.argv[2] if len(sys.argv) > 2 else 3))
    scores = {
        config: [train(config, seed, Path(sys.argv[1])) for seed in seeds]
        for config in ("ner", "ner_elmo")
    }
    print(
        "| config | dev F1, mean | standard deviation | " + " | ".join(f"seed {s}" for s in seeds)
    )
    print("|---|---|---|" + "---|" * len(seeds))
    for config, values in scores.items():
        spread = f"{stdev(values):.2f}" if len(values) > 1 else "-"
        shown = " | ".join(f"{value:.2f}" for value in values)
        print(f"| {config} | {mean(values):.2f} | {spread} | {shown} |")


if __name__ == "__main__":
    main()
