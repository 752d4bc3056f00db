"""What a pretraining run is told, what it tells of a step, and what it has done."""

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from elmo_plugin.bilm.training.evaluation import figures
from elmo_plugin.bilm.training.run_files import CheckpointSettings


@dataclass(frozen=True)
class LoopSettings:
    """
    # Parameters

    optimizer : `dict[str, Any]`
        See `make_optimizer`.
    num_epochs : `int`, optional (default = `20`)
    learning_rate_scheduler : `dict[str, Any] | None`, optional (default = `None`)
        See `rate_factor`.
    grad_norm : `float | None`, optional (default = `None`)
        Largest norm of all gradients together.
    num_gradient_accumulation_steps : `int`, optional (default = `1`)
        Batches whose gradients make a step.
    gradient_scale : `float`, optional (default = `1.0`)
        What gradients are multiplied with; bilm-tf: `num_steps`.
    frozen_steps : `int`, optional (default = `0`)
        Steps at first in which the softmax alone trains.
    validation_metric : `str`, optional (default = `"-perplexity"`)
        What makes an epoch the best; `+` for the larger, `-` for the smaller.
    patience : `int | None`, optional (default = `None`)
        Epochs without a better one after which the run ends.
    checkpointer : `CheckpointSettings`, optional
    seed : `int`, optional (default = `133`)
        Of dropout and negatives.
    card : `dict[str, Any] | None`, optional (default = `None`)
        What the card says beside the figures.
    tensorboard : `bool`, optional (default = `False`)
        Whether figures go to `log/` of the run's directory too.

    # Raises

    `ValueError`
        If a number is not positive, or `validation_metric` none of the held-out text's figures.
    """

    optimizer: dict[str, Any]
    num_epochs: int = 20
    learning_rate_scheduler: dict[str, Any] | None = None
    grad_norm: float | None = None
    num_gradient_accumulation_steps: int = 1
    gradient_scale: float = 1.0
    frozen_steps: int = 0
    validation_metric: str = "-perplexity"
    patience: int | None = None
    checkpointer: CheckpointSettings = field(default_factory=CheckpointSettings)
    seed: int = 133
    card: dict[str, Any] | None = None
    tensorboard: bool = False

    def __post_init__(self) -> None:
        check_positive(self, "num_epochs", "patience", "num_gradient_accumulation_steps")
        if self.grad_norm is not None and not self.grad_norm > 0:
            raise ValueError(f"grad_norm is {self.grad_norm}, expected a number above 0")
        metric, names = self.validation_metric, sorted(figures(0, 0, sampled=False))
        if metric[:1] not in ("+", "-") or metric[1:] not in names:
            raise ValueError(f"validation_metric is {metric!r}, expected + or - and one of {names}")


class Step(NamedTuple):
    """
    What is told of a step.

    `epoch` from 0, `batch` of it from 1; `steps`: since the run began; `forward_loss`,
    `backward_loss`: of all processes, nats per word; `norm` of the gradients, where they are
    clipped.
    """

    epoch: int
    batch: int
    steps: int
    forward_loss: float
    backward_loss: float
    norm: float | None

    @property
    def loss(self) -> float:
        """The mean of the two directions."""
        return (self.forward_loss + self.backward_loss) / 2


@dataclass
class Progress:
    """
    What is done, as a checkpoint has it.

    # Parameters

    rows, heldout_rows : `int`
        Streams of all processes.
    epochs, batches, steps : `int`, optional (default = `0`)
        Whole epochs, steps of the next, and steps of all.
    losses : `list[float]`, optional
        The epoch's sums over batches, forward and backward.
    best : `float | None`, optional (default = `None`)
        Of the validation metric; larger is better.
    epochs_since_best : `int`, optional (default = `0`)
    metrics : `dict[str, Any]`, optional
        The run's figures so far.
    files : `dict[str, int] | None`, optional (default = `None`)
        Of the text, see `Text.files`; earlier checkpoints do not say.
    """

    rows: int
    heldout_rows: int
    epochs: int = 0
    batches: int = 0
    steps: int = 0
    losses: list[float] = field(default_factory=lambda: [0.0, 0.0])
    best: float | None = None
    epochs_since_best: int = 0
    metrics: dict[str, Any] = field(default_factory=dict)
    files: dict[str, int] | None = None


