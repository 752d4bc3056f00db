"""Sample configs of pretraining, for runs on the CPU from any folder."""

import json
from pathlib import Path

from elmo_plugin.commands.pretrain import read_config

REPOSITORY = Path(__file__).parents[1]
SMALL = {"model.options.lstm.dim": 8, "model.options.lstm.projection_dim": 4}


def sample(name="bilm", **changes):
    """The config `training_config/NAME.jsonnet`, with `changes` of values by their dotted keys."""
    changes = {
        "train_data_path": str(REPOSITORY / "examples/text/train.txt"),
        "validation_data_path": str(REPOSITORY / "examples/text/heldout.txt"),
        "trainer.cuda_device": -1,
        **changes,
    }
    return read_config(str(REPOSITORY / f"training_config/{name}.jsonnet"), json.dumps(changes))
