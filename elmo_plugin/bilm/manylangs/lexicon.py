"""A model's own characters and words, `char.dic` and `word.dic`."""

import json

import numpy
import torch

from elmo_plugin.bilm.manylangs.code_points import (
    BEGIN,
    BEGIN_OF_WORD,
    END,
    END_OF_WORD,
    PADDING,
    token_of,
)

UNKNOWN = "<oov>"
# ELMoForManyLangs puts <eow> before a word and <bow> behind it (frontend.py, `create_one_batch`),
# and its models are trained so.
MARKS = {
    PADDING: "<pad>",
    BEGIN_OF_WORD: "<eow>",
    END_OF_WORD: "<bow>",
    BEGIN: "<bos>",
    END: "<eos>",
}


class Lexicon:
    """
    Ids of characters and words.

    # Parameters

    characters : `dict[str, int]`
        Ids of single characters, of the five marks and of `<oov>`.
    words : `dict[str, int]`, optional (default = `{}`)
        Ids of words, and of `<oov>`; empty for a model without vectors of words.

    # Raises

    `ValueError`
        If a mark or an `<oov>` is missing.
    """

    def __init__(self, characters: dict[str, int], words: dict[str, int] | None = None) -> None:
        self.characters, self.words = characters, words or {}
        for name, ids, marks in (
            ("characters", self.characters, (UNKNOWN, *MARKS.values())),
            ("words", self.words, (UNKNOWN,) if self.words else ()),
        ):
            for mark in marks:
                if mark not in ids:
                    raise ValueError(f"{mark} is missing among the {name}, expected an id for it")
        known = {ord(one) + 1: number for one, number in characters.items() if len(one) == 1}
        known |= {code: characters[mark] for code, mark in MARKS.items()}
        self._codes = numpy.array(sorted(known), dtype=numpy.int64)
        self._ids = numpy.array([known[code] for code in self._codes.tolist()], dtype=numpy.int64)

    @property
    def padding(self) -> int:
        """The id of what a token is filled up with."""
        return self.characters[MARKS[PADDING]]

    def character_ids(self, rows: numpy.ndarray) -> numpy.ndarray:
        """Rows of code points, any shape, to ids of characters."""
        places = numpy.searchsorted(self._codes, rows).clip(max=len(self._codes) - 1)
        found = self._codes[places] == rows
        return numpy.where(found, self._ids[places], self.characters[UNKNOWN])

    def word_ids(self, rows: numpy.ndarray) -> numpy.ndarray:
        """Rows of code points, shape `(num_rows, num_characters)`, to ids of words."""
        unknown = self.words[UNKNOWN]
        return numpy.array(
            [self.words.get(token_of(row), unknown) for row in rows], dtype=numpy.int64
        )

    def to_tensor(self) -> torch.Tensor:
        """As bytes, for a `state_dict`."""
        parts = {"characters": self.characters, "words": self.words}
        text = json.dumps(parts, ensure_ascii=False)
        return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor) -> "Lexicon":
        """What `to_tensor` gave."""
        parts = json.loads(tensor.cpu().numpy().tobytes())
        return cls(parts["characters"], parts["words"])
