"""Folders as complete runs leave them, made without training."""

import json

from experiments.table1.item_scores import SCORES
from experiments.table1.one_run import CONFIG, ITEMS, TRAINING
from experiments.table1.tasks import TASKS


def make(out, run, score, counts=None, split="best_validation", epochs=5, mixes=()):
    folder = out / run.folder / TRAINING
    folder.mkdir(parents=True)
    width = SCORES[TASKS[run.task].metric][0]
    metrics = {
        f"{split}_{TASKS[run.task].metric}": score,
        "epoch": epochs - 1,
        "best_epoch": 2,
        "training_duration": "0:30:00.5",
    }
    (folder / "metrics.json").write_text(json.dumps(metrics))
    items = {
        "counts": counts or [[1] * width, [0] + [1] * (width - 1)],
        "mixes": [mix._asdict() for mix in mixes],
    }
    (out / run.folder / ITEMS).write_text(json.dumps(items))
    (out / run.folder / CONFIG).write_text("{}\n")


def items(score):
    """The counts of 100 items of which so many are right."""
    right = round(100 * score)
    return [[1.0, 1.0]] * right + [[0.0, 1.0]] * (100 - right)


def make_all(out, runs, scores):
    """Runs of a task that is scored by accuracy."""
    for run, score in zip(runs, scores):
        make(out, run, score, items(score))
