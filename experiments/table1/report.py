"""Tables of training results, in Markdown."""

from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy

from elmo_plugin.bilm.files.atomic_write import atomic_write
from experiments.table1.item_scores import paired_bootstrap, score
from experiments.table1.plan import BASELINE, ELMO, VARIANTS, Run
from experiments.table1.results import (
    NONE_KNOWN,
    NOT_RUN,
    Known,
    Result,
    chosen,
    counts_of,
    mixes_of,
    read,
    save,
)
from experiments.table1.tasks import TASKS


def write(runs: list[Run], out: Path, about: dict[str, Any], known: Known = NONE_KNOWN) -> str:
    """
    Write `table.md` and the files of `results.save` to the table's folder `out`. Return the text of
    `table.md`, with a line for each item of `about` below the table. Results in `known` are used
    for runs that are not in `out`.
    """
    results = [read(run, out, known) for run in runs]
    counts, mixes = counts_of(runs, out, known), mixes_of(runs, out, known)
    parts = [_main_table(results, counts)]
    parts += [_variants_table(results, kind) for kind in VARIANTS]
    parts.append(_failures(results))
    parts.append("\n".join(f"- {name}: {value}" for name, value in about.items()))
    text = "\n\n".join(part for part in parts if part) + "\n"
    with atomic_write(out / "table.md") as aside:
        aside.write_text(text, "utf-8")
    save(results, counts, mixes, out)
    return text


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
        finished = [[one for one in arm if one.score is not None] for arm in arms]
        cells = [_mean(arm) for arm in arms]
        if all(finished):
            before, after = (mean([one.score or 0.0 for one in arm]) for arm in finished)
            fewer = f"{fewer_errors(before, after):.1f}%" if before < 100 else ""
            cells += [f"{after - before:+.2f}", fewer]
        else:
            cells += ["", ""]
        paper = ""
        if row.paper is not None:
            paper = f"{row.paper[0]} → {row.paper[1]}, {fewer_errors(*row.paper):.1f}%"
        scored = next((one.split for arm in finished for one in arm), "")
        both = (
            [str(len(arm)) for arm in finished],
            [_range([one.epochs for one in arm]) for arm in finished],
            [f"{sum(one.minutes for one in arm):.0f}" for arm in finished],
        )
        cells = [row.title, data, scored, *cells, paper, _p(task, finished, counts)]
        lines.append(_row([*cells, *(" / ".join(pair) for pair in both)]))
    return "\n".join(lines)


def _p(task: str, arms: list[list[Result]], counts: Mapping[Run, Any]) -> str:
    """
    Return the p value of the paired bootstrap as text. It uses only runs that stored the counts of
    each item; if some did not, the text says how many runs were used. The text also has the mean
    scores computed from the counts, if they differ from the mean scores of the runs.
    """
    before, after = (
        [numpy.array(counts[one.run]) for one in arm if one.run in counts] for arm in arms
    )
    if len({len(one) for one in (*before, *after)}) > 1:
        return "items differ"
    if not before or not after:
        return ""
    numbers = [len(before), len(after)]
    part = "" if numbers == [len(arm) for arm in arms] else f" ({numbers[0]} / {numbers[1]} seeds)"
    metric = TASKS[task].metric
    p = f"{paired_bootstrap(metric, before, after):.4f}{part}"
    # Counts come from batches of one item. With `state: "carry"`, vectors depend on the batch, so
    # the scores from these counts may differ from the reported ones.
    scores = [
        100 * mean(float(score(metric, one.sum(0))) for one in arm) for arm in (before, after)
    ]
    of_runs = [mean(one.score or 0.0 for one in arm if one.run in counts) for arm in arms]
    if any(abs(one - other) > 0.005 for one, other in zip(scores, of_runs, strict=True)):
        p += f" (of items one by one: {scores[0]:.2f} / {scores[1]:.2f})"
    return p


def fewer_errors(before: float, after: float) -> float:
    """Return the relative error reduction from score `before` to `after`, all in per cent."""
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
