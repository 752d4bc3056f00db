"""Training loop of a biLM. An interrupted run resumes as if it had never stopped."""

import datetime
import logging
import math
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from elmo_plugin.bilm.files.atomic_write import write_json
from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.bilm.pretraining.checkpoints import RunFiles
from elmo_plugin.bilm.pretraining.config import LoopSettings
from elmo_plugin.bilm.pretraining.export import export_bilm
from elmo_plugin.bilm.pretraining.language_model import LanguageModel, loss_metrics, sum_of_losses
from elmo_plugin.bilm.pretraining.loader import BatchPair, Positions, StreamLoader, StreamPosition
from elmo_plugin.bilm.pretraining.optimization import check_schedule
from elmo_plugin.bilm.pretraining.processes import Processes
from elmo_plugin.bilm.pretraining.report import (
    Progress,
    Report,
    epoch_line,
    exported_line,
    start_line,
)
from elmo_plugin.bilm.pretraining.step import Step, Stepper
from elmo_plugin.bilm.pretraining.stop_request import Stopped, StopRequest
from elmo_plugin.bilm.pretraining.vocabulary import WordVocabulary

logger = logging.getLogger(__name__)


class Pretraining:
    """
    Training loop of a biLM, in one process or in all processes of torch.distributed's default
    group.

    Without dropout, the result does not depend on the number of processes, up to rounding. An
    interrupted run may resume with another number of processes.

    `model` is on its device, `words` are those of its softmax. `heldout` text is evaluated after
    each epoch. Training resumes from a checkpoint in `directory`, which all processes see.
    `on_step` is called after each step, before a checkpoint is saved.
    """

    def __init__(
        self,
        model: LanguageModel,
        words: WordVocabulary,
        text: StreamLoader,
        heldout: StreamLoader | None,
        directory: str | Path,
        settings: LoopSettings,
        on_step: Callable[[Step], None] | None = None,
        processes: Processes | None = None,
    ) -> None:
        if settings.patience is not None and heldout is None:
            raise ValueError(
                f"patience is {settings.patience} without held-out text, expected both or neither"
            )
        for one in filter(None, (text, heldout)):
            model.check_num_characters(one.num_characters)
        self.model, self.words, self.text, self.heldout = model, words, text, heldout
        self.settings, self.on_step = settings, on_step
        self.processes = processes or Processes(model.softmax.weight.device)
        self.files = RunFiles(Path(directory), settings.checkpointer)
        self.stepper = Stepper(model, settings, self.processes, text.paths)
        self.progress = Progress(
            rows=text.batch_size * self.processes.size,
            heldout_rows=heldout.batch_size * self.processes.size if heldout else 0,
        )
        self.positions: Positions = (None, None)
        self.inputs: dict[str, Any] = {}
        self.stop = StopRequest()
        self._last_save = (time.monotonic(), 0)  # time and completed steps at the last save

    def run(self) -> dict[str, Any]:
        """
        Train until the last epoch, then export the best epoch's weights, which the model then has.
        Return the metrics of the last and of the best epoch.

        # Raises

        `Stopped`
            After one of `SIGNALS`, when a checkpoint is saved.
        `ValueError`
            If a text is too short, a loss is not finite, or the schedule does not fit the number of
            steps. Also if the texts or the vocabulary have changed since the run began.
        `RuntimeError`
            If another process has died or does not answer.
        """
        with self.stop, self.processes.name_lost_process():
            self._begin()
            patience = self.settings.patience or float("inf")
            while (
                self.progress.epochs < self.settings.num_epochs
                and self.progress.epochs_since_best < patience
            ):
                self._epoch()
                self._end_epoch()
            self._finish()
        return self.progress.metrics

    def _begin(self) -> None:
        processes, settings = self.processes, self.settings
        processes.check_same(
            vocabulary=self.words.digest,
            texts=repr((self.text, self.heldout)),
            model=self.model.description,
            # Nodes may differ in the card's command line, and in their GPUs.
            settings=repr(replace(settings, card=None, cuda_device=None)),
        )
        saved = self.files.newest(clean=processes.rank == 0)
        processes.run_on_first(lambda: self._check_inputs(saved))
        if saved is not None:
            self._restore(saved)
        progress = self.progress
        # As if the training before a resumption had been just now.
        self._begun = time.monotonic() - progress.seconds
        processes.check_same(start=(progress.epochs, progress.batches))
        processes.broadcast(one.data for one in self.model.parameters())
        if progress.rows < processes.size:
            raise ValueError(
                f"there are {processes.size} processes for {progress.rows} streams, expected "
                "a stream for each at least"
            )
        self.batches_per_epoch = processes.run_on_first(self._count_batches)
        together = settings.num_gradient_accumulation_steps
        self.steps_per_epoch = -(-self.batches_per_epoch // together)
        self.num_steps = self.steps_per_epoch * settings.num_epochs
        check_schedule(settings.learning_rate_scheduler, settings.frozen_steps, self.num_steps)
        self.stepper.choose_dtype(progress.metrics)
        self.stepper.num_rows = progress.rows
        self.stepper.own_rows = own_rows = processes.share(progress.rows)
        self.pairs = self.text.pairs(self.words, progress.rows, own_rows, self.positions, True)
        tokens = progress.rows * self.text.num_steps
        self.report = Report(
            self.files.directory,
            tokens * together,
            self.num_steps,
            shows=processes.rank == 0,
            tensorboard=settings.tensorboard,
        )
        if processes.rank == 0:
            sizes = tokens * self.batches_per_epoch, self.steps_per_epoch, settings.num_epochs
            logger.info(start_line(self.model, *sizes, progress))
        self.model.train()

    def _count_batches(self) -> int:
        """Return the number of batches in an epoch, after a check that each text has one."""
        if self.heldout is not None:
            one_pass = replace(self.heldout, num_tokens=None, batches_per_epoch=None)
            one_pass.batches_in_an_epoch(self._heldout_rows)
        return self.text.batches_in_an_epoch(self.progress.rows)

    def _check_inputs(self, saved: dict[str, Any] | None) -> None:
        """
        Store the checksums of texts and vocabulary; raise a `ValueError` if they differ from those
        in the checkpoint `saved`, or if the best epoch's weights are gone.
        """
        self.inputs = {
            "text": self.text.checksums(),
            "heldout": self.heldout.checksums() if self.heldout else [],
            "vocabulary": self.words.digest,
        }
        if saved is not None and (changed := _changed_inputs(saved["inputs"], self.inputs)):
            raise ValueError(
                f"the inputs have changed since the run began: {', '.join(changed)}. A run resumes "
                "with the same files only; to train on these, begin a run in another folder"
            )
        has_best = saved is not None and "best_epoch" in saved["progress"]["metrics"]
        if has_best and not self.files.best.exists():
            raise ValueError(
                f"there is no {self.files.best}, the weights of the best epoch, which the run "
                "exports at its end; expected it beside the checkpoints"
            )

    def _restore(self, saved: dict[str, Any]) -> None:
        self.model.load_weights(saved["model"])
        self.stepper.optimizer.load_state_dict(saved["optimizer"])
        self.progress = Progress(**saved["progress"])
        forward, backward = saved["positions"]
        self.positions = (
            StreamPosition.from_dict(forward, self.text.paths),
            StreamPosition.from_dict(backward, self.text.paths),
        )
        rows = self.processes.share(self.progress.rows)
        forward, backward = (
            LstmState(*(part[:, rows.start : rows.stop].to(self.processes.device) for part in pair))
            for pair in saved["states"]
        )
        self.stepper.states = (forward, backward)
        self._last_save = (time.monotonic(), self.progress.steps)

    def _epoch(self) -> None:
        progress, together = self.progress, self.settings.num_gradient_accumulation_steps
        with self.report.epoch(progress.epochs, progress.batches, self.steps_per_epoch):
            while progress.batches < self.steps_per_epoch:
                left = self.batches_per_epoch - progress.batches * together
                self._step(list(islice(self.pairs, min(together, left))))

    def _step(self, pairs: list[BatchPair]) -> None:
        progress, settings = self.progress, self.settings.checkpointer
        seconds, steps = time.monotonic() - self._last_save[0], progress.steps - self._last_save[1]
        saves = steps + 1 >= (settings.save_every_num_batches or float("inf"))
        limit = settings.save_every_num_seconds
        # Only process 0 looks at the clock.
        is_time = limit is not None and self.processes.rank == 0 and seconds >= limit
        ends = progress.batches + 1 == self.steps_per_epoch
        results, (stops, saves_now) = self.stepper.step(
            pairs,
            progress.steps + 1,
            self.num_steps,
            [float(self.stop.number or 0), float(is_time)],
            wait=self._is_stopped or saves or ends,
        )
        self.positions = pairs[-1].positions
        progress.batches += 1
        progress.steps += 1
        for step in results:
            progress.losses[0] += step.forward_loss * step.num_batches
            progress.losses[1] += step.backward_loss * step.num_batches
            self.report.step(step, self.stepper.optimizer.param_groups[0]["lr"])
            if self.on_step is not None:
                self.on_step(step)
        if stops or (results and self._is_stopped):
            self._save(then_stop=True)
        if saves_now or saves:
            self._save()

    @property
    def _is_stopped(self) -> bool:
        """Whether to stop at once. Several processes, which may be elsewhere, agree first."""
        return self.processes.size == 1 and self.stop.number is not None

    def _save(self, then_stop: bool = False) -> None:
        progress, states = self.progress, self.stepper.states
        assert states is not None
        progress.seconds = time.monotonic() - self._begun
        gathered = self.processes.gather([[one.cpu() for one in pair] for pair in states])

        def save() -> None:
            assert gathered is not None
            state = {
                "model": self.model.weights(),
                "optimizer": self.stepper.optimizer.state_dict(),
                "progress": asdict(progress),
                "positions": [asdict(one) for one in self.positions if one is not None],
                "states": [
                    [torch.cat(own, dim=1) for own in zip(*pair)] for pair in zip(*gathered)
                ],
                "inputs": self.inputs,
            }
            self.files.save(progress.epochs, progress.batches, state)

        self.processes.run_on_first(save)
        self._last_save = (time.monotonic(), progress.steps)
        if then_stop:
            raise Stopped(self.stop.number or signal.SIGTERM)

    def _end_epoch(self) -> None:
        progress, metrics = self.progress, self.progress.metrics
        forward, backward = (loss / self.batches_per_epoch for loss in progress.losses)
        training = loss_metrics(forward, backward, self.model.softmax.sampler is not None)
        heldout = self._evaluate(self.heldout) if self.heldout is not None else {}
        seconds = time.monotonic() - self._begun
        metrics["epoch"] = progress.epochs
        metrics["training_duration"] = str(datetime.timedelta(seconds=seconds))
        for part, found in (
            ("training", {**training, **self.report.metrics()}),
            ("validation", heldout),
        ):
            metrics |= {f"{part}_{name}": value for name, value in found.items()}
            self.report.scalars(f"epoch_{part}", found, progress.steps)
        progress.curve += [heldout["perplexity"]] if heldout else []
        progress.epochs_since_best += 1
        sign, name = self.settings.validation_metric[0], self.settings.validation_metric[1:]
        value = None
        if heldout:
            value = heldout[name] if sign == "+" else -heldout[name]
        if value is None or progress.best is None or value > progress.best:
            progress.best, progress.epochs_since_best = value, 0
            metrics |= {"best_epoch": progress.epochs, "best_step": progress.steps}
            metrics |= {f"best_validation_{name}": one for name, one in heldout.items()}
        if self.processes.rank == 0:
            write_json(self.files.directory / f"metrics_epoch_{progress.epochs}.json", metrics)
            logger.info(epoch_line(progress, self.settings.num_epochs))
        if progress.epochs_since_best == 0:
            self.processes.run_on_first(lambda: self.files.save_best(self.model.weights()))
        progress.epochs += 1
        progress.batches, progress.losses = 0, [0.0, 0.0]
        if self.settings.checkpointer.save_completed_epochs:
            self._save()

    def _evaluate(self, heldout: StreamLoader) -> dict[str, float]:
        """Return the held-out text's loss and perplexities by name, over all processes."""
        own_rows = self.processes.share(self._heldout_rows)

        def until_stopped() -> Iterator[BatchPair]:
            for pair in heldout.pairs(self.words, self._heldout_rows, own_rows):
                if self._is_stopped:
                    self._save(then_stop=True)  # the resumed run evaluates again
                yield pair

        sums = sum_of_losses(self.model, until_stopped())
        forward, backward, count = self.processes.total(*(one * len(own_rows) for one in sums))
        found = loss_metrics(forward / count, backward / count, sampled=False)
        if not math.isfinite(found["loss"]):
            raise ValueError(
                f"the held-out loss is {found['loss']}, expected a finite number; what was saved "
                "before this epoch is intact"
            )
        return found

    @property
    def _heldout_rows(self) -> int:
        return max(self.progress.heldout_rows, self.processes.size)

    def _finish(self) -> None:
        """Load the best epoch's weights and export them."""
        progress, metrics = self.progress, self.progress.metrics
        self.model.load_weights(self.files.load_best())

        def export() -> None:
            card = {
                **(self.settings.card or {}),
                "finished": time.strftime("%Y-%m-%d"),
                "epoch": metrics["best_epoch"],
                "steps": metrics["best_step"],
                "steps_of_the_run": progress.steps,
                "heldout_perplexity_by_epoch": progress.curve,
                "metrics": metrics,
            }
            bilm, softmax, folder = self.model.bilm, self.model.softmax, self.files.directory
            export_bilm(bilm, folder, vocabulary=self.words, softmax=softmax, card=card)
            write_json(folder / "metrics.json", metrics)
            logger.info("%s: %s", folder, exported_line(progress))

        self.processes.run_on_first(export)


def _changed_inputs(begun_with: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what has changed since a run began: files, their order, vocabulary."""
    changed = []
    for part, title in (("text", "training text"), ("heldout", "held-out text")):
        then, here = ({tuple(one) for one in files[part]} for files in (begun_with, now))
        names = sorted({name for name, _ in then ^ here})
        if names:
            changed.append(f"{', '.join(names[:5])}{' ...' if len(names) > 5 else ''} ({title})")
        elif begun_with[part] != now[part]:
            changed.append(f"the order of the files ({title})")
    if begun_with["vocabulary"] != now["vocabulary"]:
        changed.append("the vocabulary")
    return changed
