"""Held-out perplexity."""

import math
from collections.abc import Iterable, Sequence

import torch

from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.bilm.training.language_model import LanguageModel
from elmo_plugin.bilm.training.streams import BatchPair


def sum_of_losses(
    model: LanguageModel,
    batches: Iterable[BatchPair],
    states: tuple[LstmState, LstmState] | None = None,
) -> tuple[float, float, int]:
    """
    The sums of both directions' losses over batches, in the order of their streams, in nats per
    word, and how many batches there were. Full softmax, no dropout, state carried from batch to
    batch, at first `states`, by default zeros; the model's training mode is put back afterwards.
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


def figures(forward: float, backward: float, sampled: bool) -> dict[str, float]:
    """
    What is told of both directions' mean losses: `loss`, and `perplexity` of each direction and of
    both, their geometric mean, which bilm-tf prints (bilm/training.py at 7cffee2, `test`); of a
    sampled softmax only `sampled_perplexity`, which is not comparable.
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


def heldout_figures(sums: Sequence[float]) -> dict[str, float]:
    """
    `figures` of what `sum_of_losses` gave, of all processes.

    # Raises

    `ValueError`
        If the loss is no longer a number: no epoch could be better than it.
    """
    forward, backward, count = sums
    if not math.isfinite(forward + backward):
        raise ValueError(
            f"the held-out loss is {(forward + backward) / (2 * count)}, expected a finite number; "
            "what was saved before this epoch is intact"
        )
    return figures(forward / count, backward / count, sampled=False)
