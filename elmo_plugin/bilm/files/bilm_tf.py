"""
Convert bilm-tf's training checkpoints, with softmax and optimizer state, to the released format.

TensorFlow reads the checkpoints. Names are those of bilm-tf
(https://github.com/allenai/bilm-tf/blob/7cffee2/bilm/training.py), and values are copied unchanged.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy
import torch

from elmo_plugin.bilm.files.atomic_write import atomic_write
from elmo_plugin.bilm.files.optional_packages import import_optional
from elmo_plugin.bilm.files.options import options_dict, parse_options, read_json
from elmo_plugin.bilm.files.weights import layout, write_arrays
from elmo_plugin.bilm.model.bilm import BiLm

OPTIONS_FILE, WEIGHTS_FILE = "options.json", "weights.hdf5"
SOFTMAX_FILE, CARD_FILE = "softmax.hdf5", "card.json"
ADAGRAD_FILE = "adagrad.hdf5"
SOFTMAX_KEYS = ("softmax/W", "softmax/b")

# Pattern of the names of LSTM datasets. Its last group is a key of `_CELL_NAMES`, which has the
# names of the variable in TensorFlow 1.2 and later, and in 1.0 and 1.1.
_CELL = re.compile(r"(RNN_\d)/RNN/MultiRNNCell/Cell(\d+)/LSTMCell/(W_0|B|W_P_0)")
_CELL_NAMES = {
    "W_0": ("kernel", "weights"),
    "B": ("bias", "biases"),
    "W_P_0": ("projection/kernel", "projection/weights"),
}


class BilmTfCheckpoint:
    """
    Training checkpoint of bilm-tf, whose variables' names and shapes the constructor checks.

    `directory` is bilm-tf's `--save_dir`, and `name` that of a checkpoint in it, such as
    `model.ckpt-1250`; by default the one that the file `checkpoint` names.

    Raise a `FileNotFoundError` if there is no checkpoint or no `options.json` beside it, and a
    `ModuleNotFoundError` without TensorFlow. Raise a `ValueError` if the checkpoint is damaged, is
    not a biLM's, or does not fit its options.
    """

    def __init__(self, directory: str | Path, name: str | None = None) -> None:
        directory = Path(directory)
        prefix = latest_checkpoint(directory)
        if name is not None:
            prefix = directory / name.removesuffix(".index")
        self.name = prefix.name
        self._variables = _Variables(prefix)
        self.training_options = _training_options(directory / OPTIONS_FILE)
        self.options = parse_options(self.training_options, str(directory / OPTIONS_FILE))
        with torch.device("meta"):
            bilm = BiLm(self.options)
        weights = {one.key: self._variables.find(one.key, one.shape) for one in layout(bilm)}
        softmax, self.num_words = {}, None
        if bias_shape := self._variables.shapes.get("lm/softmax/b"):
            self.num_words = bias_shape[0]
            shapes = (self.num_words, self.options.projection_dim), (self.num_words,)
            softmax = {
                key: self._variables.find(key, one) for key, one in zip(SOFTMAX_KEYS, shapes)
            }
        sums = {key: f"{name}/Adagrad" for key, name in (weights | softmax).items()}
        # Variable of each dataset in each HDF5 file.
        self._files = {WEIGHTS_FILE: weights}
        if softmax:
            self._files[SOFTMAX_FILE] = softmax
        if any(name in self._variables.shapes for name in sums.values()):
            self._files[ADAGRAD_FILE] = sums

    @property
    def files(self) -> list[str]:
        """Names of the files that `write` creates."""
        return [OPTIONS_FILE, CARD_FILE, *self._files]

    def write(self, directory: str | Path) -> None:
        """
        Write options, weights and a model card to a folder, which is made if needed, and the
        softmax and Adagrad's accumulators if the checkpoint has them. Raise a `ValueError` if the
        checkpoint is damaged; no file is written then.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        has_steps = "global_step" in self._variables.shapes
        steps = int(self._variables.read("global_step")) if has_steps else None
        card = {
            "run": f"bilm-tf, its checkpoint {self.name}",
            "steps": steps,
            "training_options": self.training_options,
        }
        with ExitStack() as stack:
            # The stack closes in reverse order, so `options.json` is renamed last.
            for name, content in ((OPTIONS_FILE, options_dict(self.options)), (CARD_FILE, card)):
                temporary = stack.enter_context(atomic_write(directory / name))
                temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            for name, variables in self._files.items():
                temporary = stack.enter_context(atomic_write(directory / name))
                read = ((key, self._variables.read(one)) for key, one in variables.items())
                write_arrays(temporary, read)


