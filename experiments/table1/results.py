"""Results of training runs, and the files that store them."""

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy

from elmo_plugin.bilm.files.atomic_write import atomic_write
from elmo_plugin.pages.learned_mixes import LearnedMix
from experiments.table1.item_scores import SCORES, score
from experiments.table1.one_run import CONFIG, FAILED, ITEMS, TRAINING, is_complete
from experiments.table1.plan import Run
from experiments.table1.tasks import TASKS

NOT_RUN = "not run"
# Files beside `runs.csv`, with the counts of items and the layer weights.
COUNTS, MIXES = "counts.json.gz", "mixes.json"


class Result(NamedTuple):
    """Result of one training run."""

    run: Run
    # In per cent, on test if there is a test set, else on dev at the best epoch; `None` if the run
    # failed or was not made, for the reason in `failure`.
    score: float | None
    split: str = ""  # `test` or `dev`
    epochs: int = 0
    best: int = 0  # epoch, from 1
    minutes: float = 0.0
    failure: str = ""

    @property
    def failed(self) -> bool:
        """Return whether the run was tried and has no score."""
        return self.score is None and self.failure != NOT_RUN


class Known(NamedTuple):
    """
    Results of another table's runs, which need not be trained again. `counts` has the metric's
    counts for each item (see `item_scores.item_counts`), and `mixes` has the layer weights.
    """

    results: Mapping[Run, Result] = MappingProxyType({})
    counts: Mapping[Run, Any] = MappingProxyType({})
    mixes: Mapping[Run, list[LearnedMix]] = MappingProxyType({})


NONE_KNOWN = Known()


def load(path: Path, parse: Callable[[Any], Any], advice: str) -> Any:
    """
    Read a JSON file, which is gzipped if its name ends with `.gz`, and return `parse(content)`. If
    it is damaged or `parse` fails, raise a `ValueError` that names the file and ends with `advice`.
    """
    try:
        data = path.read_bytes()
        return parse(json.loads(gzip.decompress(data) if path.suffix == ".gz" else data))
    except KeyError as error:
        reason = f"{error} is missing"
    except RecursionError:
        reason = "it is nested too deeply"
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        reason = str(error)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        reason = str(error)
    raise ValueError(f"{path} is damaged ({reason}), {advice}")


def _load_of_run(path: Path, parse: Callable[[Any], Any]) -> Any:
    advice = "expected what the run wrote; without its folder the run is made again"
    return load(path, parse, advice)


def duration(run: Run, out: Path) -> float:
    """Return the training time of a complete run, in seconds."""
    path = out / run.folder / TRAINING / "metrics.json"
    return _load_of_run(path, lambda metrics: in_seconds(metrics["training_duration"]))


def in_seconds(text: str) -> float:
    """Return the seconds of a duration that AllenNLP writes, such as `1 day, 2:03:04.5`."""
    days, _, clock = text.rpartition(", ")
    hours, minutes, seconds = (float(part) for part in clock.split(":"))
    whole_days = float(days.split()[0]) if days else 0.0
    total = ((whole_days * 24 + hours) * 60 + minutes) * 60 + seconds
    if not 0 <= total < math.inf:
        raise ValueError(f"the duration is {text!r}, expected hours:minutes:seconds")
    return total


def _percent(value: float) -> float:
    if not 0 <= value <= 100:
        raise ValueError(f"the score is {value}, expected 0 to 100")
    return value


def read(run: Run, out: Path, known: Known = NONE_KNOWN) -> Result:
    """
    Return the result of a run from the table's folder `out`. If the run is not complete there,
    return the result in `known`, or else a result without a score.
    """
    folder = out / run.folder
    if not is_complete(folder):
        if run in known.results:
            return known.results[run]
        path = folder / FAILED
        failure = path.read_text("utf-8", "replace").strip() if path.exists() else NOT_RUN
        return Result(run, None, failure=failure)

    def parse(metrics: dict[str, Any]) -> Result:
        metric = TASKS[run.task].metric
        split = "test" if f"test_{metric}" in metrics else "dev"
        prefix = {"test": "test_", "dev": "best_validation_"}[split]
        value = _percent(100 * metrics[f"{prefix}{metric}"])
        epochs, best = (int(metrics[key]) + 1 for key in ("epoch", "best_epoch"))
        return Result(
            run, value, split, epochs, best, in_seconds(metrics["training_duration"]) / 60
        )

    return _load_of_run(folder / TRAINING / "metrics.json", parse)


def read_known(path: Path) -> Known:
    """
    Return the runs that have a score in `path`, the `runs.csv` of another table. Their counts and
    mixes are read from the files in the same folder, if these exist.
    """
    names = [*Run._fields, *Result._fields[1:]]
    results: dict[Run, Result] = {}
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from error
    rows = csv.reader(io.StringIO(text, newline=""))
    row: list[str] = []
    try:
        if (header := next(rows, [])) != names:
            raise ValueError(f"the columns are {header}")
        for row in rows:
            found = _parse_row(row)
            if found.score is not None:
                results[found.run] = found
    except (ValueError, csv.Error) as error:
        raise ValueError(
            f"{path}, line {rows.line_num}: {row} is no run, expected {names}: {error}"
        ) from error
    by_folder = {run.folder.as_posix(): run for run in results}

    def named(name: str, parse: Callable[[Run, Any], Any]) -> dict[Run, Any]:
        if not (beside := path.with_name(name)).exists():
            return {}

        def parse_all(content: dict[str, Any]) -> dict[Run, Any]:
            for folder in content.keys() - by_folder.keys():
                raise ValueError(f"{folder!r} is no run with a score in {path.name}")
            return {by_folder[one]: parse(by_folder[one], found) for one, found in content.items()}

        return load(
            beside,
            parse_all,
            "expected JSON by the names of runs' folders, as a table keeps it beside runs.csv; "
            "without that file runs are known by their scores alone",
        )

    return Known(results, named(COUNTS, _parse_counts), named(MIXES, _parse_mixes))


