"""
Draw the picture at the top of README.md, with the scores of baseline and ELMo on every task:
`python -m experiments.table1.picture docs/assets/table1.svg results/table1/runs.csv
results/table1/present/runs.csv`. A run in a later table replaces the same run of an earlier one.

The colours are legible on white and on black pages.
"""

import sys
from pathlib import Path
from statistics import mean

from elmo_plugin.bilm.files.atomic_write import atomic_write
from experiments.table1.plan import BASELINE, ELMO
from experiments.table1.results import chosen, read_known
from experiments.table1.tasks import TASKS

# In pixels: width of the picture, left and right end of the axis, and height of a row.
WIDTH, LEFT, RIGHT, ROW = 560, 170, 480, 34
TEXT, FAINT, BEFORE, AFTER = "#7a7f87", "#7a7f8755", "#9aa0a8", "#e8590c"
METRICS = {"accuracy": "accuracy", "coref_f1": "average F1"}


def draw(*runs: Path) -> str:
    """Return an SVG of the mean scores in tables' `runs.csv`; later ones replace earlier ones."""
    by_run = {run: result for path in runs for run, result in read_known(path).results.items()}
    results = list(by_run.values())
    rows: list[tuple[str, float, float]] = []
    for name, task in TASKS.items():
        arms = [
            [one.score for one in chosen(results, name, arm, 1.0) if one.score is not None]
            for arm in (BASELINE, ELMO)
        ]
        if all(arms):
            title = f"{task.title}, {METRICS.get(task.metric, 'F1')}"
            rows.append((title, mean(arms[0]), mean(arms[1])))
    bottom = 52 + ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + 30}" '
        f'viewBox="0 0 {WIDTH} {bottom + 30}" '
        f'font-family="sans-serif" font-size="15" fill="{TEXT}" role="img">',
        "<title>Scores without and with ELMo: "
        + "; ".join(f"{title} {low:.1f} and {high:.1f}" for title, low, high in rows)
        + "</title>",
        f'<circle cx="{LEFT}" cy="20" r="7" fill="{BEFORE}"/>'
        f'<text x="{LEFT + 14}" y="25">baseline</text>'
        f'<circle cx="{LEFT + 110}" cy="20" r="7" fill="{AFTER}"/>'
        f'<text x="{LEFT + 124}" y="25">the same model with ELMo</text>',
    ]
    for value in range(30, 81, 10):
        parts.append(
            f'<path d="M{_x(value):.1f} 40V{bottom}" stroke="{FAINT}"/>'
            f'<text x="{_x(value):.1f}" y="{bottom + 20}" text-anchor="middle" '
            f'font-size="13">{value}</text>'
        )
    for number, (title, low, high) in enumerate(rows):
        y = 62 + ROW * number
        parts.append(
            f'<text x="{LEFT - 20}" y="{y + 5}" text-anchor="end">{title}</text>'
            f'<path d="M{_x(low):.1f} {y}H{_x(high):.1f}" stroke="{AFTER}" stroke-width="4"/>'
            f'<circle cx="{_x(low):.1f}" cy="{y}" r="7" fill="{BEFORE}"/>'
            f'<circle cx="{_x(high):.1f}" cy="{y}" r="7" fill="{AFTER}"/>'
            f'<text x="{RIGHT + 20}" y="{y + 5}" font-weight="bold">{high - low:+.1f}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(score: float) -> float:
    return LEFT + (RIGHT - LEFT) * (score - 30) / 50


if __name__ == "__main__":
    with atomic_write(sys.argv[1]) as aside:
        aside.write_text(draw(*map(Path, sys.argv[2:])), "utf-8")
