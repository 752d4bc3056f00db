"""
Effect of a lower-precision biLM on the metrics of trained task models.

    python -m benchmarks.task_metrics ARCHIVE DATA [ARCHIVE DATA ...]

ARCHIVE is a `model.tar.gz` of a model with ELMo, and DATA the path of the data to evaluate it on.
Each archive is loaded with the biLM's `dtype` `None` (float32), bfloat16 and int8. The report is
`benchmarks/reports/DATE-task-metrics.md`. It has the config's validation metric, and the number of
predictions (a token's tag or a sentence's label) that differ from those in float32.
"""

import argparse
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from allennlp.data.data_loaders import MultiProcessDataLoader
from allennlp.models.archival import Archive, extracted_archive, load_archive

import elmo_plugin.plugin  # noqa: F401
from benchmarks.report import table
from benchmarks.rounds import machine

DTYPES = (None, "bfloat16", "int8")
BATCH_SIZE = 32


def elmo_paths(config: dict[str, Any], path: str = "model") -> Iterator[str]:
    """Yield the dotted path of each ELMo module in a model's config."""
    for key, value in config.items():
        if isinstance(value, dict):
            here = f"{path}.{key}"
            if value.get("type") == "elmo_token_embedder" or "num_output_representations" in value:
                yield here
            else:
                yield from elmo_paths(value, here)


@torch.no_grad()
def evaluate(archive: Archive, data: str) -> tuple[str, float, list[str]]:
    """Evaluate a model on `data`. Return the metric's name and value, and all predictions."""
    model = archive.model.eval()
    loader = MultiProcessDataLoader(archive.validation_dataset_reader, data, batch_size=BATCH_SIZE)
    loader.index_with(model.vocab)
    decisions: list[str] = []
    for batch in loader:
        output = model.make_output_human_readable(model(**batch))
        if "tags" in output:
            # AllenNLP's `simple_tagger` also predicts tags of padding; drop them.
            for words, tags in zip(output["words"], output["tags"], strict=True):
                decisions += tags[: len(words)]
        else:
            decisions += output["label"]
    name = archive.config["trainer"].get("validation_metric", "-loss").lstrip("+-")
    return name, model.get_metrics()[name], decisions


def row(archive: str, data: str) -> list[str]:
    """
    Return a row of the table: the names of model, data and metric, the number of predictions, and
    the metric by dtype. Each lower precision also has the number of predictions that change.
    """
    with extracted_archive(archive) as folder:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    paths = list(elmo_paths(config["model"]))
    if not paths:
        raise ValueError(f"{archive}: a model without ELMo, expected one with it")
    cells = [Path(archive).resolve().parent.name, Path(data).name]
    exact: list[str] = []
    for dtype in DTYPES:
        loaded = load_archive(archive, overrides={f"{path}.dtype": dtype for path in paths})
        name, value, decisions = evaluate(loaded, data)
        if dtype is None:
            exact = decisions
            cells += [name, str(len(exact)), f"{100 * value:.2f}"]
        else:
            changed = sum(ours != theirs for ours, theirs in zip(decisions, exact, strict=True))
            cells += [f"{100 * value:.2f}", str(changed)]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.task_metrics", description=__doc__.splitlines()[1]
    )
    parser.add_argument("pairs", nargs="+", metavar="ARCHIVE DATA")
    parser.add_argument("--reports", type=Path, default=Path("benchmarks/reports"))
    arguments = parser.parse_args()
    if len(arguments.pairs) % 2:
        parser.error(f"{len(arguments.pairs)} files given, expected pairs of ARCHIVE and DATA")
    rows = [row(*pair) for pair in zip(arguments.pairs[::2], arguments.pairs[1::2], strict=True)]
    date = datetime.date.today().isoformat()
    about = machine()
    lines = [
        f"# Task metrics in lower precision, {date}",
        "",
        f"`python -m benchmarks.task_metrics`; torch {about['torch']}, {about['instructions']}. "
        "Models trained in float32, evaluated with the biLM's `dtype` at None, bfloat16 and int8: "
        "the metric in percent, and how many decisions (a token's tag or a sentence's label) are "
        "others than in float32.",
        "",
        *table(
            ["model", "data", "metric", "decisions", "float32", "bfloat16", "others", "int8",
             "others"],
            rows,
        ),
    ]  # fmt: skip
    report = "\n".join(lines)
    arguments.reports.mkdir(parents=True, exist_ok=True)
    (arguments.reports / f"{date}-task-metrics.md").write_text(report, encoding="utf-8")
    print(report)


if __name__ == "__main__":
    main()
