"""
Token streams of one direction: each row of a batch reads sentence after sentence without padding.

The next batch continues where this one stopped, so that the LSTM state can be carried on. This is
bilm-tf's way of reading (bilm/data.py, 7cffee2).
"""

import itertools
import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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

# Number of sentences whose places are Python numbers at a time.
SENTENCES_AT_ONCE = 1 << 16


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


@dataclass(frozen=True)
class StreamPosition:
    """
    Position of one direction in the text, stored in checkpoints: completed passes over the text,
    groups of files completed in this pass, and sentences begun in this group.
    """

    epoch: int = 0
    group: int = 0
    sentence: int = 0
    # For each row its file (its number), its line (from 1), and how many tokens of this sentence
    # are still to be read. Empty at the start.
    rows: Sequence[tuple[int, int, int]] = ()

    @classmethod
    def from_dict(cls, content: dict[str, Any], paths: Sequence[str | Path]) -> "StreamPosition":
        """Restore a position from a checkpoint: the fields, or what versions 0.3 and 0.4 wrote."""
        if "group" in content:
            return cls(**content)
        numbers = {n: i for i, path in enumerate(paths) for n in (Path(path).name, str(path))}
        rows = [
            (numbers.get(path, numbers[Path(path).name]), line, len(tokens) - 1)
            for tokens, path, line in content["rows"]
        ]
        return cls(content["epoch"], content["file"], content["sentence"], rows)


class StreamBatch(NamedTuple):
    """
    Batch of one direction.

    `tokens`, `targets`: types of the input tokens and of the next ones, see `TokenTypes`, shape
    `(num_steps, batch_size)`. `position`: position after this batch. `sources`: file (its number)
    and line (from 1) of each sentence in the batch, shape `(num_sentences, 2)`.
    """

    tokens: numpy.ndarray
    targets: numpy.ndarray
    position: StreamPosition
    sources: numpy.ndarray


