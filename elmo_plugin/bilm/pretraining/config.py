"""Config of a pretraining run: its settings, the allowed keys, and what is built from it."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from elmo_plugin.bilm.pretraining.checkpoints import CheckpointSettings
from elmo_plugin.bilm.pretraining.language_model import loss_metrics, make_language_model
from elmo_plugin.bilm.pretraining.loader import StreamLoader
from elmo_plugin.bilm.pretraining.optimization import WarmupCosine
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax
from elmo_plugin.bilm.pretraining.vocabulary import (
    WordVocabulary,
    check_fraction,
    check_least,
    find_text_files,
    vocabulary_of,
)

# Value of the optional key `type`, by the part of the config that may have one.
TYPE = "bilm_pretraining"
TYPES = {
    "vocabulary": "bilm_words",
    "model": "bilm_language_model",
    "data_loader": "token_streams",
    "validation_data_loader": "token_streams",
    "trainer": TYPE,
    "trainer.checkpointer": "default",
    "trainer.learning_rate_scheduler": "warmup_cosine",
}
# Keys whose value may change when a run resumes.
FREE = (
    "type",
    "trainer.num_epochs",
    "trainer.patience",
    "trainer.learning_rate_scheduler",
    "trainer.checkpointer",
    "trainer.card",
    "trainer.tensorboard",
    "trainer.cuda_device",
    "data_loader.num_workers",
    "validation_data_loader.num_workers",
    "distributed",
    "dataset_reader",
    "datasets_for_vocab_creation",
    "random_seed",
    "numpy_seed",
)
# Keys of `model` that belong to `LoopSettings`.
LOOP_KEYS = ("gradient_scale", "frozen_steps", "dropout_free_steps", "reset_probability")
# AllenNLP's default seed.
PYTORCH_SEED = 133


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
    cuda_device : `int | None`, optional (default = `None`)
        Number of the GPU, or -1 for the CPU. The default is the first GPU, if there is one.
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
    cuda_device: int | None = None
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in ("num_epochs", "patience", "num_gradient_accumulation_steps"):
            check_least(1, **{name: getattr(self, name)})
        check_least(0, frozen_steps=self.frozen_steps, dropout_free_steps=self.dropout_free_steps)
        check_fraction("reset_probability", self.reset_probability)
        for name in ("grad_norm", "gradient_scale"):
            if not (getattr(self, name) is None or getattr(self, name) > 0):
                raise ValueError(f"{name} is {getattr(self, name)}, expected a number above 0")
        metric, known = self.validation_metric, sorted(loss_metrics(0, 0, sampled=False))
        if metric[:1] not in ("+", "-") or metric[1:] not in known:
            raise ValueError(f"validation_metric is {metric!r}, expected + or - and one of {known}")


@dataclass(frozen=True)
class _Parts:
    # The last four are of version 0.2 and of AllenNLP, and have no effect.

    train_data_path: str
    model: dict[str, Any]
    data_loader: dict[str, Any]
    trainer: dict[str, Any]
    validation_data_path: str | None = None
    validation_data_loader: dict[str, Any] | None = None
    vocabulary: dict[str, Any] | None = None
    pytorch_seed: int | None = None
    dataset_reader: Any = None
    datasets_for_vocab_creation: Any = None
    random_seed: Any = None
    numpy_seed: Any = None


def is_pretraining(config: dict[str, Any]) -> bool:
    """Return whether the `type` keys of an AllenNLP config describe a pretraining run."""
    kinds = ((config, TYPE), *((config.get(part), TYPES[part]) for part in ("model", "trainer")))
    return any(isinstance(part, dict) and part.get("type") == kind for part, kind in kinds)


def check_config(config: dict[str, Any], source: str) -> None:
    """
    Check the top-level keys of a config. Raise a `ValueError` that begins with `source`, its file
    name, if a key is unknown or missing, or a value has a wrong type.
    """
    if "distributed" in config:
        raise ValueError(
            f"{source}: the key 'distributed' starts no processes here; start them with "
            "`torchrun --nproc-per-node N -m elmo_plugin pretrain CONFIG -s FOLDER` instead"
        )
    if config.get("type", TYPE) != TYPE:
        raise ValueError(f"{source}: type is {config['type']!r}, expected {TYPE!r}")
    arguments_of(source, {key: one for key, one in config.items() if key != "type"}, _Parts)


def differences(config: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """
    Return the keys, such as `data_loader.batch_size`, whose values differ between two configs and
    may not change when a run resumes.
    """
    one, two = _flat(config), _flat(other)
    missing = object()
    free = (*FREE, *(f"{part}.type" for part in TYPES))
    return sorted(
        key
        for key in one.keys() | two.keys()
        if one.get(key, missing) != two.get(key, missing)
        and not f"{key}.".startswith(tuple(f"{name}." for name in free))
    )


def _flat(config: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(config, dict) or not config:
        return {path: config}
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{path}.{key}" if path else key)
    return flat


def inputs_named(config: dict[str, Any]) -> Iterator[Path]:
    """
    Yield the existing files that a config names anywhere, by path or by glob pattern, and the
    folders from which its model takes options or weights.
    """
    for key, value in _flat(config).items():
        if isinstance(value, str):
            if key.startswith("model.") and Path(value).is_dir():
                yield Path(value)
            with suppress(OSError, ValueError):
                yield from find_text_files(value)


def make_vocabulary(config: dict[str, Any]) -> WordVocabulary:
    """Read the softmax's `vocabulary_file`, or count the words of the training text."""
    settings = arguments_of("vocabulary", config.get("vocabulary"), vocabulary_of, ["paths"])
    return vocabulary_of(find_text_files(config["train_data_path"]), **settings)


