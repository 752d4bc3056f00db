"""Progress of a pretraining run, its log lines, progress bar and TensorBoard curves."""

import datetime
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from elmo_plugin.bilm.files.stderr import stderr
from elmo_plugin.bilm.pretraining.language_model import LanguageModel
from elmo_plugin.bilm.pretraining.step import Step

logger = logging.getLogger(__name__)

# Seconds of training after which the time of the whole run is estimated.
SECONDS_TO_ESTIMATE = 10.0


@dataclass
class Progress:
    """Progress of a run, saved in each checkpoint."""

    # Streams of the training and the held-out text, over all processes.
    rows: int
    heldout_rows: int
    # Completed epochs, completed steps of the current epoch, and completed steps of the run.
    epochs: int = 0
    batches: int = 0
    steps: int = 0
    # Seconds of training until the last save.
    seconds: float = 0.0
    # Sums of the forward and of the backward losses over the batches of the current epoch.
    losses: list[float] = field(default_factory=lambda: [0.0, 0.0])
    # Best value of the validation metric so far, negated if smaller is better.
    best: float | None = None
    epochs_since_best: int = 0
    # Metrics of the last and of the best epoch.
    metrics: dict[str, Any] = field(default_factory=dict)
    # Held-out perplexity after each epoch.
    curve: list[float] = field(default_factory=list)


class Report:
    """
    Progress bar with loss and tokens per second, and TensorBoard curves in the subfolder `log/`.

    `tokens_a_step` are those of one direction over all processes, `num_steps` the steps of the
    whole run. Only one process of the run `shows` anything.
    """

    def __init__(
        self, directory: Path, tokens_a_step: int, num_steps: int, shows: bool, tensorboard: bool
    ) -> None:
        self.tokens_a_step, self.num_steps, self.shows = tokens_a_step, num_steps, shows
        # Time and number of the first step, until the time of the whole run is logged.
        self._first: tuple[float, int] | None = None
        self._has_estimated = not shows
        self.steps, self.seconds, self._begun = 0, 0.0, 0.0
        self.writer: Any = None
        if tensorboard and shows:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise ValueError(
                    "tensorboard is true, and tensorboard not installed: pip install tensorboard"
                ) from error
            self.writer = SummaryWriter(str(directory / "log"))

    @contextmanager
    def epoch(self, number: int, done: int, num_steps: int) -> Iterator[None]:
        """Context manager that shows the progress bar of epoch `number`."""
        self.steps, self.seconds, self._begun = 0, 0.0, time.monotonic()
        with tqdm(
            initial=done,
            total=num_steps,
            desc=f"epoch {number}",
            mininterval=5,
            disable=not self.shows,
            file=stderr(),
        ) as self.bar:
            yield

    def step(self, step: Step, rate: float) -> None:
        """Show a completed step and its learning rate in the progress bar and in TensorBoard."""
        now = time.monotonic()
        self.steps += 1
        self.seconds = now - self._begun
        self.bar.update()
        speed = self.metrics()
        shown = {"loss": f"{step.loss:.3f}", **{name: f"{one:.4g}" for name, one in speed.items()}}
        self.bar.set_postfix(shown, refresh=False)
        self.scalars("training", {"loss": step.loss, "learning_rate": rate, **speed}, step.steps)
        first, number = self._first = self._first or (now, step.steps)
        if now - first >= SECONDS_TO_ESTIMATE and not self._has_estimated:
            self._has_estimated = True
            seconds = (self.num_steps - step.steps) * (now - first) / (step.steps - number)
            left = datetime.timedelta(seconds=round(seconds))
            logger.info(f"the whole run takes {left} more at this speed")

    def scalars(self, part: str, metrics: dict[str, Any], step: int) -> None:
        """Write the floats in `metrics` to TensorBoard as `part/name`, if `tensorboard` is set."""
        for name, value in metrics.items():
            if self.writer is not None and isinstance(value, float):
                self.writer.add_scalar(f"{part}/{name}", value, step)

    def metrics(self) -> dict[str, float]:
        """Return the epoch's tokens per second, if this process has made a step of it."""
        if not self.steps:
            return {}
        return {"tokens_per_second": self.steps * self.tokens_a_step / max(self.seconds, 1e-9)}


def start_line(
    model: LanguageModel, tokens: int, steps: int, num_epochs: int, progress: Progress
) -> str:
    """Return the log line before the first step, with the `tokens` and `steps` of an epoch."""
    sizes = [sum(one.numel() for one in part.parameters()) for part in (model.bilm, model.softmax)]
    begins = f"resumes after step {progress.steps:,}" if progress.steps else "begins"
    return (
        f"Pretraining {begins}: {sizes[0] / 1e6:.1f}M parameters of the biLM and "
        f"{sizes[1] / 1e6:.1f}M of the softmax over {model.softmax.num_words:,} words; "
        f"{num_epochs} epochs of {tokens:,} tokens, {steps:,} steps each, {num_epochs * steps:,} "
        f"steps in all, products in {model.softmax.training_dtype or 'float32'}"
    )


def epoch_line(progress: Progress, num_epochs: int) -> str:
    """Return the log line after an epoch: its perplexities and its speed."""
    best = "the best so far" if progress.epochs_since_best == 0 else "not better"
    texts = {
        "training_perplexity": "training perplexity {training_perplexity:.2f}",
        "training_sampled_perplexity": (
            "training perplexity {training_sampled_perplexity:.2f} (sampled softmax)"
        ),
        "validation_perplexity": (
            "held-out perplexity {validation_perplexity:.2f} (forward "
            "{validation_forward_perplexity:.2f}, backward {validation_backward_perplexity:.2f}), "
            + best
        ),
        "training_tokens_per_second": "{training_tokens_per_second:,.0f} tokens/s",
    }
    metrics = progress.metrics
    parts = [text.format(**metrics) for name, text in texts.items() if name in metrics]
    done = f"epoch {progress.epochs} done ({progress.epochs + 1} of {num_epochs})"
    return f"{done}, step {progress.steps:,}: {'; '.join(parts)}"


def exported_line(progress: Progress) -> str:
    """Return the log line after a run: which epoch was exported, and how the perplexity changed."""
    metrics, curve = progress.metrics, progress.curve
    epoch, step = metrics["best_epoch"], metrics["best_step"]
    exported = f"exported the weights of epoch {epoch}, step {step:,} of {progress.steps:,}"
    if "validation_perplexity" not in metrics:
        return f"{exported}, the last one; there is no held-out text to choose by"
    best, last = metrics["best_validation_perplexity"], metrics["validation_perplexity"]
    if epoch == metrics["epoch"]:
        fell = f", down from {curve[0]:.2f} after epoch 0" if len(curve) > 1 else ""
        return f"{exported}, the last and best one: held-out perplexity {best:.2f}{fell}"
    direction = "rose" if last > best else "changed"
    return (
        f"{exported}, the best one: held-out perplexity {best:.2f}; it {direction} to {last:.2f} "
        f"by the last epoch, {metrics['epoch']}. More text, fewer epochs or a lower learning rate "
        "may give a better biLM"
    )