def loop_settings(
    trainer: dict[str, Any],
    gradient_scale: float = 1.0,
    frozen_steps: int = 0,
    command: list[str] | None = None,
) -> LoopSettings:
    """
    What a config's `trainer` says.

    # Parameters

    trainer : `dict[str, Any]`
        The keys of `LoopSettings`; `checkpointer` as a dictionary or `None`; `callbacks`, of which
        there is `export_bilm`, with its `card`.
    gradient_scale, frozen_steps
        Those of the config's `model`.
    command : `list[str] | None`, optional (default = `None`)
        What was typed, for the card.

    # Raises

    `ValueError`
        If there is a key that is none of these, or no optimizer.
    """
    given = dict(trainer)
    if not isinstance(given.get("optimizer"), dict):
        raise ValueError(f"optimizer is {given.get('optimizer')!r}, expected a type and arguments")
    card: dict[str, Any] = {"command": " ".join(command)} if command else {}
    for one in given.pop("callbacks", None) or []:
        callback: dict[str, Any] = {"type": one} if isinstance(one, str) else one
        if callback.keys() - {"type", "card"} or callback.get("type") != "export_bilm":
            raise ValueError(f"callbacks has {one!r}, expected export_bilm, perhaps with a card")
        card |= callback.get("card") or {}
    checkpointer = given.pop("checkpointer", None) or {}
    if not isinstance(checkpointer, dict):
        raise ValueError(f"checkpointer is {checkpointer!r}, expected its settings by name")
    checkpointer = {name: one for name, one in checkpointer.items() if name != "type"}
    return made_of(
        LoopSettings,
        "trainer",
        {
            **given,
            "checkpointer": made_of(CheckpointSettings, "trainer.checkpointer", checkpointer),
            "gradient_scale": gradient_scale,
            "frozen_steps": frozen_steps,
            "card": card,
        },
    )


def made_of(kind: Any, where: str, arguments: dict[str, Any]) -> Any:
    """
    A dataclass of a part of a config.

    # Raises

    `ValueError`
        If a key is unknown or missing, or a value of another type; the text names it and where it
        stands.
    """
    needed = [
        one.name
        for one in fields(kind)
        if one.default is MISSING and one.default_factory is MISSING
    ]
    check_keys(where, arguments, [one.name for one in fields(kind)], needed)
    for name, expected in get_type_hints(kind).items():
        if name in arguments and not is_a(arguments[name], expected):
            text = expected.__name__ if isinstance(expected, type) else expected
            raise ValueError(f"{where}: {name} is {arguments[name]!r}, expected {text}")
    return kind(**arguments)


def is_a(value: Any, expected: Any) -> bool:
    """Whether a config's value is of an annotation's type; an `int` is a `float`, no `bool` is."""
    if isinstance(expected, UnionType):
        return any(is_a(value, one) for one in get_args(expected))
    if isinstance(value, bool) or expected is bool:
        return isinstance(value, bool) and expected is bool
    return isinstance(
        value, (int, float) if expected is float else get_origin(expected) or expected
    )


def check_keys(
    where: str, found: Iterable[str], known: Iterable[str], needed: Iterable[str] = ()
) -> None:
    """Raises a `ValueError` that names a key that is unknown or missing, and where it stands."""
    found, known = set(found), set(known)
    wrong = [f"the key {name!r} is unknown" for name in sorted(found - known)]
    wrong += [f"the key {name!r} is missing" for name in needed if name not in found]
    if wrong:
        raise ValueError(f"{where}: {'; '.join(wrong)}, expected of {sorted(known)}")


def check_positive(settings: Any, *names: str) -> None:
    """Raises a `ValueError` that names a number that is given and is below 1."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}, expected at least 1")
