"""
Export of a biLM: weights in the released format, vocabulary, softmax, and a model card.

The model card, `card.json`, records how the biLM was trained.
"""

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from elmo_plugin.bilm.files.atomic_write import atomic_write, write_json
from elmo_plugin.bilm.files.bilm_tf import CARD_FILE, OPTIONS_FILE, SOFTMAX_FILE, WEIGHTS_FILE
from elmo_plugin.bilm.files.names import find_options
from elmo_plugin.bilm.files.options import options_dict, parse_options
from elmo_plugin.bilm.files.plain_tensors import UNREADABLE, first_line, load_checked
from elmo_plugin.bilm.files.safetensors_file import SAFETENSORS_FILE, config_files, save_safetensors
from elmo_plugin.bilm.files.text import counted
from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.pretraining.checkpoints import points_in, read_object
from elmo_plugin.bilm.pretraining.language_model import LanguageModel
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax, save_softmax
from elmo_plugin.bilm.pretraining.vocabulary import SPECIAL_WORDS, WordVocabulary

VOCABULARY_FILE = "vocabulary.txt"
BEST_FILE = "best.th"
# An absolute path, up to its last part.
FOLDERS = re.compile(r"(?<![\w./:~-])(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\\"',;]+[/\\])*(?=[^\s/\\])")


def export_bilm(
    bilm: BiLm | None,
    directory: str | Path,
    *,
    vocabulary: WordVocabulary | None = None,
    softmax: WordSoftmax | None = None,
    card: dict[str, Any] | None = None,
    dtype: str = "float32",
    softmax_dtype: str | None = None,
    file_format: str = "hdf5",
) -> None:
    """
    Write a biLM's `options.json` and `weights.hdf5` in the format of bilm-tf and AllenNLP, or with
    the `file_format` `"safetensors"`, `config.json` and `model.safetensors` for transformers.

    Vocabulary, softmax and model card are written too if they are given. Earlier files are replaced
    once all new ones are written.

    # Parameters

    bilm : `BiLm | None`
        `None` to write only the others, next to a biLM that was exported before.
    vocabulary, softmax
        Softmax that the biLM was trained with, and its words. They are needed to score sentences
        and to continue the training.
    card : `dict[str, Any] | None`, optional (default = `None`)
        Record of the training, such as data, command, steps, time and perplexities. Absolute paths
        are cut to file names.
    dtype : `str`, optional (default = `"float32"`)
        Type of the stored weights, `"float16"` or `"float32"`.
    softmax_dtype : `str | None`, optional (default = `None`)
        Type of the stored softmax, see `save_softmax`; `dtype` if not given.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as files:

        def aside(name: str) -> Path:
            return files.enter_context(atomic_write(directory / name))

        # The last one written is renamed first.
        if bilm is None:
            pass
        elif file_format == "hdf5":
            write_json(aside(OPTIONS_FILE), options_dict(bilm.options))
            save_weights(bilm, aside(WEIGHTS_FILE), dtype)
        else:
            for name, content in config_files(bilm.options).items():
                write_json(aside(name), content)
            save_safetensors(bilm, aside(SAFETENSORS_FILE), dtype)
        if card is not None:
            write_json(aside(CARD_FILE), without_folders(card))
        if softmax is not None:
            save_softmax(softmax, aside(SOFTMAX_FILE), softmax_dtype or dtype)
        if vocabulary is not None:
            vocabulary.save(aside(VOCABULARY_FILE))


def without_folders(value: Any) -> Any:
    """Return JSON in which absolute paths are cut to their names: a card is published."""
    if isinstance(value, dict):
        return {key: without_folders(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_folders(one) for one in value]
    return FOLDERS.sub("", value) if isinstance(value, str) else value


def export_run(
    run: str | Path,
    directory: str | Path,
    checkpoint: str | None = None,
    dtype: str = "float32",
    max_words: int | None = None,
    softmax_dtype: str | None = None,
    softmax_only: bool = False,
    file_format: str = "hdf5",
) -> str:
    """
    Export the biLM of a pretraining run, finished or not; return a description of what was
    exported.

    # Parameters

    checkpoint : `str | None`, optional (default = `None`)
        Name of a checkpoint file in the run's folder. The default is `best.th`, the best epoch's
        weights, of a finished run, and the newest checkpoint of any other run.
    dtype, softmax_dtype, file_format
        See `export_bilm`.
    max_words : `int | None`, optional (default = `None`)
        Number of words to keep in vocabulary and softmax, the most frequent ones; all if not given.
    softmax_only : `bool`, optional (default = `False`)
        Write only vocabulary and softmax, next to a biLM that was exported before.

    # Raises

    `FileNotFoundError`, `ValueError`
        If the folder has no pretraining run or no checkpoint, or a file is damaged.
    """
    run = Path(run)
    if not (run / "config.json").is_file():
        raise FileNotFoundError(
            f"{run} has no config.json, expected the folder of a pretraining run"
        )
    options, card, checkpoints = _read_options(run), _card_of_finished(run), points_in(run)
    if checkpoint or card is not None:
        path = run / (checkpoint or BEST_FILE)
    elif checkpoints:
        path = checkpoints[max(checkpoints)]
    else:
        raise FileNotFoundError(f"{run} holds no checkpoint checkpoint_*.th")
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    words = WordVocabulary.from_file(run / "vocabulary" / "words.txt")
    model = LanguageModel(BiLm(options), WordSoftmax(len(words), options.projection_dim))
    try:
        state = load_checked(path, mmap=True)
        model.load_weights(state.get("model", state))
    except UNREADABLE as error:
        raise ValueError(
            f"{path} is not an intact checkpoint of this run's model: {first_line(error)}"
        ) from error
    if card is not None and path.name == BEST_FILE:
        card["checkpoint"] = path.name
        place = f": epoch {card['epoch']}, step {card['steps']}" if "epoch" in card else ""
        title = f"the best epoch's weights of a finished run ({path.name}{place})"
    else:
        ended = "is not finished" if card is None else "finished later"
        card, place = {"checkpoint": path.name, "run": ended}, "an unknown step"
        if progress := state.get("progress"):
            card |= {name: progress[name] for name in ("epochs", "steps", "metrics")}
            card["batches_of_the_next"] = progress["batches"]
            place = f"after {counted(card['epochs'], 'epoch')}, step {card['steps']}"
        title = f"the checkpoint {path.name} ({place}) of a run that {ended}"
    softmax = model.softmax
    if max_words is not None and max_words < len(words):
        words, softmax = first_words(words, softmax, max_words)
        card["words_of_the_softmax"] = len(words)
        title += f", the softmax over the first {len(words)} words"
    export_bilm(
        None if softmax_only else model.bilm,
        directory,
        vocabulary=words,
        softmax=softmax,
        card=None if softmax_only else card,
        dtype=dtype,
        softmax_dtype=softmax_dtype,
        file_format=file_format,
    )
    return f"softmax of {title}" if softmax_only else title


def _card_of_finished(run: Path) -> dict[str, Any] | None:
    """
    Return the model card of a run that has exported its best epoch, and has no checkpoint of a
    later one; `None` for another run.
    """
    path = run / CARD_FILE
    if not (path.is_file() and (run / BEST_FILE).is_file()):
        return None
    card = read_object(path)
    if not isinstance(metrics := card.get("metrics", {}), dict):
        raise ValueError(f"{path} is damaged: its metrics are not an object")
    end = metrics.get("epoch", -1) + 1, 0
    return card if all(point <= end for point in points_in(run)) else None


def _read_options(run: Path) -> ElmoOptions:
    """Return the biLM's options from a run's config."""
    path = run / "config.json"
    model = read_object(path).get("model")
    if not isinstance(model, dict):
        raise ValueError(f"{path} has no object under 'model', expected a pretraining run's config")
    if model.get("type", "bilm_language_model") != "bilm_language_model":
        raise ValueError(f"{path}: the model is {model['type']!r}, expected a pretraining run")
    if not isinstance(options := model.get("options"), (dict, str)):
        raise ValueError(f"{path}: model.options is {options!r}, expected a biLM's options")
    return parse_options(options, str(path)) if isinstance(options, dict) else find_options(options)


def first_words(
    words: WordVocabulary, softmax: WordSoftmax, max_words: int
) -> tuple[WordVocabulary, WordSoftmax]:
    """Return a vocabulary and a softmax of the first words, which have the special ones."""
    late = [word for word in SPECIAL_WORDS if words.ids[word] >= max_words]
    if late:
        raise ValueError(
            f"max_words is {max_words}, but {late[0]} is word {words.ids[late[0]]} of the "
            "vocabulary: expected more words"
        )
    kept = WordSoftmax(max_words, softmax.weight.shape[1])
    with torch.no_grad():
        kept.weight.copy_(softmax.weight[:max_words])
        kept.bias.copy_(softmax.bias[:max_words])
    return WordVocabulary(words.words[:max_words]), kept