class _Variables:
    """Reader of variables in the TensorFlow checkpoint `prefix`, a path without `.index`."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        if not (Path(f"{prefix}.index").is_file() or prefix.is_file()):  # V1 files have no .index
            others = sorted(path.stem for path in prefix.parent.glob("*.index"))
            raise FileNotFoundError(
                f"there is no {prefix}.index; {prefix.parent} has "
                f"{', '.join(others[:10]) or 'no checkpoints'}"
            )
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow logs only errors
        self._tensorflow = import_optional("tensorflow")
        with self._errors():
            self._reader = self._tensorflow.train.load_checkpoint(str(prefix))
            shapes = self._reader.get_variable_to_shape_map()
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}

    def find(self, key: str, shape: tuple[int, ...]) -> str:
        """
        Return the name of the TensorFlow variable for the dataset `key` of a weight file. Raise a
        `ValueError` if there is none of this shape.
        """
        candidates = list(_names(key))
        for name in candidates:
            if name in self.shapes:
                if self.shapes[name] != shape:
                    raise ValueError(
                        f"{self.prefix}: {name} has shape {self.shapes[name]}, the options require "
                        f"{shape}"
                    )
                return name
        held = ", ".join(sorted(self.shapes)[:5]) or "none"
        raise ValueError(
            f"{self.prefix} has no variable {candidates[0]}, expected a biLM of bilm-tf's with "
            f"these options; its variables begin with {held}"
        )

    def read(self, name: str) -> numpy.ndarray:
        """Return a variable's numbers; raise a `ValueError` if it is missing or damaged."""
        if name not in self.shapes:
            raise ValueError(f"{self.prefix} has no variable {name}")
        with self._errors():
            array = numpy.asarray(self._reader.get_tensor(name))
        if array.dtype.kind not in "fiu":
            raise ValueError(f"{self.prefix}: {name} has type {array.dtype}, expected numbers")
        return array

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (self._tensorflow.errors.OpError, IndexError, RuntimeError) as error:
            raise ValueError(
                f"{self.prefix} is not a whole TensorFlow checkpoint: {str(error)[:500]}"
            ) from error


def latest_checkpoint(directory: str | Path) -> Path:
    """
    Return the path, without `.index`, of the checkpoint that the file `checkpoint` names, or
    without that file the one with the highest step. `directory` may have been moved since it was
    written.

    Raise a `FileNotFoundError` if there is no checkpoint, and a `ValueError` if the file names
    none.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise FileNotFoundError(f"there is no directory {directory}, expected one of checkpoints")
    state = directory / "checkpoint"
    if state.is_file():
        text = state.read_text("utf-8", "replace")
        named = re.search(r'^model_checkpoint_path:\s*"(.*)"\s*$', text, re.MULTILINE)
        if named is None:
            raise ValueError(f'{state} has no line model_checkpoint_path: "...", expected one')
        return directory / re.split(r"[/\\]", named[1])[-1]
    found = [path.with_suffix("") for path in directory.glob("*.index")]
    if not found:
        held = ", ".join(sorted(path.name for path in directory.iterdir())[:5]) or "nothing"
        raise FileNotFoundError(
            f"{directory} holds {held}, expected a TensorFlow checkpoint: NAME.index and "
            "NAME.data-00000-of-00001"
        )

    def step(path: Path) -> int:
        number = re.search(r"-(\d+)$", path.name)
        return int(number[1]) if number else -1

    return max(found, key=lambda path: (step(path), path.name))


def _names(key: str) -> Iterator[str]:
    """Yield the names that TensorFlow's versions give to the variable of dataset `key`."""
    cell = _CELL.fullmatch(key)
    if cell is None:
        yield f"lm/{key}"
        return
    direction, layer, part = cell.groups()
    for name in _CELL_NAMES[part]:
        yield f"lm/{direction}/rnn/multi_rnn_cell/cell_{layer}/lstm_cell/{name}"
        if layer == "0":  # bilm-tf puts no MultiRNNCell around a single layer
            yield f"lm/{direction}/rnn/lstm_cell/{name}"


def _training_options(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}, which bilm-tf writes beside its checkpoints")
    options = read_json(path, "options file")
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
