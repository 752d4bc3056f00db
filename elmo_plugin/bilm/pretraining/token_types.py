"""Distinct tokens of a text, and its files as their numbers."""

import itertools
from array import array
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from elmo_plugin.bilm.files.text import read_lines
from elmo_plugin.bilm.model.characters import (
    BEGIN_OF_SENTENCE,
    END_OF_SENTENCE,
    PADDING_CHARACTER_ID,
    token_to_ids,
)
from elmo_plugin.bilm.pretraining.vocabulary import WordVocabulary


class TextFile(NamedTuple):
    """
    A file as types. `ids`: type of each token, with both boundaries around each sentence. `starts`:
    index of each sentence's `<S>`, and the length of `ids`. `lines`: line (from 1) of each one.
    """

    ids: numpy.ndarray
    starts: numpy.ndarray
    lines: numpy.ndarray


class TokenTypes:
    """
    Distinct tokens, numbered as they are read. The first two are `<S>` and `</S>`. The `num_files`
    files that were read last stay in memory.
    """

    def __init__(self, vocabulary: WordVocabulary, num_characters: int, num_files: int) -> None:
        self.vocabulary, self.num_files = vocabulary, num_files
        self.ids = {BEGIN_OF_SENTENCE: 0, END_OF_SENTENCE: 1}
        # For each type: character ids, how many are not padding, id as a word of the vocabulary.
        self.characters: Any = numpy.empty((0, num_characters), numpy.int16)
        self.lengths = numpy.empty(0, numpy.int16)
        self.words = numpy.empty(0, numpy.int32)
        self._files: dict[str | Path, TextFile] = {}

    def read(self, path: str | Path) -> TextFile:
        """Return a file's sentences; blank lines are none."""
        if path not in self._files:
            while len(self._files) >= self.num_files:
                del self._files[next(iter(self._files))]
            self._files[path] = self._read(path)
        text = self._files[path] = self._files.pop(path)
        return text

    def _read(self, path: str | Path) -> TextFile:
        ids, starts, lines = array("i"), array("q", [0]), array("q")
        known = self.ids
        for number, line in read_lines(path):
            if tokens := line.split():
                ids.append(0)
                ids.extend([known.setdefault(token, len(known)) for token in tokens])
                ids.append(1)
                starts.append(len(ids))
                lines.append(number)
        return TextFile(*map(numpy.asarray, (ids, starts, lines)))

    def describe(self) -> None:
        """Bring `characters`, `lengths` and `words` up to date with the files that were read."""
        if len(self.ids) == len(self.words):
            return
        new = list(itertools.islice(self.ids, len(self.words), None))
        # Not `token_row`, which keeps each row that it has made.
        width = self.characters.shape[1]
        rows = numpy.array([token_to_ids(token, width) for token in new], numpy.int16)
        words = numpy.array([self.vocabulary.id(token) for token in new], numpy.int32)
        lengths = (rows != PADDING_CHARACTER_ID).sum(axis=1, dtype=numpy.int16)
        self.characters = numpy.concatenate([self.characters, rows])
        self.lengths = numpy.concatenate([self.lengths, lengths])
        self.words = numpy.concatenate([self.words, words])
