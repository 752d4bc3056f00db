"""Disturbs a run at a given batch, and compares what is left with a run that was left alone."""

import os

import torch
from allennlp.training.callbacks import TrainerCallback

NUM_EPOCHS, NUM_BATCHES = 3, 4


@TrainerCallback.register("at_batch")
class AtBatch(TrainerCallback):
    """Calls `AtBatch.action` once, at the end of batch `AtBatch.point` (epoch, batch)."""

    point = action = None

    def on_batch(
        self, trainer, inputs, outputs, metrics, epoch, batch_number, is_training, **kwargs
    ):
        if AtBatch.point == (epoch, batch_number if is_training else "validation"):
            AtBatch.point = None
            AtBatch.action()


def send(number):
    return lambda: os.kill(os.getpid(), number)


def names(directory):
    return sorted(path.name for path in directory.glob("*.th*"))


def assert_same_end(directory, undisturbed):
    for name in ("best.th", f"model_state_e{NUM_EPOCHS}_b0.th"):
        found, wanted = torch.load(directory / name), torch.load(undisturbed / name)
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[key], wanted[key]) for key in wanted), name


def validation(metrics):
    return {key: value for key, value in metrics.items() if "validation" in key}
