"""
One run of a table, in a process of its own: `python -m elmo_plugin.table1.one_run FOLDER PID`.
Trains what `FOLDER/config.json` says, or goes on with it, and keeps the hits and misses of each
item and the layers' weights.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from elmo_plugin.bilm.files.whole_file import whole_file
from elmo_plugin.bilm.kernels.allocator import keep_freed_memory
from elmo_plugin.table1.item_scores import item_counts

# What a run leaves in its folder.
CONFIG, TRAINING, ITEMS, FAILED, LOG = "config.json", "training", "items.json", "failed.txt", "log"


def is_whole(folder: Path) -> bool:
    """Whether there is nothing left to do."""
    return (folder / ITEMS).exists() and (folder / TRAINING / "metrics.json").exists()


def main(folder: Path, table: int) -> None:
    """
    # Parameters

    folder : `Path`
        With `config.json`. Gets `training/`, what `allennlp train -s` makes, and `items.json`: the
        counts of each item of the test set, or where there is none of the dev set, and the
        layers' weights.
    table : `int`
        The process that started this one, which ends with it.
    """
    _end_with(table)
    keep_freed_memory()
    from allennlp.commands.train import train_model_from_file
    from allennlp.common.plugins import import_plugins
    from allennlp.models.archival import archive_model

    import_plugins()
    import elmo_plugin.plugin  # noqa: F401
    from elmo_plugin.commands.layer_weights import mixes_in, parameters_in

    training = folder / TRAINING
    if _is_json(training / "metrics.json"):
        # The archive is written behind it, and may have been cut off.
        archive_model(str(training))
    else:
        begun = (training / "config.json").exists()
        train_model_from_file(
            str(folder / CONFIG),
            str(training),
            recover=begun,
            force=not begun,
            file_friendly_logging=True,
        )
    config = json.loads((folder / CONFIG).read_text())
    path = config.get("test_data_path") or config["validation_data_path"]
    found = {
        "counts": item_counts(str(training / "model.tar.gz"), path),
        "mixes": [mix._asdict() for mix in mixes_in(parameters_in(training / "best.th"))],
    }
    with whole_file(folder / ITEMS) as aside:
        aside.write_text(json.dumps(found) + "\n")


def scored(metrics: dict[str, Any], metric: str) -> tuple[str, float]:
    """Of a `metrics.json`: `test` or `dev`, and the score on it in per cent."""
    if f"test_{metric}" in metrics:
        return "test", 100 * metrics[f"test_{metric}"]
    return "dev", 100 * metrics[f"best_validation_{metric}"]


def _is_json(path: Path) -> bool:
    """Whether it is there and was not cut off."""
    try:
        json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    return True


def _end_with(table: int) -> None:
    """A killed table leaves no run behind that would write where the next one does."""

    def watch() -> None:
        while os.getppid() == table:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, name="end_with_the_table", daemon=True).start()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
