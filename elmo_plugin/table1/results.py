"""What the runs of a plan gave, here or elsewhere, and the files in which a table keeps it."""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy

from elmo_plugin.bilm.files.whole_file import whole_file
from elmo_plugin.commands.layer_weights import LearnedMix
from elmo_plugin.table1.one_run import CONFIG, FAILED, ITEMS, TRAINING, is_whole, scored
from elmo_plugin.table1.plan import Run
from elmo_plugin.table1.runner import in_seconds
from elmo_plugin.table1.tasks import TASKS

NOT_RUN = "not run"
# Beside `runs.csv`.
COUNTS, MIXES = "counts.json.gz", "mixes.json"


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
    Of runs that were made elsewhere: `results`; `counts`, as `item_scores.item_counts` gives them;
    `mixes`, those of `layer_weights.learned_mixes`, in JSON.
    """

    results: Mapping[Run, Result] = MappingProxyType({})
    counts: Mapping[Run, Any] = MappingProxyType({})
    mixes: Mapping[Run, Any] = MappingProxyType({})


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
    split, score = scored(metrics, TASKS[run.task].metric)
    return Result(
        run,
        score,
        split,
        metrics["epoch"] + 1,
        metrics["best_epoch"] + 1,
        in_seconds(metrics["training_duration"]) / 60,
    )


def read_known(path: Path) -> Known:
    """
    # Parameters

    path : `Path`
        The `runs.csv` of a table that was made elsewhere; its items and mixes are beside it, if
        they are known.

    # Returns

    `Known`
        Its runs that have a score.

    # Raises

    `ValueError`
        If it is no such file, or one beside it is damaged.
    """
    names = [*Run._fields, *Result._fields[1:]]
    results: dict[Run, Result] = {}
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from error
    with io.StringIO(text, newline="") as file:
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
    by_folder = {run.folder.as_posix(): run for run in results}
    by_run = (
        {by_folder[name]: found for name, found in named.items() if name in by_folder}
        for named in (
            _named(path.with_name(COUNTS), _check_counts),
            _named(path.with_name(MIXES), _check_mixes),
        )
    )
    return Known(results, *by_run)


def _check_counts(rows: Any) -> None:
    shape = numpy.array(rows, dtype=float).shape
    if len(shape) != 2:
        raise ValueError(f"a run's counts have the shape {shape}")


def _check_mixes(mixes: Any) -> None:
    for mix in mixes:
        LearnedMix(**mix)


def _named(path: Path, check: Callable[[Any], None]) -> dict[str, Any]:
    """What is kept of runs, by the names of their folders."""
    if not path.exists():
        return {}
    try:
        data = path.read_bytes()
        named = json.loads(gzip.decompress(data) if path.name == COUNTS else data)
        if not isinstance(named, dict):
            raise ValueError(f"it holds a {type(named).__name__}")
        for found in named.values():
            check(found)
    except (ValueError, TypeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path} is damaged ({error}), expected JSON by the names of runs' folders, as a table "
            "keeps it beside runs.csv; without that file runs are known by their scores alone"
        ) from error
    return named


def counts_of(runs: Iterable[Run], out: Path, known: Known = NONE_KNOWN) -> dict[Run, Any]:
    """Of those runs whose items are known, here first."""
    found = _kept(runs, out, "counts", known.counts)
    return {run: counts for run, counts in found.items() if counts}


def mixes_of(
    runs: Iterable[Run], out: Path, known: Known = NONE_KNOWN
) -> dict[Run, list[LearnedMix]]:
    """Of those runs with ELMo whose weights of the layers are known, here first."""
    found = _kept(runs, out, "mixes", known.mixes)
    return {run: [LearnedMix(**one) for one in mixes] for run, mixes in found.items() if mixes}


def _kept(runs: Iterable[Run], out: Path, key: str, known: Mapping[Run, Any]) -> dict[Run, Any]:
    """What whole runs left behind in `items.json`; of the others what is known."""
    found = {}
    for run in runs:
        if is_whole(out / run.folder):
            found[run] = json.loads((out / run.folder / ITEMS).read_text("utf-8"))[key]
        elif run in known:
            found[run] = known[run]
    return found


def check_nothing_is_lost(runs: Iterable[Run], out: Path, known: Known, trains: bool) -> None:
    """
    Runs that were made elsewhere stand in the table's files alone, which `save` replaces.

    # Parameters

    runs : `Iterable[Run]`
        The plan of the table that is to replace the one in `out`.
    out : `Path`
        The table's folder.
    known : `Known`
        See `read_known`.
    trains : `bool`
        Whether what was begun in `out` and is not whole is trained, or a report alone is written.

    # Raises

    `ValueError`
        If the table in `out` has a run that the new one would not have.
    """
    if not (out / "runs.csv").exists():
        return
    planned = set(runs)
    for part, before, kept in zip(Known._fields, read_known(out / "runs.csv"), known, strict=True):
        lost = [
            run
            for run in before
            if not (run in planned and run in kept)
            and not is_whole(out / run.folder)
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
    """Writes `runs.csv` and what `read_known` finds beside it."""
    with whole_file(out / "runs.csv") as aside, aside.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*Run._fields, *Result._fields[1:]])
        writer.writerows([*result.run, *result[1:]] for result in results)
    named = {run.folder.as_posix(): found for run, found in counts.items()}
    with whole_file(out / COUNTS) as aside:
        aside.write_bytes(gzip.compress(json.dumps(named).encode(), mtime=0))
    lines = [
        f"{json.dumps(run.folder.as_posix())}: {json.dumps([mix._asdict() for mix in found])}"
        for run, found in mixes.items()
    ]
    with whole_file(out / MIXES) as aside:
        aside.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def chosen(results: list[Result], task: str, arm: str, fraction: float) -> list[Result]:
    """Those of one cell of a table."""
    return [
        result
        for result in results
        if (result.run.task, result.run.arm, result.run.fraction) == (task, arm, fraction)
    ]
