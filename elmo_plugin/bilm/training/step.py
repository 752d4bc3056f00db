"""One optimizer step: losses, gradients summed over processes, clipping, and the update."""

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from elmo_plugin.bilm.files.adagrad_state import PREFIX
from elmo_plugin.bilm.kernels.backend import auto_training_dtype
from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.bilm.training.language_model import LanguageModel
from elmo_plugin.bilm.training.optimization import (
    check_takes_sparse,
    clip_grad_norm,
    make_optimizer,
    rate_factor,
)
from elmo_plugin.bilm.training.processes import Processes
from elmo_plugin.bilm.training.settings import LoopSettings
from elmo_plugin.bilm.training.shared_rows import all_reduce_rows
from elmo_plugin.bilm.training.streams import BatchPair

States = tuple[LstmState, LstmState]


class StepResult(NamedTuple):
    """
    Result of an optimizer step.

    `losses`: forward and backward mean loss over all processes, in nats per word. `norm`: norm of
    the gradients before clipping; `None` without clipping. `flags`: sum of each flag over all
    processes.
    """

    losses: tuple[float, float]
    norm: float | None
    flags: list[float]


class Stepper:
    """
    Class that performs optimizer steps, and carries the LSTM states from step to step.

    The random numbers of a step depend only on the seed, the step's number and the process. The
    sampled negatives are the same in all processes.

    # Parameters

    model : `LanguageModel`
    settings : `LoopSettings`
    processes : `Processes`
    paths : `Sequence[str | Path]`
        Files of the training text, for error messages.
    """

    def __init__(
        self,
        model: LanguageModel,
        settings: LoopSettings,
        processes: Processes,
        paths: Sequence[str | Path] = (),
    ) -> None:
        self.model, self.settings, self.processes, self.paths = model, settings, processes, paths
        self.optimizer = make_optimizer(
            ((PREFIX + name, one) for name, one in model.named_parameters()), settings.optimizer
        )
        if model.softmax.sampler is not None and model.softmax.sparse:
            check_takes_sparse(self.optimizer)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        model.softmax.sums_rows = processes.size > 1
        self.states: States | None = None
        # Fraction of all streams that this process computes.
        self.own_weight = 1.0

    def choose_dtype(self, figures: dict[str, Any]) -> None:
        """
        Choose the dtype of matrix products, if the model's `dtype` is `"auto"`.

        The choice is stored as `training_dtype` in `figures`, the run's metrics. A resumed run
        keeps the stored choice. Raise a `ValueError` if the processes choose differently.
        """
        if self.model.dtype != "auto":
            return
        here = auto_training_dtype(self.model.softmax.weight.device) or "float32"
        chosen = figures.setdefault("training_dtype", here)
        self.processes.check_same(dtype=chosen)
        self.model.set_training_dtype(None if chosen == "float32" else chosen)

    def step(
        self, pairs: list[BatchPair], number: int, num_steps: int, flags: list[float]
    ) -> StepResult:
        """
        Perform one optimizer step, with the gradients accumulated over all `pairs`.

        `number` counts steps from 1 to `num_steps`. `flags` are numbers, such as a request to stop,
        that are summed over processes together with the losses. Raise a `ValueError` if the loss
        or the norm of the gradients is not finite; the weights are then unchanged.
        """
        settings, model = self.settings, self.model
        if settings.frozen_steps:
            model.bilm.requires_grad_(number > settings.frozen_steps)
        self.optimizer.zero_grad(set_to_none=True)
        own, states, drawn = (0.0, 0.0), self.states, []
        for index, pair in enumerate(pairs):
            occasion = f"{settings.seed} {number} {index}"
            negatives = model.softmax.draw(_seed(f"{occasion} negatives"))
            drawn += [one.ids for one in negatives or ()]
            torch.manual_seed(_seed(f"{occasion} {self.processes.rank}"))
            output = model(pair, states, negatives)
            (output.loss * (settings.gradient_scale / len(pairs))).backward()
            states = output.states
            own = (
                own[0] + output.forward_loss.item() / len(pairs),
                own[1] + output.backward_loss.item() / len(pairs),
            )
        forward, backward, *flags = self.processes.total(
            *(loss * self.own_weight for loss in own), *flags
        )
        if not math.isfinite(forward + backward):
            bad = not math.isfinite(sum(own))
            raise ValueError(
                f"the loss is {(forward + backward) / 2} at step {number}, expected a finite "
                "number; checkpoints before it are intact. The batch was read "
                f"{'from ' + _sources(pairs, self.paths) if bad else 'by another process'}"
            )
        self._sum_gradients(drawn)
        norm = self._clip(number)
        factor = rate_factor(settings.learning_rate_scheduler, number, num_steps)
        for group, rate in zip(self.optimizer.param_groups, self.rates):
            group["lr"] = rate * factor
        self.optimizer.step()
        self.states = states
        return StepResult((forward, backward), norm, flags)

    def _sum_gradients(self, negatives: list[torch.Tensor]) -> None:
        if self.processes.size == 1:
            return
        softmax = self.model.softmax
        by_rows = {softmax.weight, softmax.bias} if negatives else set()
        self.processes.all_reduce_gradients(
            [one for one in self.model.parameters() if one not in by_rows], self.own_weight
        )
        if negatives:
            all_reduce_rows(softmax, torch.cat(negatives), self.processes, self.own_weight)

    def _clip(self, number: int) -> float | None:
        if not self.settings.grad_norm:
            return None
        norm = float(clip_grad_norm(self.model.parameters(), self.settings.grad_norm))
        if not math.isfinite(norm):
            raise ValueError(
                f"the norm of the gradients is {norm} at step {number}, expected a finite number; "
                "checkpoints before it are intact"
            )
        return norm

    @property
    def rate(self) -> float:
        """Learning rate of the last step, for the first parameter group."""
        return float(self.optimizer.param_groups[0]["lr"])

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the model's weights, keyed by their names in checkpoints."""
        return {PREFIX + name: tensor for name, tensor in self.model.state_dict().items()}

    def load_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Load weights, keyed by their names in checkpoints, into the model."""
        self.model.load_state_dict(
            {name.removeprefix(PREFIX): tensor for name, tensor in weights.items()}
        )


def _seed(occasion: str) -> int:
    return int.from_bytes(hashlib.blake2b(occasion.encode(), digest_size=8).digest(), "big") >> 1


def _sources(pairs: list[BatchPair], paths: Sequence[str | Path]) -> str:
    lines = sorted(
        {
            f"{paths[file]}:{line}"
            for pair in pairs
            for one in pair.sources
            for file, line in one.tolist()
        }
    )
    shown = ", ".join(lines[:20])
    return shown if len(lines) <= 20 else f"{shown} and {len(lines) - 20} more"
