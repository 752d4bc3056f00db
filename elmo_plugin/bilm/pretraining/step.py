"""One optimizer step: losses, gradients summed over processes, clipping, and the update."""

import hashlib
import itertools
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from elmo_plugin.bilm.files.adagrad_state import PREFIX
from elmo_plugin.bilm.kernels.backend import BiLstmState, auto_training_dtype
from elmo_plugin.bilm.pretraining.captured import CapturedStep, seed_generators
from elmo_plugin.bilm.pretraining.config import LoopSettings
from elmo_plugin.bilm.pretraining.language_model import LanguageModel
from elmo_plugin.bilm.pretraining.loader import BatchPair
from elmo_plugin.bilm.pretraining.optimization import (
    check_takes_sparse,
    clip_grad_norm,
    make_optimizer,
)
from elmo_plugin.bilm.pretraining.processes import Processes, all_reduce_rows
from elmo_plugin.bilm.pretraining.softmax import Negatives

logger = logging.getLogger(__name__)

WRONG = "expected a finite number; checkpoints before it are intact"
# Number of steps that a GPU is given before Python waits for their losses.
STEPS_AHEAD = 64


class Step(NamedTuple):
    """
    Report on one optimizer step.

    `steps`: number of steps since the run began, including this one. `forward_loss`,
    `backward_loss`: means over all processes, in nats per word. `norm`: norm of the gradients
    before clipping; `None` without clipping. `num_batches`: number of batches.
    """

    steps: int
    forward_loss: float
    backward_loss: float
    norm: float | None
    num_batches: int

    @property
    def loss(self) -> float:
        """Mean of the forward and the backward loss."""
        return (self.forward_loss + self.backward_loss) / 2


