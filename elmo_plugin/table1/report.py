"""What the runs of a plan gave: a table to read, and every run as a line of CSV."""

import csv
import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean, stdev
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy

from elmo_plugin.bilm.files.whole_file import whole_file
from elmo_plugin.table1.item_scores import paired_bootstrap
from elmo_plugin.table1.one_run import FAILED, ITEMS, TRAINING, is_whole
from elmo_plugin.table1.plan import BASELINE, ELMO, VARIANTS, Run
from elmo_plugin.table1.runner import in_seconds
from elmo_plugin.table1.tasks import TASKS

NOT_RUN = "not run"
# Beside `runs.csv`.
COUNTS = "counts.json.gz"


class Result(NamedTuple):
    """
    `score`: in per cent, on the test set if there is one, else on dev at the best epoch; `None` if
    the run failed or was not made. `split`: `test` or `dev`. `epochs`: trained. `best`: the epoch
    that was kept, from 1. `minutes`: of training. `failure`: why there is no score.
    """

    run: Run
    score: float | None
    split: str = ""
    epochs: int = 0
    best: int = 0
    minutes: float = 0.0
    failure: str = ""

    @property
    def failed(self) -> bool:
        """Whether it was tried and has no score."""
        return self.score is None and self.failure != NOT_RUN


class Known(NamedTuple):
    """
    Of runs that were made elsewhere: `results`, and `counts` as `item_scores.item_counts` gives
    them.
    """

    results: Mapping[Run, Result] = MappingProxyType({})
    counts: Mapping[Run, Any] = MappingProxyType({})


NONE_KNOWN = Known()


def read(run: Run, out: Path, known: Known = NONE_KNOWN) -> Result:
    """
    # Parameters

    run : `Run`
    out : `Path`
        The table's folder.
    known : `Known`, optional (default = none)
        See `read_known`.

    # Returns

    `Result`
        What the run's `metrics.json` says, or where it has none what is known.
    """
    folder = out / run.folder
    if not is_whole(folder):
        if run in known.results:
            return known.results[run]
        failed = folder / FAILED
        return Result(run, None, failure=failed.read_text().strip() if failed.exists() else NOT_RUN)
    metrics = json.loads((folder / TRAINING / "metrics.json").read_text())
    name = TASKS[run.task].metric
    split = "test" if f"test_{name}" in metrics else "dev"
    return Result(
        run,
        100 * metrics[f"test_{name}" if split == "test" else f"best_validation_{name}"],
        split,
        metrics["epoch"] + 1,
        metrics["best_epoch"] + 1,
        in_seconds(metrics["training_duration"]) / 60,
    )


def read_known(path: Path) -> Known:
    """
    # Parameters

    path : `Path`
        The `runs.csv` of a table that was made elsewhere; its items are beside it, if they are
        known.

    # Returns

    `Known`
        Its runs that have a score.

    # Raises

    `ValueError`
        If it is no such file.
    """
    names = [*Run._fields, *Result._fields[1:]]
    results: dict[Run, Result] = {}
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        header = next(rows, [])
        if header != names:
            raise ValueError(
                f"{path} has the columns {header}, expected those of runs.csv: {names}"
            )
        for row in rows:
            try:
                task, arm, fraction, seed, score, split, epochs, best, minutes, failure = row
                run = Run(task, arm, float(fraction), int(seed))
                if score:
                    numbers = int(epochs), int(best), float(minutes)
                    results[run] = Result(run, float(score), split, *numbers, failure)
            except ValueError as error:
                raise ValueError(
                    f"{path}, line {rows.line_num}: {row} is no run, expected {names}: {error}"
                ) from error
    counts = path.with_name(COUNTS)
    found = json.loads(gzip.decompress(counts.read_bytes())) if counts.exists() else {}
    by_folder = {run.folder.as_posix(): run for run in results}
    return Known(results, {by_folder[name]: found[name] for name in found if name in by_folder})


def counts_of(runs: Iterable[Run], out: Path, known: Known = NONE_KNOWN) -> dict[Run, Any]:
    """Of those runs whose items are known, here first."""
    found = {}
    for run in runs:
        if is_whole(out / run.folder):
            found[run] = json.loads((out / run.folder / ITEMS).read_text())["counts"]
        elif run in known.counts:
            found[run] = known.counts[run]
    return found


def write(runs: list[Run], out: Path, about: dict[str, Any], known: Known = NONE_KNOWN) -> str:
    """
    Writes `table.md` and `runs.csv`.

    # Parameters

    runs : `list[Run]`
    out : `Path`
        The table's folder.
    about : `dict[str, Any]`
        What stands under the table: commit, machine, data.
    known : `Known`, optional (default = none)
        See `read_known`.

    # Returns

    `str`
        The text of `table.md`.
    """
    results = [read(run, out, known) for run in runs]
    counts = counts_of(runs, out, known)
    parts = [_main_table(results, counts)]
    parts += [_variants_table(results, kind) for kind in VARIANTS]
    parts.append(_failures(results))
    parts.append("\n".join(f"- {name}: {value}" for name, value in about.items()))
    text = "\n\n".join(part for part in parts if part) + "\n"
    with whole_file(out / "table.md") as aside:
        aside.write_text(text, "utf-8")
    with whole_file(out / "runs.csv") as aside, aside.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*Run._fields, *Result._fields[1:]])
        writer.writerows([*result.run, *result[1:]] for result in results)
    named = {run.folder.as_posix(): found for run, found in counts.items()}
    with whole_file(out / COUNTS) as aside:
        aside.write_bytes(gzip.compress(json.dumps(named).encode(), mtime=0))
    return text