def make_text(config: dict[str, Any], heldout: bool = False) -> Any:
    """
    Build the loader for training or, with `heldout`, for evaluation, if the config has a path.
    """
    path = config.get("validation_data_path" if heldout else "train_data_path")
    own = heldout and "validation_data_loader" in config
    name = "validation_data_loader" if own else "data_loader"
    if path is None:
        return None
    settings = arguments_of(name, config.get(name), StreamLoader, ["paths"])
    limits = ("num_tokens", "batches_per_epoch")
    if own and (given := [key for key in limits if settings.get(key) is not None]):
        raise ValueError(f"{name} has {given}, expected none: each evaluation reads the whole text")
    if heldout and not own:  # the training text's settings, except that the order is kept
        settings["shuffle"] = False
    return StreamLoader(find_text_files(path), **settings)


def seed_of(config: dict[str, Any]) -> int:
    """Return the config's `pytorch_seed`, by default 133."""
    seed = config.get("pytorch_seed")
    if abs(seed or 0) >= 2**63:
        raise ValueError(f"pytorch_seed is {seed}, expected an int of 64 bits")
    return PYTORCH_SEED if seed is None else seed


def make_settings(config: dict[str, Any], command: list[str] | None = None) -> LoopSettings:
    """
    Build `LoopSettings` from the config's `trainer`, and from `LOOP_KEYS` of its `model`. `command`
    is the command line, to be stored in `card.json`.
    """
    model = config.get("model") or {}
    given = config["trainer"] | {name: model[name] for name in LOOP_KEYS if name in model}
    settings = arguments_of("trainer", given, LoopSettings)
    card = {"command": " ".join(command)} if command else {}
    return LoopSettings(**settings | {"card": card | (settings.get("card") or {})})


def make_model_arguments(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config's `model` as arguments for `make_language_model`."""
    model = {name: value for name, value in config["model"].items() if name not in LOOP_KEYS}
    arguments = arguments_of("model", model, make_language_model, ["words", "counts"])
    others = ["num_words", "projection_dim", "counts"]
    arguments_of("model.softmax", arguments.get("softmax"), WordSoftmax, others)
    return arguments


def needs_counts(config: dict[str, Any]) -> bool:
    """Return whether the softmax needs the counts of its words in the training text."""
    softmax = config["model"].get("softmax") or {}
    return bool(softmax.get("bias_from_counts")) or softmax.get("count_exponent") is not None


def arguments_of(
    where: str,
    given: dict[str, Any] | None,
    target: Callable[..., Any],
    of_others: Sequence[str] = (),
) -> dict[str, Any]:
    """
    Return the part `where` of a config as arguments of a function or a class, without those
    `of_others`. An object for a dataclass becomes one.

    Raise a `ValueError` if a key is unknown or missing, or a value has the wrong type.
    """
    given = dict(given or {})
    if where in TYPES and (found := given.pop("type", TYPES[where])) != TYPES[where]:
        raise ValueError(f"{where}.type is {found!r}, expected {TYPES[where]!r}")
    parameters = inspect.signature(target).parameters
    own = {name: one for name, one in parameters.items() if name not in of_others}
    wrong = [f"the key {name!r} is unknown" for name in sorted(given.keys() - own)]
    expected = f", expected one of {sorted(own)}" if wrong else ""
    wrong += [
        f"the key {name!r} is missing"
        for name, one in own.items()
        if name not in given and one.default is one.empty
    ]
    if wrong:
        raise ValueError(f"{where}: {'; '.join(wrong)}{expected}")
    for name, value in given.items():
        kind = own[name].annotation
        inner: Any = next(filter(is_dataclass, (kind, *get_args(kind))), None)
        if inner and isinstance(value, dict):
            given[name] = inner(**arguments_of(f"{where}.{name}", value, inner))
        elif not _matches(value, kind):
            text = getattr(kind, "__name__", kind)
            raise ValueError(f"{where}: {name} is {value!r}, expected {text}")
    return given


def _matches(value: Any, expected: Any) -> bool:
    """
    Return whether a value has the type of an annotation, such as `int | None`. An `int` counts as a
    `float`, but a `bool` does not count as an `int`.
    """
    if isinstance(expected, UnionType):
        return any(_matches(value, one) for one in get_args(expected))
    if isinstance(value, bool) or expected is bool:
        return isinstance(value, bool) and expected in (bool, Any)
    allowed = (int, float) if expected is float else get_origin(expected) or expected
    return expected is Any or isinstance(value, allowed)
