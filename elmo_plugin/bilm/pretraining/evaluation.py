"""Losses and perplexities of held-out text."""

import math
from collections.abc import Iterable

import torch

from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.bilm.pretraining.language_model import LanguageModel
from elmo_plugin.bilm.pretraining.loader import BatchPair


def sum_of_losses(
    model: LanguageModel,
    batches: Iterable[BatchPair],
    states: tuple[LstmState, LstmState] | None = None,
) -> tuple[float, float, int]:
    """
    Return the sums of the forward and the backward losses of consecutive batches, with the full
    softmax and without dropout, and the number of batches. A batch's loss is its mean in nats per
    word. `states` are the LSTM states before the first batch (default: zeros).
    """
    was_training = model.training
    model.eval()
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


def loss_metrics(forward: float, backward: float, sampled: bool) -> dict[str, float]:
    """
    Return loss and perplexities by name, given the mean losses of both directions in nats per word.

    `perplexity` is the geometric mean of both directions' perplexities, as bilm-tf prints it
    (bilm/training.py at 7cffee2, `test`). That of a `sampled` softmax is not comparable with it.
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