def chosen(results: list[Result], task: str, arm: str, fraction: float) -> list[Result]:
    """Those of one cell of a table."""
    return [
        result
        for result in results
        if (result.run.task, result.run.arm, result.run.fraction) == (task, arm, fraction)
    ]


def _main_table(results: list[Result], counts: Mapping[Run, Any]) -> str:
    lines = [
        "| task | data | scored on | baseline | + ELMo | difference | errors fewer | in the paper "
        "| p | seeds | epochs | minutes |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for task, fraction in dict.fromkeys((one.run.task, one.run.fraction) for one in results):
        arms = [chosen(results, task, arm, fraction) for arm in (BASELINE, ELMO)]
        if not all(arms):
            continue
        row = TASKS[task]
        data = "the paper's" if row.has_paper_data else row.data
        if fraction != 1:
            data += f", {fraction:g} of it"
        whole = [[one for one in arm if one.score is not None] for arm in arms]
        cells = [_mean(arm) for arm in arms]
        if all(whole):
            before, after = (mean([one.score or 0.0 for one in arm]) for arm in whole)
            cells += [f"{after - before:+.2f}", f"{fewer_errors(before, after):.1f}%"]
        else:
            cells += ["", ""]
        paper = ""
        if row.paper is not None:
            paper = f"{row.paper[0]} → {row.paper[1]}, {fewer_errors(*row.paper):.1f}%"
        scored = next((one.split for arm in whole for one in arm), "")
        both = (
            [str(len(arm)) for arm in whole],
            [_range([one.epochs for one in arm]) for arm in whole],
            [f"{sum(one.minutes for one in arm):.0f}" for arm in whole],
        )
        cells = [row.title, data, scored, *cells, paper, _p(task, whole, counts)]
        lines.append(_row([*cells, *(" / ".join(pair) for pair in both)]))
    return "\n".join(lines)


def _p(task: str, arms: list[list[Result]], counts: Mapping[Run, Any]) -> str:
    """The paired bootstrap's, of the runs whose items are known, and of how many if not of all."""
    before, after = (
        [numpy.array(counts[one.run]) for one in arm if one.run in counts] for arm in arms
    )
    if not before or not after:
        return ""
    numbers = [len(before), len(after)]
    part = "" if numbers == [len(arm) for arm in arms] else f" ({numbers[0]} / {numbers[1]} seeds)"
    return f"{paired_bootstrap(TASKS[task].metric, before, after):.4f}{part}"


def fewer_errors(before: float, after: float) -> float:
    """The relative reduction of the error, in per cent, of two scores in per cent (Table 1)."""
    return 100 * (after - before) / (100 - before)


def _mean(results: list[Result]) -> str:
    scores = [one.score for one in results if one.score is not None]
    failed = sum(one.failed for one in results)
    if not scores:
        return "failed" if failed else NOT_RUN
    text = f"{mean(scores):.2f}" + (f" ± {stdev(scores):.2f}" if len(scores) > 1 else "")
    return text + (f" ({failed} failed)" if failed else "")


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _range(values: list[int]) -> str:
    return "" if not values else "-".join(map(str, sorted({min(values), max(values)})))


def _variants_table(results: list[Result], kind: str) -> str:
    arms = VARIANTS[kind]
    tasks = list(dict.fromkeys(one.run.task for one in results if one.run.arm in arms))
    if not tasks:
        return ""
    title = {
        "mix": "How the layers are mixed (Table 2)",
        "placement": "Where ELMo stands (Table 3); in the column elmo: at the input",
        "state": "The biLM's state between batches; in the column elmo: the config's",
    }[kind]
    names = (BASELINE, ELMO, *arms)
    lines = [f"{title}:", "", f"| task | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for task in tasks:
        fraction = max(one.run.fraction for one in results if one.run.task == task)
        cells = [chosen(results, task, arm, fraction) for arm in names]
        lines.append(_row([TASKS[task].title, *(_mean(one) if one else "" for one in cells)]))
    return "\n".join(lines)


def _failures(results: list[Result]) -> str:
    lines = [f"- **no score**: {one.run}: {one.failure}" for one in results if one.failed]
    not_run = "; ".join(str(one.run) for one in results if one.failure == NOT_RUN)
    if not_run:
        lines.append(f"- **{NOT_RUN}**: {not_run}")
    return "\n".join(lines)
