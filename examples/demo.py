"""
The main job on the sample data: NER without and with ELMo, trained and evaluated by `allennlp`.

`make demo` runs it; it writes to out/demo/ and takes a few minutes on two cores.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
OUT = "out/demo"
TEST_FILE = "examples/ner/test.txt"
PLUGIN = ["--include-package", "elmo_plugin"]
BASELINE, WITH_ELMO = "training_config/ner.jsonnet", "training_config/ner_elmo.jsonnet"
SCORES = {"precision": "precision-overall", "recall": "recall-overall", "F1": "f1-measure-overall"}


def allennlp(arguments: list[str], log: IO[str] | None) -> None:
    """Runs the command `allennlp`; all its output goes to `log`, or to the terminal without one."""
    print(f"\n$ allennlp {' '.join(arguments)}", file=log, flush=True)
    subprocess.run(
        [sys.executable, "-m", "allennlp", *arguments],
        cwd=ROOT,
        check=True,
        env={**os.environ, "ALLENNLP_LOG_LEVEL": "WARNING", "PYTHONWARNINGS": "ignore"},
        stdout=log,
        stderr=log,
    )


def train_and_evaluate(config: str, log: IO[str] | None = None) -> dict[str, float]:
    """Trains with a config file; returns the scores on the test split by name, in percent."""
    folder = f"{OUT}/{Path(config).stem}"
    allennlp(["train", config, "-s", folder, *PLUGIN], log)
    scores = f"{folder}/test_scores.json"
    allennlp(
        ["evaluate", f"{folder}/model.tar.gz", TEST_FILE, "--output-file", scores, *PLUGIN], log
    )
    found = json.loads((ROOT / scores).read_text())
    return {name: 100 * found[key] for name, key in SCORES.items()}


def main() -> None:
    """Trains and evaluates both, and prints the table."""
    started = time.time()
    shutil.rmtree(ROOT / OUT, ignore_errors=True)
    (ROOT / OUT).mkdir(parents=True)
    log_path = f"{OUT}/baseline.log"
    print(f"training NER with ELMo; at the same time the baseline without ELMo (log: {log_path})")
    with ThreadPoolExecutor() as pool, (ROOT / log_path).open("w") as log:
        beside = pool.submit(train_and_evaluate, BASELINE, log)
        with_elmo = train_and_evaluate(WITH_ELMO)
        baseline = beside.result()

    print(f"\nNER on the sample data's test split ({TEST_FILE}), in percent")
    print(f"{'':12}" + "".join(f"{score:>12}" for score in SCORES))
    for name, scores in (("baseline", baseline), ("with ELMo", with_elmo)):
        print(f"{name:12}" + "".join(f"{score:12.2f}" for score in scores.values()))
    print(f"{'difference':12}" + "".join(f"{with_elmo[s] - baseline[s]:+12.2f}" for s in SCORES))
    minutes = (time.time() - started) / 60
    print(f"\n{minutes:.1f} minutes; the archives are in {OUT}/")


if __name__ == "__main__":
    main()