class TokenStreams:
    """
    Reader of a text in one direction, as `num_rows` parallel token streams.

    Each sentence is read from `<S>` to `</S>`, or backward from `</S>` to `<S>`. The boundary at
    the end is only a target, never an input.

    `num_rows` is the number of streams over all processes, `own_rows` has those of this process
    (default: all). Both directions share `types`. For the others see `StreamLoader`.
    """

    def __init__(
        self,
        types: TokenTypes,
        paths: Sequence[str | Path],
        direction: str,
        num_rows: int,
        num_steps: int,
        own_rows: range | None = None,
        shuffle: bool = True,
        files_at_once: int = 1,
        seed: int = 0,
    ) -> None:
        self.types, self.paths, self.direction = types, paths, direction
        self.num_rows, self.num_steps = num_rows, num_steps
        self.own_rows = range(num_rows) if own_rows is None else own_rows
        self.shuffle, self.files_at_once, self.seed = shuffle, files_at_once, seed

    def batches(
        self,
        start: StreamPosition | None = None,
        endless: bool = False,
        worker: int = 0,
        num_workers: int = 1,
    ) -> Iterator[StreamBatch]:
        """
        Yield batches from a position on until the sentences run out, or pass after pass. With N
        workers, worker k yields the batches k, k + N, ...

        Raise a `ValueError` if there is no sentence, a line is not UTF-8, or `start` has another
        number of streams.
        """
        start, num_rows = start or StreamPosition(), self.num_rows
        if start.rows and len(start.rows) != num_rows:
            raise ValueError(f"the position has {len(start.rows)} streams, expected {num_rows}")
        place = start.epoch, start.group, start.sentence
        # For each row: types of its file, index of its next token, tokens left, and source.
        ids, at, left, sources = self._rows(start)
        sentences = self._sentences(place, endless)
        for number in itertools.count():
            own_rows = self.own_rows if number % num_workers == worker else range(0)
            pieces: list[numpy.ndarray] = []
            read: list[tuple[int, int]] = []
            for row in range(num_rows):
                missing = self.num_steps
                while missing:
                    if not left[row]:
                        sentence = next(sentences, None)
                        if sentence is None:
                            return
                        place, ids[row], at[row], left[row], sources[row] = sentence
                    taken = min(left[row], missing)
                    if row in own_rows:
                        pieces.append(ids[row][at[row] : at[row] + taken + 1])
                        read.append(sources[row])
                    at[row] += taken
                    left[row] -= taken
                    missing -= taken
            if own_rows:
                shape = len(own_rows), self.num_steps
                tokens = numpy.concatenate([one[:-1] for one in pieces]).reshape(shape).T
                targets = numpy.concatenate([one[1:] for one in pieces]).reshape(shape).T
                rows = [(*source, one) for source, one in zip(sources, left)]
                yield StreamBatch(tokens, targets, StreamPosition(*place, rows), numpy.array(read))

    def _rows(self, start: StreamPosition) -> tuple[list, list[int], list[int], list]:
        """Return what each row has at a position, see `batches`; nothing at the start."""
        rows = start.rows or [(0, 0, 0)] * self.num_rows
        sources, left = [row[:2] for row in rows], [row[2] for row in rows]
        ids: list[Any] = [None] * len(rows)
        at = [0] * len(rows)
        for file in sorted({file for file, _, tokens in rows if tokens}):
            own_ids, starts, lengths, lines = self._read(file)
            for row, (other, line, tokens) in enumerate(rows):
                if other == file and tokens:
                    sentence = numpy.searchsorted(lines, line)
                    ids[row] = own_ids
                    at[row] = int(starts[sentence] + lengths[sentence]) - tokens
        return ids, at, left, sources

    def _read(self, file: int) -> tuple[numpy.ndarray, ...]:
        """Return a file's types in reading direction; starts, lengths and lines of sentences."""
        ids, starts, lines = self.types.read(self.paths[file])
        lengths = numpy.diff(starts) - 1
        if self.direction == "backward":
            return ids[::-1], len(ids) - starts[1:], lengths, lines
        return ids, starts[:-1], lengths, lines

    def _sentences(self, place: tuple[int, int, int], endless: bool) -> Iterator[Any]:
        """
        Yield the sentences from a place on: the place after each, types of its file, its start
        there, number of inputs, and source. Raise a `ValueError` if there is none.
        """
        epoch, first_group, done = place
        found = False
        while True:
            groups = self._groups(epoch)
            for group in range(first_group, len(groups)):
                texts = [self._read(file) for file in groups[group]]
                counts = [len(lines) for *_, lines in texts]
                columns = [numpy.concatenate(column) for column in list(zip(*texts))[1:]]
                columns.append(numpy.repeat(numpy.arange(len(texts)), counts))
                if self.shuffle:
                    order = array("q", range(sum(counts)))
                    self._shuffle(order, f"{epoch} {group}")
                    columns = [column[numpy.asarray(order)] for column in columns]
                found = found or sum(counts) > 0
                for first in range(done, sum(counts), SENTENCES_AT_ONCE):
                    some = (one[first : first + SENTENCES_AT_ONCE].tolist() for one in columns)
                    for number, (start, length, line, owner) in enumerate(zip(*some), first + 1):
                        source = groups[group][owner], line
                        yield (epoch, group, number), texts[owner][0], start, length, source
                done = 0
            if not found:
                raise ValueError(
                    f"no sentence in {', '.join(map(str, self.paths[:3]))}"
                    f"{' and more' if len(self.paths) > 3 else ''}, expected one a line"
                )
            if not endless:
                return
            epoch, first_group = epoch + 1, 0

    def _groups(self, epoch: int) -> list[list[int]]:
        """Divide the files of a pass into groups whose sentences are shuffled together."""
        files, size = list(range(len(self.paths))), 1
        if self.shuffle:
            self._shuffle(files, f"{epoch}")
            size = self.files_at_once
        return [files[start : start + size] for start in range(0, len(files), size)]

    def _shuffle(self, numbers: Any, occasion: str) -> None:
        # Each shuffle has its own seed, so a resumed run need not repeat earlier shuffles.
        random.Random(f"{self.seed} {self.direction} {occasion}").shuffle(numbers)
