"""Pretraining: the one loop, which goes on after a stop as if there had been none."""

import datetime
import logging
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.bilm.training.evaluation import figures, heldout_figures, sum_of_losses
from elmo_plugin.bilm.training.export import export_bilm
from elmo_plugin.bilm.training.language_model import LanguageModel
from elmo_plugin.bilm.training.optimization import rate_factor
from elmo_plugin.bilm.training.processes import Processes
from elmo_plugin.bilm.training.report import Report
from elmo_plugin.bilm.training.run_files import RunFiles
from elmo_plugin.bilm.training.settings import LoopSettings, Progress, Step
from elmo_plugin.bilm.training.step import Stepper
from elmo_plugin.bilm.training.stop_request import Stopped, StopRequest
from elmo_plugin.bilm.training.stream_position import StreamPosition
from elmo_plugin.bilm.training.streams import BatchPair
from elmo_plugin.bilm.training.text import Positions, Text
from elmo_plugin.bilm.training.vocabulary import WordVocabulary
from elmo_plugin.bilm.training.watch import end_together

logger = logging.getLogger(__name__)


class Pretraining:
    """
    Trains a biLM by the text, in one process or in all those of PyTorch's process group. With
    dropout off a run is the same for any number of processes, but for rounding, and it may go on
    with another number.

    # Parameters

    model : `LanguageModel`
        On the device where it trains.
    words : `WordVocabulary`
        Of its softmax.
    text : `Text`
    heldout : `Text | None`
        Looked at after each epoch.
    directory : `str | Path`
        The run's, which all processes see. A checkpoint there is gone on from.
    settings : `LoopSettings`
    on_step : `Callable[[Step], None] | None`, optional (default = `None`)
        Called after each step, before it is saved.
    on_epoch : `Callable[[int, dict[str, Any]], None] | None`, optional (default = `None`)
        Called after each epoch, with its number from 0 and the run's figures.

    # Raises

    `ValueError`
        If settings or text make no run.
    """

    def __init__(
        self,
        model: LanguageModel,
        words: WordVocabulary,
        text: Text,
        heldout: Text | None,
        directory: str | Path,
        settings: LoopSettings,
        on_step: Callable[[Step], None] | None = None,
        on_epoch: Callable[[int, dict[str, Any]], None] | None = None,
    ) -> None:
        self.model, self.words, self.text, self.heldout = model, words, text, heldout
        self.settings, self.on_step, self.on_epoch = settings, on_step, on_epoch
        self.processes = Processes(model.softmax.weight.device)
        self.files = RunFiles(Path(directory), settings.checkpointer)
        self.stepper = Stepper(model, settings, self.processes)
        self.progress = Progress(
            rows=text.batch_size * self.processes.size,
            heldout_rows=heldout.batch_size * self.processes.size if heldout else 0,
            files=text.files(),
        )
        self.positions: Positions = (None, None)
        self.stop = StopRequest()
        self._last_save = (time.monotonic(), 0)  # and after how many steps

    def run(self) -> dict[str, Any]:
        """
        # Returns

        `dict[str, Any]`
            The last epoch's figures, and the best epoch's. The model has the best epoch's weights.

        # Raises

        `Stopped`
            After Ctrl-C or SIGTERM, when all is saved.
        `ValueError`
            If a text is too short or is not that of the run, or a loss is no longer a number.
        `RuntimeError`
            If another process is gone; the text names it.
        """
        with self.stop, end_together():
            begun = time.time()
            self._begin()
            while self.progress.epochs < self.settings.num_epochs and not self._out_of_patience():
                self._epoch()
                self._end_epoch(begun)
            self._finish()
        return self.progress.metrics

    def _begin(self) -> None:
        settings = repr(replace(self.settings, card=None))  # each node has a command of its own
        self.processes.check_same(
            vocabulary=self.words.digest,
            texts=repr((self.text, self.heldout)),
            model=self.model.description,
            settings=settings,
        )
        saved = self.files.newest(clean=self.processes.rank == 0)
        if saved is not None:
            self._restore(saved)
        self.processes.check_same(start=(self.progress.epochs, self.progress.batches))
        self.processes.make_same(one.data for one in self.model.parameters())
        progress = self.progress
        if progress.rows < self.processes.size:
            raise ValueError(
                f"there are {self.processes.size} processes for {progress.rows} streams, expected "
                "a stream for each at least"
            )
        self.batches_per_epoch = self.text.batches_in_an_epoch(progress.rows)
        if self.heldout is not None:
            self.heldout.in_one_pass().batches_in_an_epoch(self._heldout_rows)
        together = self.settings.num_gradient_accumulation_steps
        self.steps_per_epoch = -(-self.batches_per_epoch // together)
        self.num_steps = self.steps_per_epoch * self.settings.num_epochs
        rate_factor(self.settings.learning_rate_scheduler, 1, self.num_steps)
        self.stepper.choose_dtype(progress.metrics)
        own_rows = self.processes.share(progress.rows)
        self.stepper.own_weight = len(own_rows) / progress.rows
        self.pairs = self.text.pairs(self.words, progress.rows, own_rows, self.positions, True)
        self.report = Report(
            self.files.directory,
            self.model,
            progress.rows * self.text.num_steps * together,
            self.processes.size,
            self.processes.rank == 0,
            self.settings.tensorboard,
        )
        self.model.train()

    def _restore(self, saved: dict[str, Any]) -> None:
        self.stepper.load_weights(saved["model"])
        self.stepper.optimizer.load_state_dict(saved["optimizer"])
        self.progress = Progress(**saved["progress"])
        self.text.check_files(self.progress.files)
        forward, backward = (StreamPosition.from_dict(one) for one in saved["positions"])
        self.positions = (forward, backward)
        one, other = (LstmState(*pair) for pair in saved["states"])
        self.stepper.states = self.processes.share_states((one, other), self.progress.rows)
        self._last_save = (time.monotonic(), self.progress.steps)

    def _epoch(self) -> None:
        progress, together = self.progress, self.settings.num_gradient_accumulation_steps
        with self.report.epoch(progress.epochs, progress.batches, self.steps_per_epoch):
            while progress.batches < self.steps_per_epoch:
                left = self.batches_per_epoch - progress.batches * together
                self._step(list(islice(self.pairs, min(together, left))))

    def _step(self, pairs: list[BatchPair]) -> None:
        progress = self.progress
        flags = [float(self.stop.number or 0), float(self._is_time_to_save())]
        losses, norm, flags = self.stepper.step(pairs, progress.steps + 1, self.num_steps, flags)
        self.positions = (pairs[-1].forward.position, pairs[-1].backward.position)
        progress.batches += 1
        progress.steps += 1
        progress.losses = [one + other * len(pairs) for one, other in zip(progress.losses, losses)]
        step = Step(progress.epochs, progress.batches, progress.steps, *losses, norm)
        self.report.step(step, self.stepper.rate)
        if self.on_step is not None:
            self.on_step(step)
        if flags[0] > 0 or (self.processes.size == 1 and self.stop.number is not None):
            self._save(then_stop=True)
        every = self.settings.checkpointer.save_every_num_batches or float("inf")
        if flags[1] > 0 or progress.steps - self._last_save[1] >= every:
            self._save()

    def _is_time_to_save(self) -> bool:
        """By the first process's clock."""
        seconds = self.settings.checkpointer.save_every_num_seconds
        return (
            seconds is not None
            and self.processes.rank == 0
            and time.monotonic() - self._last_save[0] >= seconds
        )

    def _save(self, then_stop: bool = False) -> None:
        progress, states = self.progress, self.stepper.states
        assert states is not None
        gathered = self.processes.gather([[one.cpu() for one in pair] for pair in states])
        if gathered is not None:
            together = [
                [torch.cat([own[direction][part] for own in gathered], dim=1) for part in (0, 1)]
                for direction in (0, 1)
            ]
            state = {
                "model": self.stepper.weights(),
                "optimizer": self.stepper.optimizer.state_dict(),
                "progress": asdict(progress),
                "positions": [one.to_dict() for one in self.positions if one is not None],
                "states": together,
            }
            self.files.save(progress.epochs, progress.batches, state)
        self.processes.wait()  # none ends while the first one writes
        self._last_save = (time.monotonic(), progress.steps)
        if then_stop:
            raise Stopped(self.stop.number or signal.SIGTERM)

    def _end_epoch(self, begun: float) -> None:
        progress, metrics = self.progress, self.progress.metrics
        forward, backward = (loss / self.batches_per_epoch for loss in progress.losses)
        training = figures(forward, backward, self.model.softmax.sampler is not None)
        heldout = self._look(self.heldout) if self.heldout is not None else {}
        metrics["epoch"] = progress.epochs
        metrics["training_duration"] = str(datetime.timedelta(seconds=time.time() - begun))
        for part, found in (
            ("training", {**training, **self.report.figures()}),
            ("validation", heldout),
        ):
            metrics |= {f"{part}_{name}": value for name, value in found.items()}
            self.report.scalars(f"epoch_{part}", found, progress.steps)
        progress.epochs_since_best += 1
        if self._is_best(heldout):
            progress.epochs_since_best = 0
            metrics["best_epoch"] = progress.epochs
            metrics |= {f"best_validation_{name}": one for name, one in heldout.items()}
        if self.processes.rank == 0:
            self.files.write_figures(f"metrics_epoch_{progress.epochs}.json", metrics)
            logger.info("%s", metrics)
            if progress.epochs_since_best == 0:
                self.files.save_best(self.stepper.weights())
        progress.epochs += 1
        progress.batches, progress.losses = 0, [0.0, 0.0]
        if self.on_epoch is not None:
            self.on_epoch(progress.epochs - 1, metrics)
        if self.settings.checkpointer.save_completed_epochs:
            self._save()

    def _look(self, heldout: Text) -> dict[str, float]:
        """Figures of the held-out text."""
        own_rows = self.processes.share(self._heldout_rows)

        def until_stopped() -> Iterator[BatchPair]:
            for pair in heldout.pairs(self.words, self._heldout_rows, own_rows):
                # Several processes end it first: they would have to agree at each batch.
                if self.processes.size == 1 and self.stop.number is not None:
                    self._save(then_stop=True)  # the recovered run looks anew
                yield pair

        sums = sum_of_losses(self.model, until_stopped())
        return heldout_figures(self.processes.total(*(one * len(own_rows) for one in sums)))

    @property
    def _heldout_rows(self) -> int:
        return max(self.progress.heldout_rows, self.processes.size)

    def _is_best(self, heldout: dict[str, float]) -> bool:
        if not heldout:
            return True
        sign, name = self.settings.validation_metric[0], self.settings.validation_metric[1:]
        value = heldout[name] if sign == "+" else -heldout[name]
        is_best = self.progress.best is None or value > self.progress.best
        self.progress.best = value if is_best else self.progress.best
        return is_best

    def _out_of_patience(self) -> bool:
        patience = self.settings.patience
        return patience is not None and self.progress.epochs_since_best >= patience

    def _finish(self) -> None:
        """The best epoch's weights, in the model and as the released format."""
        self.processes.wait()  # for the first one, which writes it
        self.stepper.load_weights(self.files.load_best())
        if self.processes.rank == 0:
            card = {
                **(self.settings.card or {}),
                "finished": time.strftime("%Y-%m-%d"),
                "steps": self.progress.steps,
                "metrics": self.progress.metrics,
            }
            export_bilm(
                self.model.bilm,
                self.files.directory,
                vocabulary=self.words,
                softmax=self.model.softmax,
                card=card,
            )
        self.processes.wait()
