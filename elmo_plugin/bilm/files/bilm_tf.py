"""
bilm-tf's training checkpoints to the released format, its softmax and its optimizer's state.

Names of variables are those of bilm-tf (https://github.com/allenai/bilm-tf/blob/7cffee2/bilm/training.py),
which wrote the released `weights.hdf5` from such checkpoints (`dump_weights`). Numbers are copied
as they are.
"""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import torch

from elmo_plugin.bilm.files.options import options_dict, parse_options
from elmo_plugin.bilm.files.tensorflow.checkpoint import TensorFlowCheckpoint, latest_checkpoint
from elmo_plugin.bilm.files.weights import CHECKSUM, checksum_of, layout
from elmo_plugin.bilm.files.whole_file import whole_file
from elmo_plugin.bilm.model.bilm import BiLm

OPTIONS_FILE, WEIGHTS_FILE = "options.json", "weights.hdf5"
SOFTMAX_FILE, CARD_FILE = "softmax.hdf5", "card.json"
ADAGRAD_FILE = "adagrad.hdf5"
SOFTMAX_KEYS = ("softmax/W", "softmax/b")
ADAGRAD = "/Adagrad"

# An LSTM's variables as TensorFlow 1.2 and later call them, and as 1.0 and 1.1 do.
_CELL = re.compile(r"(RNN_\d)/RNN/MultiRNNCell/Cell(\d+)/LSTMCell/(W_0|B|W_P_0)")
_CELL_NAMES = {
    "W_0": ("kernel", "weights"),
    "B": ("bias", "biases"),
    "W_P_0": ("projection/kernel", "projection/weights"),
}


class BilmTfCheckpoint:
    """
    A checkpoint of bilm-tf's, and what it holds; nothing is written yet.

    # Parameters

    directory : `str | Path`
        bilm-tf's `--save_dir`: `options.json`, and what TensorFlow's `Saver` wrote.
    name : `str | None`, optional (default = `None`)
        Which checkpoint, `model.ckpt-1250`; the one that the file `checkpoint` names if not given.

    # Raises

    `FileNotFoundError`
        If there is no checkpoint, or no `options.json` beside it.
    `ValueError`
        If it is damaged, of another model, or does not fit its options; the text names what was
        found and expected.
    """

    def __init__(self, directory: str | Path, name: str | None = None) -> None:
        directory = Path(directory)
        prefix = latest_checkpoint(directory)
        if name is not None:
            prefix = directory / name.removesuffix(".index")
        self.name = prefix.name
        self._checkpoint = TensorFlowCheckpoint(prefix)
        self.training_options = _training_options(directory / OPTIONS_FILE)
        self.options = parse_options(self.training_options, str(directory / OPTIONS_FILE))
        with torch.device("meta"):
            bilm = BiLm(self.options)
        self._names = {one.key: self._name(one.key, one.shape) for one in layout(bilm)}
        num_words = self._checkpoint.variables.get("lm/softmax/b")
        self.num_words = None if num_words is None else num_words.shape[0]
        if self.num_words is not None:
            shapes = (self.num_words, self.options.projection_dim), (self.num_words,)
            self._names |= {key: self._name(key, one) for key, one in zip(SOFTMAX_KEYS, shapes)}
        slots = [name + ADAGRAD for name in self._names.values()]
        self.has_accumulators = any(name in self._checkpoint.variables for name in slots)
        for name in [*self._names.values(), *(slots if self.has_accumulators else [])]:
            self._checkpoint.check(name)

    def _name(self, key: str, shape: tuple[int, ...]) -> str:
        """The variable that belongs at a key, if it is there in this shape."""
        candidates = list(_names(key))
        for name in candidates:
            if name in self._checkpoint.variables:
                found = self._checkpoint.variables[name].shape
                if found != shape:
                    raise ValueError(
                        f"{self._checkpoint.prefix}: {name} has shape {found}, the options want "
                        f"{shape}"
                    )
                return name
        held = ", ".join(sorted(self._checkpoint.variables)[:5]) or "none"
        raise ValueError(
            f"{self._checkpoint.prefix} has no variable {candidates[0]}, expected a biLM of "
            f"bilm-tf's with these options; its variables begin with {held}"
        )

    def write(self, directory: str | Path) -> list[str]:
        """
        Writes `options.json`, `weights.hdf5`, `card.json`, and what there is of `softmax.hdf5` and
        `adagrad.hdf5`, the optimizer's accumulators under the names of what they belong to. All
        take their place together, when all bytes that were read have their checksums.

        # Parameters

        directory : `str | Path`
            Where to; made if need be.

        # Returns

        `list[str]`
            What was written.

        # Raises

        `ValueError`
            If a data file is damaged; nothing is written then.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        weights = [key for key in self._names if key not in SOFTMAX_KEYS]
        softmax = [key for key in self._names if key in SOFTMAX_KEYS]
        files = [(WEIGHTS_FILE, weights, ""), (SOFTMAX_FILE, softmax, "")]
        if self.has_accumulators:
            files.append((ADAGRAD_FILE, list(self._names), ADAGRAD))
        files = [one for one in files if one[1]]
        card = {
            "run": f"bilm-tf, its checkpoint {self.name}",
            "steps": self._steps(),
            "training_options": self.training_options,
        }
        with ExitStack() as stack:
            # In this order they leave the stack: the options last, once what they are of is there.
            for name, content in (
                (OPTIONS_FILE, options_dict(self.options)),
                (CARD_FILE, card),
            ):
                aside = stack.enter_context(whole_file(directory / name))
                aside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            for name, keys, slot in files:
                aside = stack.enter_context(whole_file(directory / name))
                with h5py.File(aside, "w") as file:
                    self._copy(file, keys, slot)
        return [OPTIONS_FILE, CARD_FILE, *(name for name, _, _ in files)]

    def _copy(self, file: h5py.File, keys: list[str], slot: str) -> None:
        checksum = 0
        for key in keys:
            array = self._checkpoint.read(self._names[key] + slot)
            file.create_dataset(key, data=array)
            checksum = checksum_of(key, array, checksum)
        file.attrs[CHECKSUM] = checksum

    def _steps(self) -> int | None:
        if "global_step" not in self._checkpoint.variables:
            return None
        return int(self._checkpoint.read("global_step"))


def _names(key: str) -> Iterator[str]:
    """What variables may be called that belong at a key of the released layout."""
    cell = _CELL.fullmatch(key)
    if cell is None:
        yield f"lm/{key}"
        return
    direction, layer, part = cell.groups()
    for name in _CELL_NAMES[part]:
        yield f"lm/{direction}/rnn/multi_rnn_cell/cell_{layer}/lstm_cell/{name}"
        if layer == "0":  # one layer has no MultiRNNCell around it
            yield f"lm/{direction}/rnn/lstm_cell/{name}"


def _training_options(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}, which bilm-tf writes beside its checkpoints")
    try:
        options = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a JSON file: {str(error)[:200]}") from error
    if not isinstance(options, dict) or "lstm" not in options:
        raise ValueError(f"{path} has no key lstm, expected bilm-tf's options")
    if not options.get("bidirectional", False):
        raise ValueError(f"{path}: bidirectional is not true, expected a biLM's options")
    if "char_cnn" not in options:
        raise ValueError(
            f"{path} has no key char_cnn: it is of a model that reads words, expected one that "
            "reads characters"
        )
    return options
