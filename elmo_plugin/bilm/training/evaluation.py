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
    forward, backward, count = sum_of_losses(model, batches)
    if count == 0:
        raise ValueError(
            "no batch to measure perplexity on: the held-out text holds fewer tokens than one batch"
        )
    return Perplexity(math.exp(forward / count), math.exp(backward / count))


def sum_of_losses(model: LanguageModel, batches: Iterable[BatchPair]) -> tuple[float, float, int]:
    """
    As `perplexity`, but the sums of both directions' losses over batches, in nats per word, and how
    many batches there were.
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
    return forward, backward, count


def figures(forward: float, backward: float, sampled: bool) -> dict[str, float]:
    """
    What is told of both directions' mean losses: `loss`, and `perplexity` of each direction and of
    both; of a sampled softmax only `sampled_perplexity`, which is not comparable.
    """
    loss = (forward + backward) / 2
    average = math.exp(min(loss, 700.0))
    if sampled:
        return {"loss": loss, "sampled_perplexity": average}
    return {
        "loss": loss,
        "forward_perplexity": math.exp(min(forward, 700.0)),
        "backward_perplexity": math.exp(min(backward, 700.0)),
        "perplexity": average,
    }