class Stepper:
    """
    Class that performs optimizer steps, and carries the LSTM states from step to step.

    The random numbers of a step depend only on the seed, the step's number and the process. The
    sampled negatives are the same in all processes.

    Error messages name lines of `paths`, the files of the training text.
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
        self.states: BiLstmState | None = None
        # Number of all streams, and those that this process computes.
        self.num_rows, self.own_rows = 1, range(1)
        # Whether a CUDA graph may compute the gradients, and change the weights by them.
        self.captures = True
        self.captures_updates = (
            processes.size == 1
            and settings.num_gradient_accumulation_steps == 1
            and isinstance(self.optimizer, torch.optim.Adam)
            and all(group["fused"] for group in self.optimizer.param_groups)
        )
        self.graph: CapturedStep | None = None
        self._steps_ahead = 1 if processes.device.type == "cpu" else STEPS_AHEAD
        # Number, losses and norm, and batches of steps that the GPU may still be computing.
        self._taken: list[tuple[int, torch.Tensor, list[BatchPair]]] = []

    @property
    def own_weight(self) -> float:
        """Fraction of all streams that this process computes."""
        return len(self.own_rows) / self.num_rows

    def choose_dtype(self, metrics: dict[str, Any]) -> None:
        """
        Choose the dtype of matrix products, if the model's `dtype` is `"auto"`.

        The choice is stored in the run's `metrics`, and a resumed run keeps it.
        """
        if self.model.dtype != "auto":
            return
        here = auto_training_dtype(self.model.softmax.weight.device) or "float32"
        chosen = metrics.setdefault("training_dtype", here)
        self.processes.check_same(dtype=chosen)
        self.model.set_training_dtype(None if chosen == "float32" else chosen)

    def step(
        self,
        pairs: list[BatchPair],
        number: int,
        num_steps: int,
        flags: list[float],
        wait: bool = True,
    ) -> tuple[list[Step], list[float]]:
        """
        Perform step `number`, from 1, of `num_steps`, with the gradients accumulated over all
        `pairs`. `flags` are numbers, such as a request to stop, that are summed over processes.

        A GPU is given up to `STEPS_AHEAD` steps before Python waits for their results; with `wait`,
        it waits for this one. Return the results of the steps since the last result and the sums of
        the flags, or nothing and zeros.

        Raise a `ValueError` if a loss or the norm of gradients is not finite. On a CPU, the weights
        are then unchanged.
        """
        if self.settings.frozen_steps:
            self.model.bilm.requires_grad_(number > self.settings.frozen_steps)
        schedule = self.settings.learning_rate_scheduler
        factor = 1.0 if schedule is None else schedule.factor(number, num_steps)
        for group, rate in zip(self.optimizer.param_groups, self.rates):
            group["lr"] = rate * factor
        with torch.cuda.device_of(self.model.softmax.weight):  # graphs are of the current GPU
            losses, norm = self._compute_gradients(pairs, number)
        if not (is_updated := norm is not None):
            norm = self._clip()
        self._taken.append((number, torch.cat([losses, norm.view(1)]), pairs))
        results: list[Step] = []
        totals = [0.0] * len(flags)
        if wait or len(self._taken) >= self._steps_ahead:
            results, totals = self._results(flags)
            self._taken = []
        if not is_updated:
            self.optimizer.step()
        return results, totals

    def _compute_gradients(
        self, pairs: list[BatchPair], number: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        Return the mean losses of both directions, and the norm of the gradients if a CUDA graph has
        changed the weights by them as well.
        """
        settings, model = self.settings, self.model
        dropout = model.dropout if number > settings.dropout_free_steps else 0.0
        self.optimizer.zero_grad(set_to_none=True)
        scale = settings.gradient_scale / len(pairs)
        drawn: list[Negatives] = []
        losses: list[torch.Tensor] = []
        for index, pair in enumerate(pairs):
            occasion = f"{settings.seed} {number} {index}"
            negatives = model.softmax.draw(_seed(f"{occasion} negatives"))
            drawn += negatives or ()
            kept = self._kept_rows(f"{occasion} resets")
            seed = _seed(f"{occasion} {self.processes.rank}")
            while (graph := self._captured(scale)) is not None:
                try:
                    rates = [group["lr"] for group in self.optimizer.param_groups]
                    given = pair, self.states, negatives, kept, dropout, seed, rates
                    found, self.states = graph(*given)
                    break
                except RuntimeError as error:  # of CUDA, the driver or Triton
                    what = "for updates" if graph.update else "at all"
                    logger.warning("A CUDA graph is not used %s: %s", what, error)
                    self.captures, self.captures_updates = graph.update is not None, False
                    self.graph = None
            else:
                seed_generators(seed, self.processes.device)
                found, self.states = model.add_gradients(
                    pair, self.states, kept, negatives, dropout, scale
                )
            losses.append(found[:2])
        mean = torch.stack(losses).mean(dim=0)
        if graph is not None and graph.update is not None:
            return mean, found[2]
        self._sum_gradients(drawn)
        return mean, None

    def _kept_rows(self, occasion: str) -> torch.Tensor | None:
        """Return the streams whose states stay, the same for any number of processes."""
        if not self.settings.reset_probability:
            return None
        generator = torch.Generator().manual_seed(_seed(occasion))
        kept = torch.rand(2, self.num_rows, 1, generator=generator)
        return (kept >= self.settings.reset_probability)[
            :, self.own_rows.start : self.own_rows.stop
        ]

    def _captured(self, scale: float) -> CapturedStep | None:
        """Return the CUDA graph that takes this step, or `None` if there is none."""
        own = (one for group in self.optimizer.param_groups for one in group["params"])
        # An update that makes the optimizer's tensors would make them anew in each repetition.
        has_state = all(one in self.optimizer.state for one in own if one.requires_grad)
        if not self.captures or (self.captures_updates and not has_state):
            return None
        if self.graph is None or self.graph.scale != scale:
            if not (self.model.fuses_directions and self.model.softmax.fuses):
                return None
            update = self._update if self.captures_updates else None
            self.graph = CapturedStep(self.model, scale, update)
        return self.graph

    def _update(self, rates: torch.Tensor) -> torch.Tensor:
        """Clip and take the optimizer's step in a CUDA graph; return the norm of the gradients."""
        groups = self.optimizer.param_groups
        usual = [{name: group[name] for name in ("lr", "capturable")} for group in groups]
        for group, rate in zip(groups, rates):
            group |= {"lr": rate, "capturable": True}
        try:
            norm = self._clip()
            self.optimizer.step()
        finally:
            for group, own in zip(groups, usual):
                group |= own
        return norm

    def _clip(self) -> torch.Tensor:
        """Clip the gradients; return their norm, or 0 without clipping."""
        if not self.settings.grad_norm:
            return self.model.softmax.weight.new_zeros(())
        return clip_grad_norm(self.model.parameters(), self.settings.grad_norm)

    def _results(self, flags: list[float]) -> tuple[list[Step], list[float]]:
        """Return the steps taken and the flags, over all processes; raise an error, see `step`."""
        own = torch.stack([figures for _, figures, _ in self._taken]).tolist()
        weighed = [loss * self.own_weight for *losses, _ in own for loss in losses]
        totals = self.processes.total(*weighed, *flags)
        results = []
        for (number, _, pairs), (*here, norm), *both in zip(
            self._taken, own, totals[::2], totals[1::2]
        ):
            norm = norm if self.settings.grad_norm else None
            step = Step(number, both[0], both[1], norm, len(pairs))
            if not math.isfinite(step.loss):
                bad = not math.isfinite(sum(here))
                raise ValueError(
                    f"the loss is {step.loss} at step {number}, {WRONG}. The batch was read "
                    f"{'from ' + _sources(pairs, self.paths) if bad else 'by another process'}"
                )
            if norm is not None and not math.isfinite(norm):
                raise ValueError(f"the norm of the gradients is {norm} at step {number}, {WRONG}")
            results.append(step)
        return results, totals[len(weighed) :]

    def _sum_gradients(self, negatives: list[Negatives]) -> None:
        if self.processes.size == 1:
            return
        softmax = self.model.softmax
        by_rows = {softmax.weight, softmax.bias} if negatives else set()
        self.processes.all_reduce_gradients(
            [one for one in self.model.parameters() if one not in by_rows], self.own_weight
        )
        if negatives:
            ids = torch.cat([softmax.word_ids(one) for one in negatives])
            all_reduce_rows(softmax, ids, self.processes, self.own_weight)


def _seed(occasion: str) -> int:
    return int.from_bytes(hashlib.blake2b(occasion.encode(), digest_size=8).digest(), "big") >> 1


def _sources(pairs: list[BatchPair], paths: Sequence[str | Path]) -> str:
    read = itertools.chain(*(one.tolist() for pair in pairs for one in pair.sources))
    lines = sorted({f"{paths[file]}:{line}" for file, line in read})
    return ", ".join(lines[:20]) + (f" and {len(lines) - 20} more" if len(lines) > 20 else "")