def _parse_row(row: list[str]) -> Result:
    task, arm, fraction, seed, text, split, epochs, best, minutes, failure = row
    if task not in TASKS:
        raise ValueError(f"{task!r} is no task")
    run = Run(task, arm, float(fraction), int(seed))
    if not text:
        return Result(run, None, failure=failure)
    return Result(
        run, _percent(float(text)), split, int(epochs), int(best), float(minutes), failure
    )


def _parse_counts(run: Run, rows: Any) -> Any:
    metric = TASKS[run.task].metric
    counts, width = numpy.array(rows, dtype=float), SCORES[metric][0]
    if counts.ndim != 2 or counts.shape[1] != width:
        raise ValueError(f"the counts have the shape {counts.shape}, expected (items, {width})")
    if not (numpy.isfinite(counts) & (counts >= 0)).all():
        raise ValueError("the counts are not all finite and at least 0")
    _percent(100 * float(score(metric, counts.sum(0))))
    return rows


def _parse_mixes(run: Run, mixes: Any) -> list[LearnedMix]:
    parsed = [LearnedMix(**mix) for mix in mixes]
    for mix in parsed:
        if not mix.weights or not all(map(math.isfinite, [*mix.weights, mix.gamma])):
            raise ValueError(f"the weights of a mix are {mix.weights}, expected numbers")
    return parsed


def counts_of(runs: Iterable[Run], out: Path, known: Known = NONE_KNOWN) -> dict[Run, Any]:
    """
    Return the counts of each item, as the task's metric sums them, by run. Only complete runs and
    runs in `known` are included, and only if they have counts.
    """
    return _of_items(runs, out, "counts", _parse_counts, known.counts)


def mixes_of(
    runs: Iterable[Run], out: Path, known: Known = NONE_KNOWN
) -> dict[Run, list[LearnedMix]]:
    """Return the learned scalar mixes by run, of runs with ELMo that are complete or in `known`."""
    return _of_items(runs, out, "mixes", _parse_mixes, known.mixes)


def _of_items(
    runs: Iterable[Run],
    out: Path,
    key: str,
    parse: Callable[[Run, Any], Any],
    known: Mapping[Run, Any],
) -> dict[Run, Any]:
    found = {}
    for run in runs:
        if is_complete(out / run.folder):

            def of_run(items: dict[str, Any], run: Run = run) -> Any:
                return parse(run, items[key]) if items[key] else []

            found[run] = _load_of_run(out / run.folder / ITEMS, of_run)
        elif run in known:
            found[run] = known[run]
    return {run: value for run, value in found.items() if value}


def check_nothing_is_lost(runs: Iterable[Run], out: Path, known: Known, trains: bool) -> None:
    """
    Raise a `ValueError` if `save` would drop a run from `runs.csv` whose result is stored nowhere
    else: neither as planned and known, nor in its folder in `out`. With `trains`, incomplete runs
    in `out` will be trained before `save`.
    """
    if not (out / "runs.csv").exists():
        return
    planned = set(runs)
    for part, before, kept in zip(Known._fields, read_known(out / "runs.csv"), known, strict=True):
        lost = [
            run
            for run in before
            if not (run in planned and run in kept)
            and not is_complete(out / run.folder)
            and not (trains and run in planned and (out / run.folder / CONFIG).exists())
        ]
        if lost:
            raise ValueError(
                f"the {part} of {len(lost)} runs in {out / 'runs.csv'} would be lost, {lost[0]} "
                "for one; expected the options that it was made with, --known with all its files "
                "too, or another folder (without runs.csv they are made again)"
            )


def save(
    results: list[Result],
    counts: Mapping[Run, Any],
    mixes: Mapping[Run, list[LearnedMix]],
    out: Path,
) -> None:
    """Write `runs.csv`, and the counts and mixes beside it, in the format of `read_known`."""
    with atomic_write(out / "runs.csv") as aside, aside.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*Run._fields, *Result._fields[1:]])
        writer.writerows([*result.run, *result[1:]] for result in results)
    named = {run.folder.as_posix(): found for run, found in counts.items()}
    with atomic_write(out / COUNTS) as aside:
        aside.write_bytes(gzip.compress(json.dumps(named).encode(), mtime=0))
    lines = [
        f"{json.dumps(run.folder.as_posix())}: {json.dumps([mix._asdict() for mix in found])}"
        for run, found in mixes.items()
    ]
    with atomic_write(out / MIXES) as aside:
        aside.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def chosen(results: list[Result], task: str, arm: str, fraction: float) -> list[Result]:
    """Return the results of a table cell: the runs with this task, arm and fraction."""
    cell = (task, arm, fraction)
    return [one for one in results if (one.run.task, one.run.arm, one.run.fraction) == cell]
