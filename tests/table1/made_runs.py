"""Folders as whole runs leave them, without training."""

import json

from elmo_plugin.table1.one_run import CONFIG, ITEMS, TRAINING
from elmo_plugin.table1.tasks import TASKS


def make(out, run, score, counts=((1, 1), (0, 1)), split="best_validation", epochs=5, mixes=()):
    folder = out / run.folder / TRAINING
    folder.mkdir(parents=True)
    metrics = {
        f"{split}_{TASKS[run.task].metric}": score,
        "epoch": epochs - 1,
        "best_epoch": 2,
        "training_duration": "0:30:00.5",
    }
    (folder / "metrics.json").write_text(json.dumps(metrics))
    items = {"data": "dev", "counts": counts, "mixes": [mix._asdict() for mix in mixes]}
    (out / run.folder / ITEMS).write_text(json.dumps(items))
    (out / run.folder / CONFIG).write_text("{}\n")
