"""Settings of the training loop, its progress, and its report on a step."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from elmo_plugin.bilm.pretraining.checkpoints import CheckpointSettings
from elmo_plugin.bilm.pretraining.evaluation import loss_metrics
from elmo_plugin.bilm.pretraining.optimization import WarmupCosine
from elmo_plugin.bilm.pretraining.vocabulary import check_fraction, check_least


@dataclass(frozen=True)
class LoopSettings:
    """
    Settings of the training loop.

    # Parameters

    optimizer : `dict[str, Any]`
        See `make_optimizer`.
    learning_rate_scheduler : `WarmupCosine | None`, optional (default = `None`)
        Schedule of the learning rate; constant if not given.
    grad_norm : `float | None`, optional (default = `None`)
        Clip gradients to this norm, over all parameters.
    num_gradient_accumulation_steps : `int`, optional (default = `1`)
        Batches per optimizer step.
    gradient_scale : `float`, optional (default = `1.0`)
        Factor on the gradients before clipping; bilm-tf uses `num_steps`.
    frozen_steps : `int`, optional (default = `0`)
        Number of steps at the start of the run in which only the softmax is trained.
    dropout_free_steps : `int`, optional (default = `0`)
        Number of steps at the start of the run without dropout. In the first pass over a large
        text all sentences are new, and the biLM cannot overfit.
    reset_probability : `float`, optional (default = `0.0`)
        Probability that a stream starts a batch from a state of zeros, and not from its last one.
        Without it, training hardly meets the states that follow from zeros, with which other text
        begins.
    validation_metric : `str`, optional (default = `"-perplexity"`)
        Held-out metric that selects the best epoch; `+` if larger is better, `-` if smaller is.
    patience : `int | None`, optional (default = `None`)
        Stop after this many epochs without improvement.
    seed : `int`, optional (default = `133`)
        Seed of dropout and of the sampled negatives.
    card : `dict[str, Any] | None`, optional (default = `None`)
        Further entries for the model card, `card.json`, which always has the run's metrics.
    tensorboard : `bool`, optional (default = `False`)
        Write curves for TensorBoard to `log/` in the run's folder.
    """

    optimizer: dict[str, Any]
    num_epochs: int = 20
    learning_rate_scheduler: WarmupCosine | None = None
    grad_norm: float | None = None
    num_gradient_accumulation_steps: int = 1
    gradient_scale: float = 1.0
    frozen_steps: int = 0
    dropout_free_steps: int = 0
    reset_probability: float = 0.0
    validation_metric: str = "-perplexity"
    patience: int | None = None
    checkpointer: CheckpointSettings = field(default_factory=CheckpointSettings)
    seed: int = 133
    card: dict[str, Any] | None = None
    tensorboard: bool = False

    def __post_init__(self) -> None:
        together = self.num_gradient_accumulation_steps
        check_least(1, num_epochs=self.num_epochs, patience=self.patience)
        check_least(1, num_gradient_accumulation_steps=together)
        check_least(0, frozen_steps=self.frozen_steps, dropout_free_steps=self.dropout_free_steps)
        check_fraction("reset_probability", self.reset_probability)
        for name in ("grad_norm", "gradient_scale"):
            if not (getattr(self, name) is None or getattr(self, name) > 0):
                raise ValueError(f"{name} is {getattr(self, name)}, expected a number above 0")
        metric, known = self.validation_metric, sorted(loss_metrics(0, 0, sampled=False))
        if metric[:1] not in ("+", "-") or metric[1:] not in known:
            raise ValueError(f"validation_metric is {metric!r}, expected + or - and one of {known}")


class Step(NamedTuple):
    """
    Report on one optimizer step.

    `steps`: number of steps since the run began, including this one. `forward_loss`,
    `backward_loss`: means over all processes, in nats per word. `norm`: norm of the gradients
    before clipping; `None` without clipping. `num_batches`: number of batches. `epoch`: number of
    the epoch, from 0. `batch`: number of the step in its epoch, from 1.
    """

    steps: int
    forward_loss: float
    backward_loss: float
    norm: float | None
    num_batches: int
    epoch: int = 0
    batch: int = 0

    @property
    def loss(self) -> float:
        """Mean of the forward and the backward loss."""
        return (self.forward_loss + self.backward_loss) / 2


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
