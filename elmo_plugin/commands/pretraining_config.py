"""A pretraining config, JSON or jsonnet, read without AllenNLP."""

import inspect
import json
import os
from pathlib import Path
from typing import Any, Dict, List

from elmo_plugin.bilm.training.language_model import make_language_model
from elmo_plugin.bilm.training.settings import (
    LoopSettings,
    check_keys,
    is_a,
    loop_settings,
    made_of,
)
from elmo_plugin.bilm.training.softmax import WordSoftmax
from elmo_plugin.bilm.training.text import Text
from elmo_plugin.bilm.training.vocabulary import WordVocabulary, find_text_files
from elmo_plugin.bilm.training.word_counts import vocabulary_of

# What each part's `type` may be; none is needed.
TYPES = {
    "dataset_reader": "bilm_text",
    "vocabulary": "bilm_words",
    "model": "bilm_language_model",
    "data_loader": "token_streams",
    "validation_data_loader": "token_streams",
    "trainer": "bilm_pretraining",
}
# AllenNLP's, without a meaning here: what they ask for is so anyway, or of its processes.
PASSED_OVER = {"datasets_for_vocab_creation", "random_seed", "numpy_seed", "distributed"}
KEYS = {*TYPES, *PASSED_OVER, "train_data_path", "validation_data_path", "pytorch_seed"}
# May be others when a run goes on.
FREE = (
    "trainer.num_epochs",
    "trainer.patience",
    "trainer.learning_rate_scheduler",
    "trainer.checkpointer",
    "trainer.callbacks",
    "trainer.tensorboard",
    "trainer.cuda_device",
    "data_loader.num_workers",
    "validation_data_loader.num_workers",
    "distributed",
)
# What the config has at its model, and here the loop is told.
OF_THE_LOOP = ("gradient_scale", "frozen_steps")
# AllenNLP's default.
PYTORCH_SEED = 133


def read_config(path: str, overrides: str = "") -> Dict[str, Any]:
    """
    # Parameters

    path : `str`
        Of a `.json` or, with `std.extVar` for the environment's variables, a `.jsonnet`.
    overrides : `str`, optional (default = `""`)
        JSON whose values take the place of the config's; a key may be a path, `model.dropout`.

    # Raises

    `FileNotFoundError`
        If there is no such file.
    `ValueError`
        If it is not such a config; the text names what is wrong.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no config {path}")
    try:
        if path.endswith(".jsonnet"):
            import _jsonnet

            text = _jsonnet.evaluate_file(path, ext_vars=_environment())
        else:
            text = Path(path).read_text(encoding="utf-8")
        config = json.loads(text)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{path}: {str(error).strip()}") from error
    try:
        more = json.loads(overrides or "{}")
    except ValueError as error:
        raise ValueError(f"--overrides is {overrides!r}, expected JSON: {error}") from error
    for what, found in ((path, config), ("--overrides", more)):
        if not isinstance(found, dict):
            raise ValueError(f"{what} is {found!r}, expected an object")
    for key, value in more.items():
        part = config
        *parents, name = key.split(".")
        for parent in parents:
            part = part.setdefault(parent, {}) if isinstance(part, dict) else None
        if not isinstance(part, dict):
            raise ValueError(f"--overrides has {key!r}, expected keys of objects alone")
        part[name] = value
    unknown = sorted(config.keys() - KEYS)
    if unknown:
        raise ValueError(f"{path}: unknown keys {unknown}, expected of {sorted(KEYS)}")
    for part_name, expected in TYPES.items():
        part = config.get(part_name) or {}
        if not isinstance(part, dict):
            raise ValueError(f"{path}: {part_name} is {part!r}, expected an object")
        found = part.get("type", expected)
        if found != expected:
            raise ValueError(f"{path}: {part_name}.type is {found!r}, expected {expected!r}")
    for part_name in ("train_data_path", "model", "data_loader", "trainer"):
        if part_name not in config:
            raise ValueError(f"{path}: the key {part_name!r} is missing")
    return config


def _environment() -> Dict[str, str]:
    # jsonnet takes what is UTF-8.
    return {
        name: value
        for name, value in os.environ.items()
        if value.isprintable() and (name + value).encode("utf-8", "ignore").decode() == name + value
    }


def differences(config: Dict[str, Any], other: Dict[str, Any]) -> List[str]:
    """
    # Returns

    `List[str]`
        The keys that two configs of one run must have alike, and do not.
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


def _flat(config: Any, path: str = "") -> Dict[str, Any]:
    if not isinstance(config, dict) or not config:
        return {path: config}
    flat: Dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{path}.{key}" if path else key)
    return flat


def make_vocabulary(config: Dict[str, Any]) -> WordVocabulary:
    """The words to predict: those of a file, or counted in the text."""
    settings = _part(config, "vocabulary")
    file = settings.pop("vocabulary_file", None)
    if file is not None:
        return WordVocabulary.from_file(file)
    unknown = sorted(settings.keys() - {"min_count", "max_size"})
    if unknown:
        raise ValueError(f"vocabulary: unknown keys {unknown}")
    for name, value in settings.items():
        if not is_a(value, int | None):
            raise ValueError(f"vocabulary: {name} is {value!r}, expected an int")
    return vocabulary_of(find_text_files(config["train_data_path"]), **settings)


def make_text(config: Dict[str, Any], heldout: bool = False) -> Any:
    """The text to train on, or the held-out one; `None` if there is none."""
    path = config.get("validation_data_path" if heldout else "train_data_path")
    own = heldout and "validation_data_loader" in config
    name = "validation_data_loader" if own else "data_loader"
    if path is None:
        return None
    settings = _part(config, name)
    if heldout and not own:  # the training text's settings, but in the order given
        settings["shuffle"] = False
    return made_of(Text, name, {"paths": find_text_files(path), **settings})


def seed_of(config: Dict[str, Any]) -> int:
    """Of the weights that a run begins with."""
    seed = config.get("pytorch_seed")
    if not is_a(seed, int | None):
        raise ValueError(f"pytorch_seed is {seed!r}, expected an int")
    return PYTORCH_SEED if seed is None else seed


def make_settings(config: Dict[str, Any], command: List[str]) -> LoopSettings:
    """What the loop is told."""
    trainer, model = _part(config, "trainer"), _part(config, "model")
    trainer.pop("cuda_device", None)
    more = {name: model[name] for name in OF_THE_LOOP if name in model}
    return loop_settings(trainer, **more, command=command)


def make_model_arguments(config: Dict[str, Any]) -> Dict[str, Any]:
    """What `make_language_model` is told beside the words."""
    model = _part(config, "model")
    arguments = {name: value for name, value in model.items() if name not in OF_THE_LOOP}
    known = inspect.signature(make_language_model).parameters.keys() - {"words"}
    check_keys("model", arguments, known, needed=["options"])
    known = inspect.signature(WordSoftmax).parameters.keys() - {"num_words", "projection_dim"}
    check_keys("model.softmax", arguments.get("softmax") or {}, known | {"pretrained_file"})
    return arguments


def _part(config: Dict[str, Any], name: str) -> Dict[str, Any]:
    return {key: value for key, value in (config.get(name) or {}).items() if key != "type"}
