"""
Read and write `options.json`, the sizes of a biLM. Its keys are bilm-tf's
(https://github.com/allenai/bilm-tf/blob/7cffee2/bin/train_elmo.py).
"""

import json
import reprlib
from pathlib import Path
from typing import Any

from elmo_plugin.bilm.manylangs.many_langs_options import ManyLangsOptions
from elmo_plugin.bilm.model.options import ACTIVATIONS, ElmoOptions

# Largest size of an options.json that is read; released files have about 340 bytes.
MOST_BYTES = 1 << 20

# Limits on sizes. Larger numbers come from a damaged file and would allocate much memory.
MOST_LAYERS, MOST_UNITS, MOST_WORDS, MOST_PARAMETERS = 2**8, 2**20, 2**26, 2**32


def read_options(path: str | Path) -> ElmoOptions:
    """
    Read the sizes of a biLM from an `options.json`, or from a `config.json` of transformers. Raise
    a `FileNotFoundError` if there is no such file, and a `ValueError` if it holds no options.
    """
    found = read_json(path, "options file")
    if isinstance(found, dict) and "char_cnn" not in found and found.get("model_type") == "elmo":
        return parse_options(OptionsReader(found, str(path)).value("options", dict), str(path))
    return parse_options(found, source=str(path))


def read_json(path: str | Path, kind: str) -> Any:
    """
    Read a small JSON file; `kind` describes it in messages, such as "options file". Raise a
    `FileNotFoundError` if there is none, and a `ValueError` that names it if it is too large, is
    not JSON, or has a duplicate key.
    """
    if not Path(path).is_file():  # opening a FIFO would block
        raise FileNotFoundError(f"there is no {kind} {path}")
    with Path(path).open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{path} has more than {MOST_BYTES} bytes, expected fewer in this {kind}")
    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=_once)
    # A number with thousands of digits raises a ValueError; deep nesting raises a RecursionError.
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is not a JSON file: {str(error)[:200]}; expected: {kind}"
        ) from error


def parse_options(options: dict[str, Any], source: str = "options") -> ElmoOptions:
    """
    Convert the content of an `options.json` to `ElmoOptions`; keys for training are ignored.

    `source` is the file's name for messages. Raise a `ValueError` if a key is missing, a value is
    unusable, or the biLM would have more than 2**32 parameters.
    """
    reader = OptionsReader(options, source)
    # bilm-tf writes 261 (256 bytes and 5 special characters) for training, and 262 for prediction
    # (with the padding id 0). The weight file has 261 rows in both cases.
    if (number := reader.value("char_cnn.n_characters", int, default=262)) not in (261, 262):
        need = "261 or 262 (UTF-8 bytes and five marks; no other set has a released format)"
        raise reader.error("char_cnn.n_characters", number, need)
    found = ElmoOptions(
        **reader.sizes("lstm", "char_cnn"),
        num_layers=reader.count("lstm.n_layers", most=MOST_LAYERS, default=1),
        char_embedding_dim=reader.count("char_cnn.embedding.dim"),
        use_skip_connections=reader.value("lstm.use_skip_connections", bool, default=False),
    )
    if "many_langs" in options:
        found = ManyLangsOptions(
            **vars(found),
            num_embeddings=reader.count("many_langs.n_characters"),
            num_words=reader.count("many_langs.n_words", least=0, most=MOST_WORDS),
            word_dim=reader.count("many_langs.word_dim", least=0),
        )
    check_size(found, source)
    for part, known in options_dict(found).items():
        given = options[part].keys()
        unknown, absent = sorted(map(str, given - known.keys())), sorted(known.keys() - given)
        if unknown and absent:  # a misspelled key would silently get its default
            raise ValueError(f"{source}: {part} has no {absent[0]}, but {unknown[0][:50]!r}")
    return found


def options_dict(options: ElmoOptions) -> dict[str, Any]:
    """
    Convert options to the content of an `options.json`, as bilm-tf and AllenNLP read it. Those of
    ELMoForManyLangs models, which they cannot read, have another key, `many_langs`.
    """
    found: dict[str, Any] = {
        "lstm": {
            "use_skip_connections": options.use_skip_connections,
            "projection_dim": options.projection_dim,
            "cell_clip": options.cell_clip,
            "proj_clip": options.projection_clip,
            "dim": options.cell_size,
            "n_layers": options.num_layers,
        },
        "char_cnn": {
            "activation": options.activation,
            "filters": [list(pair) for pair in options.filters],
            "n_highway": options.num_highways,
            "embedding": {"dim": options.char_embedding_dim},
            "n_characters": 262,
            "max_characters_per_token": options.num_characters,
        },
    }
    if isinstance(options, ManyLangsOptions):
        del found["char_cnn"]["n_characters"]
        found["many_langs"] = {
            "n_characters": options.num_embeddings,
            "n_words": options.num_words,
            "word_dim": options.word_dim,
        }
    return found


def check_size(options: ElmoOptions, source: str) -> None:
    """Raise a `ValueError` about `source` if a biLM would have more than 2**32 parameters."""
    if (number := num_parameters(options)) > MOST_PARAMETERS:
        raise ValueError(f"{source}: {number} parameters, expected at most {MOST_PARAMETERS}")


