"""
What a pretraining run leaves for use: the released format, its vocabulary and softmax, and a card.
"""

import json
from pathlib import Path
from typing import Any

import h5py
import torch

from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.files.plain_hdf5 import plain_hdf5
from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.files.whole_file import whole_file
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.training.softmax import WordSoftmax
from elmo_plugin.bilm.training.vocabulary import WordVocabulary

OPTIONS_FILE = "options.json"
WEIGHTS_FILE = "weights.hdf5"
VOCABULARY_FILE = "vocabulary.txt"
SOFTMAX_FILE = "softmax.hdf5"
CARD_FILE = "card.json"


def export_bilm(
    bilm: BiLm,
    directory: str | Path,
    *,
    vocabulary: WordVocabulary | None = None,
    softmax: WordSoftmax | None = None,
    card: dict[str, Any] | None = None,
    dtype: str = "float32",
) -> None:
    """
    Writes `options.json` and `weights.hdf5` as bilm-tf and AllenNLP read them, and beside them what
    is given of vocabulary, softmax and card. Each file replaces an older one only when it is whole.

    # Parameters

    bilm : `BiLm`
        What was trained.
    directory : `Union[str, Path]`
        Where to; made if need be.
    vocabulary : `Optional[WordVocabulary]`, optional (default = `None`)
        The words of the softmax.
    softmax : `Optional[WordSoftmax]`, optional (default = `None`)
        For going on with the training later.
    card : `Optional[dict[str, Any]]`, optional (default = `None`)
        How the biLM came to be: data, command, steps, time, perplexities.
    dtype : `str`, optional (default = `"float32"`)
        How numbers are stored.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if vocabulary is not None:
        vocabulary.save(directory / VOCABULARY_FILE)
    if softmax is not None:
        _save_softmax(softmax, directory / SOFTMAX_FILE, dtype)
    if card is not None:
        _save_json(card, directory / CARD_FILE)
    save_weights(bilm, directory / WEIGHTS_FILE, dtype)
    _save_json(options_dict(bilm.options), directory / OPTIONS_FILE)


def load_softmax(softmax: WordSoftmax, path: str | Path) -> None:
    """
    Fills a softmax from a `softmax.hdf5`.

    # Parameters

    softmax : `WordSoftmax`
        Over the vocabulary that the file was made with.
    path : `Union[str, Path]`
        What `export_bilm` wrote.

    # Raises

    `FileNotFoundError`
        If there is no such file.
    `ValueError`
        If it is not a softmax, refers to other files, or is one of another size; the text names
        shapes found and wanted.
    """
    with plain_hdf5(path, "softmax file") as file:
        weight, bias = (
            torch.from_numpy(file[key][...].astype("float32")) if key in file else None
            for key in ("softmax/W", "softmax/b")
        )
    num_words, projection_dim = softmax.weight.shape
    shapes = [None if tensor is None else tuple(tensor.shape) for tensor in (weight, bias)]
    if weight is None or bias is None or shapes != [(num_words, projection_dim), (num_words,)]:
        raise ValueError(
            f"{path}: softmax/W and softmax/b have shapes {shapes[0]} and {shapes[1]}, expected "
            f"{(num_words, projection_dim)} and {(num_words,)}: the same vocabulary and "
            "projection_dim as in the run that wrote it"
        )
    with torch.no_grad():
        softmax.weight.copy_(weight)
        softmax.bias.copy_(bias.unsqueeze(-1))


def _save_softmax(softmax: WordSoftmax, path: Path, dtype: str) -> None:
    with whole_file(path) as aside, h5py.File(aside, "w") as file:
        # bilm-tf's names: softmax/W and softmax/b.
        file["softmax/W"] = softmax.weight.detach().cpu().numpy().astype(dtype)
        file["softmax/b"] = softmax.bias.detach().cpu().numpy().squeeze(-1).astype(dtype)


def _save_json(content: dict[str, Any], path: Path) -> None:
    with whole_file(path) as aside:
        aside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
