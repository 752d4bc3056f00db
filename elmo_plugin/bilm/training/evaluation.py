"""Held-out perplexity."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch

from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.bilm.training.language_model import LanguageModel
from elmo_plugin.bilm.training.streams import BatchPair


class Perplexity(NamedTuple):
    """
    `forward`, `backward`: perplexity per word of each direction; `average`: their geometric mean,
    the figure bilm-tf prints (bilm/training.py at 7cffee2, `test`).
    """

    forward: float
    backward: float

    @property
    def average(self) -> float:
        """What the two have in common: their geometric mean."""
        return math.sqrt(self.forward * self.backward)


def perplexity(model: LanguageModel, batches: Iterable[BatchPair]) -> Perplexity:
    """
    Full softmax, no dropout, state carried from batch to batch.

    # Parameters

    model : `LanguageModel`
        What is measured; its training mode is put back afterwards.
    batches : `Iterable[BatchPair]`
        In the order of their streams.

    # Returns

    `Perplexity`

    # Raises

    `ValueError`
        If there is no batch.
    """
    was_training = model.training
    model.eval()
    states: tuple[LstmState, LstmState] | None = None
    forward = backward = 0.0
    count = 0
    try:
        with torch.no_grad():
            for batch in batches:
                output = model(batch, states)
                states = output.states
                forward += output.forward_loss.item()
                backward += output.backward_loss.item()
                count += 1
    finally:
        model.train(was_training)
    if count == 0:
        raise ValueError(
            "no batch to measure perplexity on: the held-out text holds fewer tokens than one batch"
        )
    return Perplexity(math.exp(forward / count), math.exp(backward / count))