def num_parameters(options: ElmoOptions) -> int:
    """Return the number of parameters of a biLM's token layer and LSTMs."""
    filters, dim, cell = options.num_filters, options.projection_dim, options.cell_size
    convolutions = sum(n * (w * options.char_embedding_dim + 1) for w, n in options.filters)
    highways = options.num_highways * 2 * filters * (filters + 1)
    lstm_layer = 4 * cell * (2 * dim + 1) + cell * dim
    projection = (filters + 1) * dim if filters != dim else 0
    characters, words = 262, 0
    if isinstance(options, ManyLangsOptions):
        characters, projection = options.num_embeddings + 1, (filters + 1) * dim
        words = options.word_dim * (options.num_words + dim)
    tokens = characters * options.char_embedding_dim + convolutions + highways + projection + words
    return tokens + 2 * options.num_layers * lstm_layer


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a dict from the pairs of a JSON object; raise a `ValueError` for a duplicate key."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:50]!r} comes twice, expected it once")
    return found


class OptionsReader:
    """
    Reader of values in nested JSON objects by dotted keys, such as `lstm.dim`. Its methods raise a
    `ValueError` that names `source`, key and value if a value is missing or unusable.
    """

    def __init__(self, options: Any, source: str) -> None:
        self.options = options
        self.source = source

    def value(self, key: str, kind: type, **default: Any) -> Any:
        """
        Return the value of a key, which must have the type `kind`. If it is missing or null, return
        the keyword argument `default`, if given.
        """
        found = self.options
        for part in key.split("."):
            if not isinstance(found, dict):
                raise ValueError(f"{self.source}: expected a JSON object around {key}")
            if part not in found and "default" not in default:
                raise ValueError(
                    f"{self.source}: the key {key} is missing, expected options with it"
                )
            found = found.get(part)
            if found is None and "default" in default:
                return default["default"]
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            raise self.error(key, found, f"a value of type {kind.__name__}")
        return found

    def error(self, key: str, found: Any, need: str) -> ValueError:
        """Return the error for an unusable value `found`; `need` describes a usable value."""
        return ValueError(f"{self.source}: {key} is {reprlib.repr(found)}, expected {need}")

    def count(self, key: str, least: int = 1, most: int = MOST_UNITS, **default: Any) -> int:
        """Return the value of a key, which must be an integer from `least` to `most`."""
        number = self.value(key, int, **default)
        if not least <= number <= most:
            need = {0: "0 or more", 1: "a positive integer"}.get(least, f"at least {least}")
            raise self.error(key, number, f"{need}, and at most {most}")
        return number

    def filters(self, key: str) -> tuple[tuple[int, int], ...]:
        """Return the char-CNN's filters, pairs of width in characters and number of filters."""
        pairs = self.value(key, list)
        if not pairs:
            raise ValueError(f"{self.source}: {key} is empty, expected at least one filter")
        for pair in pairs:
            sizes = pair if isinstance(pair, (list, tuple)) and len(pair) == 2 else [None]
            if not all(type(size) is int and 0 < size <= MOST_UNITS for size in sizes):
                raise ValueError(
                    f"{self.source}: {key} has the entry {reprlib.repr(pair)}, expected "
                    f"[width in characters, number of filters], each from 1 to {MOST_UNITS}"
                )
        if len(pairs) > MOST_LAYERS:
            raise self.error(key, pairs, f"at most {MOST_LAYERS} pairs")
        return tuple((width, number) for width, number in pairs)

    def sizes(self, lstm: str, tokens: str) -> dict[str, Any]:
        """Return the fields of `ElmoOptions` that have the same keys in all configs of biLMs."""
        filters = self.filters(f"{tokens}.filters")
        activation = self.value(f"{tokens}.activation", str, default="relu")
        if activation not in ACTIVATIONS:
            raise self.error(f"{tokens}.activation", activation, f"one of {ACTIVATIONS}")
        # A token needs room for its two boundary characters and a byte, and for the widest filter.
        widest = max(3, *(width for width, _ in filters))
        return {
            "projection_dim": self.count(f"{lstm}.projection_dim"),
            "cell_size": self.count(f"{lstm}.dim"),
            "cell_clip": self.clip(f"{lstm}.cell_clip"),
            "projection_clip": self.clip(f"{lstm}.proj_clip"),
            "filters": filters,
            "activation": activation,
            "num_highways": self.count(f"{tokens}.n_highway", 0, MOST_LAYERS, default=0),
            "num_characters": self.count(f"{tokens}.max_characters_per_token", widest, default=50),
        }

    def clip(self, key: str) -> float | None:
        """Return the limit at which values are clipped; `None` if the key is missing, null or 0."""
        limit = self.value(key, object, default=0)
        number = isinstance(limit, (int, float)) and not isinstance(limit, bool)
        if not number or not 0 <= limit <= MOST_UNITS:  # the comparison fails for NaN too
            raise self.error(key, limit, f"a positive number or null, at most {MOST_UNITS}")
        # bilm-tf and AllenNLP read null and 0 as "no clipping".
        return float(limit) or None
