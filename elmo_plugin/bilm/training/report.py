"""What a run shows while it runs: the loss, tokens a second, a GPU's share of its peak."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from elmo_plugin.bilm.training.language_model import LanguageModel
from elmo_plugin.bilm.training.settings import Step


class Report:
    """
    # Parameters

    directory : `Path`
        The run's.
    model : `LanguageModel`
    tokens_a_step : `int`
        Of each direction, in all processes.
    num_processes : `int`
    shows : `bool`
        Whether this process is the one that shows.
    tensorboard : `bool`
        Whether figures go to `log/` of the directory too.

    # Raises

    `ValueError`
        If TensorBoard is asked for and not installed.
    """

    def __init__(
        self,
        directory: Path,
        model: LanguageModel,
        tokens_a_step: int,
        num_processes: int,
        shows: bool,
        tensorboard: bool,
    ) -> None:
        self.tokens_a_step = tokens_a_step
        self.shows = shows
        self.steps, self.seconds, self._begun = 0, 0.0, 0.0
        self.flops_of_peak: float | None = None
        device = model.softmax.weight.device
        if device.type == "cuda":
            peak = num_processes * measured_peak(device, model.softmax.training_dtype)
            self.flops_of_peak = flops_a_token(model) / peak
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
        """Around an epoch's steps, of which some are done."""
        self.steps, self.seconds, self._begun = 0, 0.0, time.monotonic()
        with tqdm(
            initial=done,
            total=num_steps,
            desc=f"epoch {number}",
            mininterval=5,
            disable=not self.shows,
        ) as self.bar:
            yield

    def step(self, step: Step, rate: float) -> None:
        """A step is done, at this learning rate."""
        self.steps += 1
        self.seconds = time.monotonic() - self._begun
        self.bar.update()
        shown = {"loss": f"{step.loss:.3f}"}
        shown |= {name: f"{value:.4g}" for name, value in self.figures().items()}
        self.bar.set_postfix(shown, refresh=False)
        if self.writer is not None:
            figures = {"loss": step.loss, "learning_rate": rate, **self.figures()}
            self.scalars("training", figures, step.steps)

    def scalars(self, part: str, figures: dict[str, Any], step: int) -> None:
        """Numbers to TensorBoard, where it is asked for."""
        for name, value in figures.items():
            if self.writer is not None and isinstance(value, float):
                self.writer.add_scalar(f"{part}/{name}", value, step)

    def figures(self) -> dict[str, float]:
        """Tokens a second of the epoch so far, and the share of the GPUs' peak."""
        rate = self.steps * self.tokens_a_step / max(self.seconds, 1e-9)
        found = {"tokens_per_second": rate}
        if self.flops_of_peak is not None:
            found["share_of_peak"] = rate * self.flops_of_peak
        return found


def flops_a_token(model: LanguageModel) -> float:
    """
    Floating point operations of a training step for each token of text, both directions: six for
    each weight of the LSTMs and of the softmax's words. The token layer, which runs once for each
    distinct token, is left out.
    """
    lstm = sum(one.numel() for one in model.bilm.lstm.parameters() if one.dim() > 1)
    sampler = model.softmax.sampler
    words = model.softmax.num_words if sampler is None else sampler.num_samples
    return 6.0 * (lstm + 2 * words * model.softmax.weight.shape[1])


def measured_peak(device: torch.device, dtype: str | None, size: int = 8192) -> float:
    """Floating point operations a second that a large matrix product reaches on a GPU."""
    one = torch.ones(size, size, device=device, dtype=getattr(torch, dtype or "float32"))
    for _ in range(2):  # the first is slower
        torch.cuda.synchronize(device)
        begun = time.perf_counter()
        for _ in range(4):
            torch.mm(one, one)
        torch.cuda.synchronize(device)
    return 4 * 2.0 * size**3 / (time.perf_counter() - begun)
