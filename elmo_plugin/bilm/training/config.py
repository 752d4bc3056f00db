"""Config of a pretraining run: the allowed keys, and the objects that are built from it."""

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from elmo_plugin.bilm.training.checkpoints import CheckpointSettings
from elmo_plugin.bilm.training.language_model import make_language_model
from elmo_plugin.bilm.training.loader import StreamLoader
from elmo_plugin.bilm.training.settings import LoopSettings
from elmo_plugin.bilm.training.softmax import WordSoftmax
from elmo_plugin.bilm.training.vocabulary import WordVocabulary, find_text_files, vocabulary_of

# Allowed value of each part's optional key `type`.
TYPES = {
    "dataset_reader": "bilm_text",
    "vocabulary": "bilm_words",
    "model": "bilm_language_model",
    "data_loader": "token_streams",
    "validation_data_loader": "token_streams",
    "trainer": "bilm_pretraining",
}
TYPE = "bilm_pretraining"
# Keys of version 0.2 and of AllenNLP that have no effect on a pretraining run.
IGNORED = {"dataset_reader", "datasets_for_vocab_creation", "random_seed", "numpy_seed"}
KEYS = {*TYPES, *IGNORED, "type", "train_data_path", "validation_data_path", "pytorch_seed"}
NEEDED = ("train_data_path", "model", "data_loader", "trainer")
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
    *IGNORED,
)
# Keys of `model` that belong to `LoopSettings`.
LOOP_KEYS = ("gradient_scale", "frozen_steps", "dropout_free_steps", "reset_probability")
# AllenNLP's default seed.
PYTORCH_SEED = 133


def is_pretraining(config: dict[str, Any]) -> bool:
    """Return whether the `type` keys of an AllenNLP config describe a pretraining run."""
    model, trainer = config.get("model"), config.get("trainer")
    return (
        config.get("type") == TYPE
        or (isinstance(trainer, dict) and trainer.get("type") == TYPES["trainer"])
        or (isinstance(model, dict) and model.get("type") == TYPES["model"])
    )


def check_config(config: dict[str, Any], source: str) -> None:
    """
    Check the top-level keys of a pretraining config, and the key `type` of each part.

    Raise a `ValueError` if a key is unknown or missing, or a part's `type` is not supported. The
    message begins with `source`, the config's file name.
    """
    if "distributed" in config:
        raise ValueError(
            f"{source}: the key 'distributed' starts no processes here; start them with "
            "`torchrun --nproc-per-node N -m elmo_plugin pretrain CONFIG -s FOLDER` instead"
        )
    unknown = sorted(config.keys() - KEYS)
    if unknown:
        raise ValueError(f"{source}: unknown keys {unknown}, expected one of {sorted(KEYS)}")
    if config.get("type", TYPE) != TYPE:
        raise ValueError(f"{source}: type is {config['type']!r}, expected {TYPE!r}")
    for name, expected in TYPES.items():
        part = config.get(name) or {}
        if not isinstance(part, dict):
            raise ValueError(f"{source}: {name} is {part!r}, expected an object")
        found = part.get("type", expected)
        if found != expected:
            raise ValueError(f"{source}: {name}.type is {found!r}, expected {expected!r}")
    for name in NEEDED:
        if name not in config:
            raise ValueError(f"{source}: the key {name!r} is missing")


