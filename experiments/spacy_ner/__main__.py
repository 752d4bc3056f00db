"""
Train spaCy's NER on ELMo (examples/spacy/ner_elmo.cfg) and on HashEmbedCNN (ner.cfg beside this
file) with several seeds. The program prints dev F1, and whether an ELMo pipeline makes the same
predictions after it has been saved to another folder.

    WIKIGOLD=DIRECTORY python -m experiments.spacy_ner OUT [NUMBER_OF_SEEDS]
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, stdev

import spacy
from spacy.tokens import Doc, DocBin
from spacy.training import biluo_tags_to_spans

from elmo_plugin.data.readers.conll2003 import Conll2003DatasetReader

HERE = Path(__file__).parent
CONFIGS = {
    "HashEmbedCNN": HERE / "ner.cfg",
    "elmo": HERE.parents[1] / "examples" / "spacy" / "ner_elmo.cfg",
}
# Both pipelines train with these settings, so that their scores are comparable.
SETTINGS = {"max_steps": 3000, "patience": 800, "eval_frequency": 100}


def convert(source: Path, target: Path) -> None:
    """Convert a file in CoNLL-2003 columns to a `DocBin`, with a `Doc` for each sentence."""
    vocab, docs = spacy.blank("en").vocab, DocBin()
    for instance in Conll2003DatasetReader(convert_to_coding_scheme="BIOUL").read(source):
        doc = Doc(vocab, words=instance["metadata"]["words"])
        doc.ents = biluo_tags_to_spans(doc, list(instance["tags"].labels))
        docs.add(doc)
    docs.to_disk(target)


def train(name: str, seed: int, out: Path) -> float:
    """Train a pipeline, unless it is already trained, and return its best dev F1 in per cent."""
    directory = out / f"{name}-{seed}"
    if not (directory / "done").exists():  # unfinished training also leaves a saved pipeline
        settings = {"paths.train": out / "train.spacy", "paths.dev": out / "dev.spacy"}
        settings |= {"system.seed": seed} | {f"training.{k}": v for k, v in SETTINGS.items()}
        command = ["-m", "spacy", "train", str(CONFIGS[name]), "--output", str(directory)]
        command += [text for key, value in settings.items() for text in (f"--{key}", str(value))]
        subprocess.run([sys.executable, *command], check=True)
        (directory / "done").touch()
    meta = json.loads((directory / "model-best" / "meta.json").read_text("utf-8"))
    return 100 * meta["performance"]["ents_f"]


PREDICT = """
import sys, spacy
from spacy.tokens import DocBin
nlp = spacy.load(sys.argv[1])
docs = nlp.pipe(DocBin().from_disk(sys.argv[2]).get_docs(nlp.vocab))
print([[(e.start, e.end, e.label_) for e in doc.ents] for doc in docs])
"""


def predictions(pipeline: Path, data: Path, folder: str) -> str:
    """Return the entities that a pipeline predicts for `data`, in a new process run in `folder`."""
    command = [sys.executable, "-c", PREDICT, str(pipeline.absolute()), str(data.absolute())]
    return subprocess.run(command, check=True, cwd=folder, capture_output=True, text=True).stdout


def main() -> None:
    """Train all seeds of both configs and print the table."""
    if "WIKIGOLD" not in os.environ or len(sys.argv) < 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev"):
        convert(Path(os.environ["WIKIGOLD"], f"{split}.txt"), out / f"{split}.spacy")
    seeds = range(1, 1 + int(sys.argv[2] if len(sys.argv) > 2 else 3))
    found: dict[str, list[float]] = {name: [] for name in CONFIGS}
    for seed in seeds:
        for name, values in found.items():
            values.append(train(name, seed, out))
    columns = " | ".join(f"seed {seed}" for seed in seeds)
    print(f"| tok2vec | dev F1, mean | standard deviation | {columns} |")
    print("|---|---|---|" + "---|" * len(seeds))
    for name, values in found.items():
        spread = f"{stdev(values):.2f}" if len(values) > 1 else "-"
        shown = " | ".join(f"{value:.2f}" for value in values)
        print(f"| {name} | {mean(values):.2f} | {spread} | {shown} |")
    with tempfile.TemporaryDirectory() as folder:
        best, dev = out / f"elmo-{seeds[0]}" / "model-best", out / "dev.spacy"
        once = predictions(best, dev, folder)
        moved = Path(folder) / "moved"
        spacy.load(best).to_disk(moved)
        print("loaded, saved and loaded again:", predictions(moved, dev, folder) == once)


if __name__ == "__main__":
    main()
