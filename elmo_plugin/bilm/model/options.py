"""
`options.json`: the sizes of a biLM. This file is the only reader and writer of its keys.

Key names are bilm-tf's (https://github.com/allenai/bilm-tf/blob/7cffee2/bin/train_elmo.py).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

# bilm-tf trains with 261 characters (256 bytes and 5 marks) and predicts with 262 (the padding
# token's id 0 added). The weight file always has 261 rows, so both numbers mean the same biLM.
ACCEPTED_N_CHARACTERS = (261, 262)
ACTIVATIONS = ("relu", "tanh")


@dataclass(frozen=True)
class ElmoOptions:
    """
    The sizes of a biLM.

    # Parameters

    projection_dim : `int`
        Width of one direction's output and of the token layer.
    cell_size : `int`
        Width of one direction's memory cell.
    num_layers : `int`
        LSTM layers in each direction.
    char_embedding_dim : `int`
        Width of a character's embedding.
    filters : `tuple[tuple[int, int], ...]`
        The char-CNN's `(width in characters, number of filters)` pairs.
    num_highways : `int`
        Highway layers between the char-CNN and its projection; 0 for none.
    num_characters : `int`, optional (default = `50`)
        Character ids per token, the marks at both ends of the word included.
    activation : `str`, optional (default = `"relu"`)
        The char-CNN's activation, `"relu"` or `"tanh"`.
    use_skip_connections : `bool`, optional (default = `True`)
        Whether layers above the first add their input to their output.
    cell_clip, projection_clip : `Optional[float]`, optional (default = `3.0`)
        Largest absolute value of a memory cell and of an output; `None` for no limit.
    """

    projection_dim: int
    cell_size: int
    num_layers: int
    char_embedding_dim: int
    filters: tuple[tuple[int, int], ...]
    num_highways: int
    num_characters: int = 50
    activation: str = "relu"
    use_skip_connections: bool = True
    cell_clip: Optional[float] = 3.0
    projection_clip: Optional[float] = 3.0

    @property
    def embedding_dim(self) -> int:
        """Width of a layer, both directions side by side."""
        return 2 * self.projection_dim

    @property
    def num_filters(self) -> int:
        """Filters of all widths together."""
        return sum(number for _, number in self.filters)

    @classmethod
    def from_dict(cls, options: dict[str, Any], source: str = "options") -> "ElmoOptions":
        """
        Reads the released layout; keys that only training uses are passed over.

        # Parameters

        options : `dict[str, Any]`
            The parsed `options.json`.
        source : `str`, optional (default = `"options"`)
            What to call it in an error: the file's name.

        # Raises

        `ValueError`
            If a key is missing or its value is not usable; the text names source, key, value and
            need.
        """
        reader = _Reader(options, source)
        filters = reader.value("char_cnn.filters", list)
        for pair in filters:
            if not (
                isinstance(pair, (list, tuple))
                and len(pair) == 2
                and all(_is_count(number) for number in pair)
            ):
                raise ValueError(
                    f"{source}: char_cnn.filters has the entry {pair!r}, "
                    "expected [width in characters, number of filters]"
                )
        if not filters:
            raise ValueError(f"{source}: char_cnn.filters is empty, expected at least one filter")
        n_characters = reader.value("char_cnn.n_characters", int, default=262)
        if n_characters not in ACCEPTED_N_CHARACTERS:
            raise ValueError(
                f"{source}: char_cnn.n_characters is {n_characters}, expected 261 or 262 "
                "(UTF-8 bytes and five marks; other character sets have no released format)"
            )
        activation = reader.value("char_cnn.activation", str, default="relu")
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"{source}: char_cnn.activation is {activation!r}, expected one of {ACTIVATIONS}"
            )
        num_highways = reader.value("char_cnn.n_highway", int, default=0)
        if num_highways < 0:
            raise ValueError(f"{source}: char_cnn.n_highway is {num_highways}, expected 0 or more")
        num_characters = reader.count("char_cnn.max_characters_per_token", default=50)
        widest = max(width for width, _ in filters)
        if num_characters < max(3, widest):
            raise ValueError(
                f"{source}: char_cnn.max_characters_per_token is {num_characters}, expected at "
                f"least {max(3, widest)} (a word's two marks and a byte, and the widest filter)"
            )
        return cls(
            projection_dim=reader.count("lstm.projection_dim"),
            cell_size=reader.count("lstm.dim"),
            num_layers=reader.count("lstm.n_layers", default=1),
            char_embedding_dim=reader.count("char_cnn.embedding.dim"),
            filters=tuple((width, number) for width, number in filters),
            num_highways=num_highways,
            num_characters=num_characters,
            activation=activation,
            use_skip_connections=bool(
                reader.value("lstm.use_skip_connections", bool, default=False)
            ),
            cell_clip=reader.clip("lstm.cell_clip"),
            projection_clip=reader.clip("lstm.proj_clip"),
        )

    @classmethod
    def from_file(cls, path: Union[str, Path]) -> "ElmoOptions":
        """
        Reads an `options.json`.

        # Raises

        `FileNotFoundError`
            If there is no such file.
        `ValueError`
            If it is not JSON, or not a biLM's options.
        """
        try:
            options = json.loads(Path(path).read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not a JSON file: {error}") from error
        return cls.from_dict(options, source=str(path))

    def to_dict(self) -> dict[str, Any]:
        """The released layout, as bilm-tf and AllenNLP read it for prediction."""
        return {
            "lstm": {
                "use_skip_connections": self.use_skip_connections,
                "projection_dim": self.projection_dim,
                "cell_clip": self.cell_clip,
                "proj_clip": self.projection_clip,
                "dim": self.cell_size,
                "n_layers": self.num_layers,
            },
            "char_cnn": {
                "activation": self.activation,
                "filters": [list(pair) for pair in self.filters],
                "n_highway": self.num_highways,
                "embedding": {"dim": self.char_embedding_dim},
                "n_characters": 262,
                "max_characters_per_token": self.num_characters,
            },
        }


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


class _Reader:
    """Looks up dotted keys, with errors that name the source and the key."""

    def __init__(self, options: dict[str, Any], source: str) -> None:
        self.options = options
        self.source = source

    def value(self, key: str, kind: type, **default: Any) -> Any:
        found: Any = self.options
        for part in key.split("."):
            if not isinstance(found, dict):
                raise ValueError(f"{self.source}: expected a JSON object around {key}")
            if part not in found:
                if "default" in default:
                    return default["default"]
                raise ValueError(f"{self.source}: the key {key} is missing")
            found = found[part]
        if found is None and "default" in default:
            return default["default"]
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            raise ValueError(
                f"{self.source}: {key} is {found!r}, expected a value of type {kind.__name__}"
            )
        return found

    def count(self, key: str, **default: Any) -> int:
        number = self.value(key, int, **default)
        if not _is_count(number):
            raise ValueError(f"{self.source}: {key} is {number!r}, expected a positive integer")
        return int(number)

    def clip(self, key: str) -> Optional[float]:
        # bilm-tf and AllenNLP read null and 0 as "no clipping".
        limit = self.value(key, object, default=None)
        if not limit:
            return None
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or limit < 0:
            raise ValueError(
                f"{self.source}: {key} is {limit!r}, expected a positive number or null"
            )
        return float(limit)