def differences(config: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """
    Return the keys, such as `data_loader.batch_size`, whose values differ between two configs.

    Keys whose values may change when a run resumes, such as `trainer.num_epochs`, are left out.
    """
    one, two = _flat(config), _flat(other)
    missing = object()
    return sorted(
        key
        for key in one.keys() | two.keys()
        if one.get(key, missing) != two.get(key, missing)
        and not any(key == free or key.startswith(free + ".") for free in FREE)
        and key not in {f"{part}.type" for part in TYPES}
    )


def _flat(config: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(config, dict) or not config:
        return {path: config}
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{path}.{key}" if path else key)
    return flat


def files_named(config: Any) -> Iterator[Path]:
    """Yield the existing files that a config names anywhere, by path or by glob pattern."""
    if isinstance(config, dict):
        for value in config.values():
            yield from files_named(value)
    elif isinstance(config, list):
        for value in config:
            yield from files_named(value)
    elif isinstance(config, str):
        try:
            yield from find_text_files(config)
        except (OSError, ValueError):
            return


def folders_named(config: dict[str, Any]) -> list[Path]:
    """Return the folders from which the config's model takes options or weights."""
    model = config["model"]
    softmax = model.get("softmax") or {}
    named = model.get("options"), model.get("pretrained_file"), softmax.get("pretrained_file")
    return [Path(one) for one in named if isinstance(one, str) and Path(one).is_dir()]


def make_vocabulary(config: dict[str, Any]) -> WordVocabulary:
    """
    Read the softmax's vocabulary from the config's `vocabulary_file`. Without that key, build it
    from the words of the training text. Raise a `ValueError` if a key or a value is not usable.
    """
    settings = _part(config, "vocabulary")
    types = {"vocabulary_file": str | None, "min_count": int, "max_size": int | None}
    check_types("vocabulary", settings, types)
    file = settings.pop("vocabulary_file", None)
    if file is not None:
        return WordVocabulary.from_file(file)
    check_keys("vocabulary", settings, types)
    return vocabulary_of(find_text_files(config["train_data_path"]), **settings)


def make_text(config: dict[str, Any], heldout: bool = False) -> Any:
    """
    Build the loader for training or, with `heldout`, for evaluation. Return `None` if the config
    has no path for it. Raise a `ValueError` if the loader names paths or limits the held-out text.
    """
    key = "validation_data_path" if heldout else "train_data_path"
    path = config.get(key)
    own = heldout and "validation_data_loader" in config
    name = "validation_data_loader" if own else "data_loader"
    if path is None:
        return None
    settings = _part(config, name)
    if "paths" in settings:
        raise ValueError(f"{name} has paths, expected them in {key}")
    limits = ("num_tokens", "batches_per_epoch")
    if own and (given := [key for key in limits if settings.get(key) is not None]):
        raise ValueError(f"{name} has {given}, expected none: each evaluation reads the whole text")
    if heldout and not own:  # the training text's settings, except that the order is kept
        settings["shuffle"] = False
    return build(StreamLoader, name, {"paths": find_text_files(path), **settings})


def seed_of(config: dict[str, Any]) -> int:
    """Return the config's `pytorch_seed`, by default 133; raise a `ValueError` if it is no seed."""
    seed = config.get("pytorch_seed")
    if not matches_type(seed, int | None) or abs(seed or 0) >= 2**63:
        raise ValueError(f"pytorch_seed is {seed!r}, expected an int of 64 bits")
    return PYTORCH_SEED if seed is None else seed


def make_settings(config: dict[str, Any], command: list[str] | None = None) -> LoopSettings:
    """
    Build `LoopSettings` from the config's `trainer`, and from `gradient_scale` and `frozen_steps`
    of its `model`.

    `command` is the command line, to be stored in `card.json`. Raise a `ValueError` if a key is
    unknown, a value has the wrong type, or the optimizer is missing.
    """
    given, model = _part(config, "trainer"), _part(config, "model")
    types = {"cuda_device": int | None, "card": dict | None}
    check_types("trainer", given, types)
    given.pop("cuda_device", None)
    if not isinstance(given.get("optimizer"), dict):
        raise ValueError(f"optimizer is {given.get('optimizer')!r}, expected a type and arguments")
    card: dict[str, Any] = {"command": " ".join(command)} if command else {}
    card |= given.pop("card", None) or {}
    checkpointer = given.pop("checkpointer", None) or {}
    if not isinstance(checkpointer, dict):
        raise ValueError(f"checkpointer is {checkpointer!r}, expected an object")
    checkpointer = {name: one for name, one in checkpointer.items() if name != "type"}
    return build(
        LoopSettings,
        "trainer",
        {
            **given,
            **{name: model[name] for name in LOOP_KEYS if name in model},
            "checkpointer": build(CheckpointSettings, "trainer.checkpointer", checkpointer),
            "card": card,
        },
    )


def make_model_arguments(config: dict[str, Any]) -> dict[str, Any]:
    """
    Return the config's `model` as arguments for `make_language_model`. Raise a `ValueError` if a
    key is unknown or missing, or a value has the wrong type.
    """
    model = _part(config, "model")
    arguments = {name: value for name, value in model.items() if name not in LOOP_KEYS}
    types = get_type_hints(make_language_model)
    check_keys("model", arguments, types.keys() - {"words", "counts", "return"}, needed=["options"])
    check_types("model", arguments, types)
    types = {**get_type_hints(WordSoftmax.__init__), "pretrained_file": str | None}
    softmax = arguments.get("softmax") or {}
    check_keys(
        "model.softmax", softmax, types.keys() - {"num_words", "projection_dim", "counts", "return"}
    )
    check_types("model.softmax", softmax, types)
    return arguments


def needs_counts(config: dict[str, Any]) -> bool:
    """Return whether the softmax needs the counts of its words in the training text."""
    softmax = config["model"].get("softmax") or {}
    return bool(softmax.get("bias_from_counts")) or softmax.get("count_exponent") is not None


def _part(config: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in (config.get(name) or {}).items() if key != "type"}


def build(cls: Any, where: str, arguments: dict[str, Any]) -> Any:
    """
    Build an instance of the dataclass `cls` from one part of a config. `where` is the part's name
    in error messages.

    Raise a `ValueError` if a key is unknown or missing, or a value has the wrong type.
    """
    needed = [
        one.name for one in fields(cls) if one.default is MISSING and one.default_factory is MISSING
    ]
    check_keys(where, arguments, [one.name for one in fields(cls)], needed)
    check_types(where, arguments, get_type_hints(cls))
    return cls(**arguments)


def check_types(where: str, arguments: dict[str, Any], types: dict[str, Any]) -> None:
    """Raise a `ValueError` if an argument in the config part `where` does not have its type."""
    for name, expected in types.items():
        if name in arguments and not matches_type(arguments[name], expected):
            text = expected.__name__ if isinstance(expected, type) else expected
            raise ValueError(f"{where}: {name} is {arguments[name]!r}, expected {text}")


def matches_type(value: Any, expected: Any) -> bool:
    """
    Return whether a value has the type of an annotation, such as `int | None`. An `int` counts as a
    `float`, but a `bool` does not count as an `int`.
    """
    if isinstance(expected, UnionType):
        return any(matches_type(value, one) for one in get_args(expected))
    if isinstance(value, bool) or expected is bool:
        return isinstance(value, bool) and expected is bool
    return isinstance(
        value, (int, float) if expected is float else get_origin(expected) or expected
    )


def check_keys(
    where: str, found: Iterable[str], known: Iterable[str], needed: Iterable[str] = ()
) -> None:
    """Raise a `ValueError` if the config part `where` has unknown keys or lacks needed ones."""
    found, known = set(found), set(known)
    wrong = [f"the key {name!r} is unknown" for name in sorted(found - known)]
    wrong += [f"the key {name!r} is missing" for name in needed if name not in found]
    if wrong:
        raise ValueError(f"{where}: {'; '.join(wrong)}, expected one of {sorted(known)}")
