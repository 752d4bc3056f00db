"""Dictionaries of an ELMoForManyLangs model: `char.dic` for characters and `word.dic` for words."""

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
# ELMoForManyLangs puts <eow> before a word and <bow> after it (frontend.py, `create_one_batch`),
# and its models are trained that way.
MARKS = {
    PADDING: "<pad>",
    BEGIN_OF_WORD: "<eow>",
    END_OF_WORD: "<bow>",
    BEGIN: "<bos>",
    END: "<eos>",
}


class Lexicon:
    """
    Maps characters and words to their ids in an ELMoForManyLangs model.

    `characters` has ids of single characters, the five `MARKS`, and `<oov>`; `words` has ids of
    words and `<oov>`, or is empty for a model without word vectors. Raise a `ValueError` if one is
    missing.
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
        """Id of the mark `<pad>`, which fills the unused characters of a token."""
        return self.characters[MARKS[PADDING]]

    def character_ids(self, rows: numpy.ndarray) -> numpy.ndarray:
        """Convert rows of code points (see `code_points.py`) to character ids of the same shape."""
        places = numpy.searchsorted(self._codes, rows).clip(max=len(self._codes) - 1)
        found = self._codes[places] == rows
        return numpy.where(found, self._ids[places], self.characters[UNKNOWN])

    def word_ids(self, rows: numpy.ndarray) -> numpy.ndarray:
        """
        Convert rows of code points, shape `(num_rows, num_characters)`, to word ids, shape
        `(num_rows,)`. Words that are not in `word.dic` get the id of `<oov>`.
        """
        unknown = self.words[UNKNOWN]
        return numpy.array(
            [self.words.get(token_of(row), unknown) for row in rows], dtype=numpy.int64
        )

    def to_tensor(self) -> torch.Tensor:
        """Encode the dictionaries as a tensor of bytes, for a `state_dict`."""
        parts = {"characters": self.characters, "words": self.words}
        text = json.dumps(parts, ensure_ascii=False)
        return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor) -> "Lexicon":
        """Decode the dictionaries from the result of `to_tensor`."""
        parts = json.loads(tensor.cpu().numpy().tobytes())
        return cls(parts["characters"], parts["words"])
