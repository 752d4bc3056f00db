"""
The biLM once more, in float64 numpy, one token and one step at a time, straight from the two files:
what the PyTorch code is held against where AllenNLP has no such biLM.

Written from the TensorFlow cell's definition and bilm-tf's graph
(https://github.com/allenai/bilm-tf/blob/7cffee2/bilm/model.py); it shares no code with the package.
"""

import json
from pathlib import Path

import numpy

from tests.hdf5 import arrays


def sigmoid(x):
    return 1.0 / (1.0 + numpy.exp(-x))


class NumpyBiLm:
    """Keeps the state of each row from call to call, as `state="carry"` does."""

    def __init__(self, options_file, weight_file):
        options = json.loads(Path(options_file).read_text())
        self.lstm, self.char_cnn = options["lstm"], options["char_cnn"]
        self.arrays = {name: array.astype("float64") for name, array in arrays(weight_file).items()}
        self.states = {}

    def __call__(self, sentences):
        """For each row, `mixture_size` arrays of shape `(num_tokens + 2, embedding_dim)`."""
        return [self._row(row, sentence) for row, sentence in enumerate(sentences)]

    def _row(self, row, sentence):
        marks = {0: [256], len(sentence) + 1: [257]}
        texts = ["", *sentence, ""]
        tokens = numpy.stack(
            [self.token(marks.get(k, list(text.encode()))) for k, text in enumerate(texts)]
        )
        forward = self._direction(row, 0, tokens)
        backward = [layer[::-1] for layer in self._direction(row, 1, tokens[::-1])]
        layers = [numpy.concatenate(pair, axis=1) for pair in zip(forward, backward, strict=True)]
        return [numpy.concatenate([tokens, tokens], axis=1), *layers]

    def token(self, inner):
        """The vector of one token from its bytes or its mark."""
        length = self.char_cnn["max_characters_per_token"]
        ids = [258, *inner[: length - 2], 259]
        ids += [260] * (length - len(ids))
        characters = self.arrays["char_embed"][ids]
        activation = {"relu": lambda x: numpy.maximum(x, 0), "tanh": numpy.tanh}
        pieces = []
        for k, (width, _) in enumerate(self.char_cnn["filters"]):
            kernel = self.arrays[f"CNN/W_cnn_{k}"][0]
            windows = [
                numpy.einsum("wd,wdn->n", characters[start : start + width], kernel)
                for start in range(length - width + 1)
            ]
            convolved = numpy.max(windows, axis=0) + self.arrays[f"CNN/b_cnn_{k}"]
            pieces.append(activation[self.char_cnn["activation"]](convolved))
        x = numpy.concatenate(pieces)
        for k in range(self.char_cnn["n_highway"]):
            weights = {name: self.arrays[f"CNN_high_{k}/{name}"] for name in
                       ("W_carry", "b_carry", "W_transform", "b_transform")}  # fmt: skip
            carry = sigmoid(x @ weights["W_carry"] + weights["b_carry"])
            transform = numpy.maximum(x @ weights["W_transform"] + weights["b_transform"], 0)
            x = carry * transform + (1 - carry) * x
        if len(x) != self.lstm["projection_dim"]:
            x = x @ self.arrays["CNN_proj/W_proj"] + self.arrays["CNN_proj/b_proj"]
        return x

    def _direction(self, row, direction, inputs):
        layers = []
        for layer in range(self.lstm["n_layers"]):
            key = (row, direction, layer)
            outputs, self.states[key] = self._cell(
                f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell",
                inputs,
                self.states.get(key),
            )
            if layer > 0 and self.lstm["use_skip_connections"]:
                outputs = outputs + inputs
            layers.append(outputs)
            inputs = outputs
        return layers

    def _cell(self, prefix, inputs, state):
        kernel, bias, projection = (self.arrays[f"{prefix}/{k}"] for k in ("W_0", "B", "W_P_0"))
        hidden, cell = state or (numpy.zeros(projection.shape[1]), numpy.zeros(len(projection)))
        outputs = []
        for x in inputs:
            i, j, f, o = numpy.split(numpy.concatenate([x, hidden]) @ kernel + bias, 4)
            cell = sigmoid(f + 1.0) * cell + sigmoid(i) * numpy.tanh(j)
            cell = self._clip(cell, "cell_clip")
            hidden = self._clip((sigmoid(o) * numpy.tanh(cell)) @ projection, "proj_clip")
            outputs.append(hidden)
        return numpy.stack(outputs), (hidden, cell)

    def _clip(self, values, key):
        limit = self.lstm[key]
        return values if limit is None else numpy.clip(values, -limit, limit)
