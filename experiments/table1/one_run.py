"""
Train one run of a table, as a process of its own. `python -m experiments.table1.one_run FOLDER PID`
starts or resumes training with `FOLDER/config.json`. Then it stores the metric's counts for each
item, and the layer weights.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

from elmo_plugin.bilm.files.atomic_write import atomic_write
from elmo_plugin.bilm.kernels.machine import keep_freed_memory
from experiments.table1.item_scores import item_counts

# Names of files and folders in a run's folder.
CONFIG, TRAINING, ITEMS, FAILED, LOG = "config.json", "training", "items.json", "failed.txt", "log"


def is_complete(folder: Path) -> bool:
    """Return whether the run in this folder is complete."""
    return (folder / ITEMS).exists() and (folder / TRAINING / "metrics.json").exists()


def main(folder: Path, table: int) -> None:
    """
    Train the run in `folder`, which has `config.json`. Write `training/`, the folder of `allennlp
    train -s`, and `items.json`. The process ends when its parent, whose id is `table`, does.
    """
    _end_with(table)
    keep_freed_memory()
    from allennlp.commands.train import train_model_from_file
    from allennlp.common.plugins import import_plugins
    from allennlp.models.archival import archive_model

    import_plugins()
    import elmo_plugin.plugin  # noqa: F401
    from elmo_plugin.pages.learned_mixes import mixes_in, parameters_in

    training = folder / TRAINING
    if _is_json(training / "metrics.json"):
        # Training is complete, but the archive, written last, may be truncated. Write it again.
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
    with atomic_write(folder / ITEMS) as aside:
        aside.write_text(json.dumps(found) + "\n")


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return False
    return True


def _end_with(table: int) -> None:
    """End this process when its parent ends, so that two processes never write the same run."""

    def watch() -> None:
        while os.getppid() == table:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, name="end_with_the_table", daemon=True).start()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
