"""A pretraining run's checkpoint to files for use; those that AllenNLP's trainer wrote, too."""

import json
import re
from pathlib import Path
from typing import Any

import torch

from elmo_plugin.bilm.files.names import find_options
from elmo_plugin.bilm.files.options import parse_options
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.training.export import export_bilm
from elmo_plugin.bilm.training.language_model import LanguageModel
from elmo_plugin.bilm.training.run_files import UNREADABLE
from elmo_plugin.bilm.training.softmax import WordSoftmax
from elmo_plugin.bilm.training.step import PREFIX
from elmo_plugin.bilm.training.vocabulary import WordVocabulary

# Ours, and the half with the weights of a pair by AllenNLP's trainer (until version 0.2).
WITH_WEIGHTS = re.compile(r"(?:checkpoint|model_state)_e(\d+)_b(\d+)\.th")


def export_checkpoint(
    run: str | Path,
    directory: str | Path,
    checkpoint: str | None = None,
    dtype: str = "float32",
) -> str:
    """
    Writes what `export_bilm` does, from a run that may not have ended; the card says so.

    # Parameters

    run : `Union[str, Path]`
        The run's directory: `config.json`, `vocabulary/`, checkpoints.
    directory : `Union[str, Path]`
        Where to.
    checkpoint : `Optional[str]`, optional (default = `None`)
        A file in the run's directory; the newest if not given.
    dtype : `str`, optional (default = `"float32"`)
        How numbers are stored.

    # Returns

    `str`
        The checkpoint's name.

    # Raises

    `FileNotFoundError`
        If there is no such run or no checkpoint in it.
    `ValueError`
        If it is not a biLM's; nothing in a checkpoint is executed.
    """
    run = Path(run)
    if not (run / "config.json").is_file():
        raise FileNotFoundError(f"{run} has no config.json, expected a pretraining run's directory")
    model = json.loads((run / "config.json").read_text(encoding="utf-8")).get("model", {})
    if model.get("type", "bilm_language_model") != "bilm_language_model":
        raise ValueError(
            f"{run}/config.json: the model is {model.get('type')!r}, expected 'bilm_language_model'"
        )
    path = run / checkpoint if checkpoint else _newest(run)
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    options = model["options"]
    options = parse_options(options) if isinstance(options, dict) else find_options(options)
    words = WordVocabulary.from_file(run / "vocabulary" / "words.txt")
    language_model = LanguageModel(BiLm(options), WordSoftmax(len(words), options.projection_dim))
    _load(language_model, path)
    card: dict[str, Any] = {"checkpoint": path.name, "run": "from a checkpoint, not its end"}
    point = WITH_WEIGHTS.fullmatch(path.name)
    if point:
        card |= {"epochs": int(point[1]), "batches_of_the_next": int(point[2])}
    export_bilm(
        language_model.bilm,
        directory,
        vocabulary=words,
        softmax=language_model.softmax,
        card=card,
        dtype=dtype,
    )
    return path.name


def _newest(run: Path) -> Path:
    found = ((WITH_WEIGHTS.fullmatch(path.name), path) for path in run.iterdir())
    points = [(int(point[1]), int(point[2]), path) for point, path in found if point]
    if not points:
        raise FileNotFoundError(f"{run} holds no checkpoint checkpoint_*.th")
    return max(points)[2]


def _load(language_model: LanguageModel, path: Path) -> None:
    try:
        # Mapped: the optimizer's part is not read.
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        state = state.get("model", state)
        own = {name.removeprefix(PREFIX): tensor for name, tensor in state.items()}
        language_model.load_state_dict(own)
    except UNREADABLE as error:
        raise ValueError(
            f"{path} is not a whole checkpoint of this run's model: {str(error).splitlines()[0]}"
        ) from error
