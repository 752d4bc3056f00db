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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "out" / "demo"
TEST_FILE = "examples/ner/test.txt"
PLUGIN = ["--include-package", "elmo_plugin"]
RUNS = [
    ("baseline", "training_config/ner.jsonnet"),
    ("with ELMo", "training_config/ner_elmo.jsonnet"),
]
SCORES = {"precision": "precision-overall", "recall": "recall-overall", "F1": "f1-measure-overall"}


def allennlp(*arguments: str) -> None:
    """Runs `allennlp` as a user would; its warnings and progress bars are shown."""
    print(f"\n$ allennlp {' '.join(arguments)}", flush=True)
    subprocess.run(
        [sys.executable, "-m", "allennlp", *arguments],
        cwd=ROOT,
        check=True,
        env={**os.environ, "ALLENNLP_LOG_LEVEL": "WARNING", "PYTHONWARNINGS": "ignore"},
    )


def main() -> None:
    """Trains and evaluates both, and prints the table."""
    started = time.time()
    shutil.rmtree(OUT, ignore_errors=True)
    rows = []
    for number, (name, config) in enumerate(RUNS):
        directory = OUT / Path(config).stem
        scores_file = directory / "test_scores.json"
        location = str(directory.relative_to(ROOT))
        print(f"\n[{2 * number + 1}/4] training: {name}", flush=True)
        allennlp("train", config, "-s", location, *PLUGIN)
        print(f"\n[{2 * number + 2}/4] evaluating on the test split: {name}", flush=True)
        allennlp(
            "evaluate", f"{location}/model.tar.gz", TEST_FILE,
            "--output-file", str(scores_file.relative_to(ROOT)), *PLUGIN,
        )  # fmt: skip
        scores = json.loads(scores_file.read_text())
        rows.append((name, [100 * scores[key] for key in SCORES.values()]))

    print(f"\nNER on the sample data's test split ({TEST_FILE}), in percent")
    print(f"{'':12}" + "".join(f"{score:>12}" for score in SCORES))
    for name, values in rows:
        print(f"{name:12}" + "".join(f"{value:12.2f}" for value in values))
    difference = [after - before for before, after in zip(rows[0][1], rows[1][1])]
    print(f"{'difference':12}" + "".join(f"{value:+12.2f}" for value in difference))
    minutes = (time.time() - started) / 60
    print(f"\n{minutes:.1f} minutes; the archives are in {OUT.relative_to(ROOT)}/")


if __name__ == "__main__":
    main()
