"""
Batches of continuous token streams from text files, as bilm-tf reads them (bilm/data.py, 7cffee2).

Each row of a batch reads sentence after sentence without padding. The next batch continues where
this batch stopped, so that the LSTM state can be carried from batch to batch. The forward and the
backward direction read the sentences in two independent random orders.
"""

import hashlib
import itertools
import os
import random
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch

from elmo_plugin.bilm.files.text import read_lines
from elmo_plugin.bilm.model.characters import BEGIN_OF_SENTENCE, END_OF_SENTENCE, token_row
from elmo_plugin.bilm.training.vocabulary import WordVocabulary, check_positive, count_targets


class SentenceCursor(NamedTuple):
    """
    Sentence that one row of the batch is reading, and how far it has been read.

    `tokens` are in reading order and include the sentence boundaries. `offset` is the index of the
    next input token. `path` and `line` (from 1) say where the sentence was read.
    """

    tokens: tuple[str, ...]
    offset: int
    path: str
    line: int


@dataclass(frozen=True)
class StreamPosition:
    """
    Position of one direction in the text, stored in checkpoints to resume reading there.

    # Parameters

    epoch : `int`, optional (default = `0`)
        Number of completed passes over the text.
    file : `int`, optional (default = `0`)
        Number of file groups, of `files_at_once` files each, completed in the current pass.
    sentence : `int`, optional (default = `0`)
        Number of sentences already read from the current group, in shuffled order.
    rows : `tuple[SentenceCursor, ...]`, optional (default = `()`)
        Sentence that each row is reading; empty at the start.
    """

    epoch: int = 0
    file: int = 0
    sentence: int = 0
    rows: tuple[SentenceCursor, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Convert the position to numbers, strings and lists, for a checkpoint."""
        rows = [[list(row.tokens[row.offset :]), row.path, row.line] for row in self.rows]
        return {
            "epoch": self.epoch,
            "file": self.file,
            "sentence": self.sentence,
            "rows": rows,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "StreamPosition":
        """Restore a position from the result of `to_dict`."""
        rows = tuple(
            SentenceCursor(tuple(tokens), 0, path, line) for tokens, path, line in content["rows"]
        )
        return cls(content["epoch"], content["file"], content["sentence"], rows)


class StreamBatch(NamedTuple):
    """
    Input tokens of one direction, and the words to predict.

    `characters`: int64, shape `(batch_size, num_steps, num_characters)`.
    `targets`: int64 ids of the next words, shape `(batch_size, num_steps)`.
    `position`: position in the text after this batch.
    `sources`: file and line number (from 1) of each sentence in the batch, for error messages.
    """

    characters: torch.Tensor
    targets: torch.Tensor
    position: StreamPosition
    sources: list[tuple[str, int]]

    def to(self, device: torch.device) -> "StreamBatch":
        """Return the batch with its tensors on a device."""
        return self._replace(characters=self.characters.to(device), targets=self.targets.to(device))


class BatchPair(NamedTuple):
    """Input of one training step: a batch of the forward and one of the backward direction."""

    forward: StreamBatch
    backward: StreamBatch


Positions = tuple[StreamPosition | None, StreamPosition | None]


@dataclass
class Text:
    """
    Text files, and how they are divided into batches.

    # Parameters

    paths : `Sequence[str | Path]`
        Text files, one tokenized sentence a line. Empty files are skipped.
    batch_size : `int`
        Number of streams (rows of a batch) per process. A resumed run keeps the total number of
        streams, even with another number of processes.
    num_steps : `int`, optional (default = `20`)
        Number of tokens of each stream in a batch. Backpropagation through time is truncated to
        this number of steps.
    shuffle : `bool`, optional (default = `True`)
        Read the files, and the sentences within a file, in a new random order in every pass.
    num_tokens : `int | None`, optional (default = `None`)
        Number of tokens and sentence ends in the text; counted if not given.
    batches_per_epoch : `int | None`, optional (default = `None`)
        Number of batches in an epoch; one pass over the text if not given.
    num_characters : `int`, optional (default = `50`)
        Character ids per token, `max_characters_per_token` of the biLM's options.
    num_workers : `int`, optional (default = `0`)
        Number of worker processes that prepare batches in advance. The batches do not depend on it.
    seed : `int`, optional (default = `0`)
        Seed of the shuffling.
    files_at_once : `int`, optional (default = `1`)
        Number of files whose sentences are read into memory and shuffled together. The default, as
        in bilm-tf, suits files whose sentences are already shuffled. If each file is a book, use
        more; otherwise all rows of a batch read the same book.

    # Raises

    `ValueError`
        If there is no file, or a number is not positive.
    """

    paths: Sequence[str | Path]
    batch_size: int
    num_steps: int = 20
    shuffle: bool = True
    num_tokens: int | None = None
    batches_per_epoch: int | None = None
    num_characters: int = 50
    num_workers: int = 0
    seed: int = 0
    files_at_once: int = 1

    def __post_init__(self) -> None:
        if not self.paths:
            raise ValueError("no text files to read, expected at least one")
        sizes = ("batch_size", "num_steps", "batches_per_epoch", "num_tokens", "files_at_once")
        check_positive({name: getattr(self, name) for name in sizes})
        check_positive({"num_characters": self.num_characters}, least=3)
        check_positive({"num_workers": self.num_workers}, least=0)

    def batches_in_an_epoch(self, num_rows: int) -> int:
        """
        Return the number of batches in an epoch, for `num_rows` streams over all processes.

        Raise a `ValueError` if the text is too short for one batch.
        """
        if self.batches_per_epoch is not None:
            return self.batches_per_epoch
        if self.num_tokens is None:
            self.num_tokens = count_targets(self.paths)
        per_batch = num_rows * self.num_steps
        if self.num_tokens < per_batch:
            raise ValueError(
                f"{self._name()} holds {self.num_tokens} tokens, expected at least the "
                f"{per_batch} of one batch: give more text, or fewer streams or steps"
            )
        return self.num_tokens // per_batch

    def checksums(self) -> list[list[str]]:
        """Return a list `[name, checksum]` for each file, in the order of `paths`."""
        found = []
        for path in map(Path, self.paths):
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
            found.append([path.name, digest.hexdigest()])
        return found

    def _name(self) -> str:
        return f"{self.paths[0]}{' and more' if len(self.paths) > 1 else ''}"

    def pairs(
        self,
        words: WordVocabulary,
        num_rows: int | None = None,
        own_rows: range | None = None,
        positions: Positions = (None, None),
        endless: bool = False,
    ) -> Iterator[BatchPair]:
        """
        Yield the batches of both directions in pairs, until one direction runs out.

        # Parameters

        words : `WordVocabulary`
            Vocabulary of the words to predict.
        num_rows, own_rows
            Number of streams over all processes (default: `batch_size`), and the streams of this
            process (default: all).
        positions : `Positions`, optional (default = `(None, None)`)
            Position of each direction to resume from; `None` for the beginning.
        endless : `bool`, optional (default = `False`)
            Start another pass over the text when the sentences run out.

        # Raises

        `ValueError`
            If the text is shorter than one batch.
        """
        num_rows = num_rows or self.batch_size
        streams = [
            TokenStreams(self, words, direction, num_rows, own_rows)
            for direction in ("forward", "backward")
        ]
        batches: Any = _PairedBatches(streams, positions, endless)
        if self.num_workers:
            # The loader has its own generator, so that it does not draw from PyTorch's global one.
            batches = torch.utils.data.DataLoader(
                batches,
                batch_size=None,
                num_workers=self.num_workers,
                generator=torch.Generator(),
                worker_init_fn=_leave_process_group,
            )
        pairs = _raise_errors(batches)
        first = next(pairs, None)
        if first is None:
            raise ValueError(
                f"{self._name()} holds less than one batch of {num_rows} streams of "
                f"{self.num_steps} tokens, expected at least that"
            )
        return itertools.chain([first], pairs)


def _leave_process_group(_: int) -> None:
    """
    Begin a session of this worker's own. Ctrl-C and torchrun's SIGTERM, which go to the whole
    process group, must not end it: the run needs its next batch, to save a checkpoint.
    """
    if hasattr(os, "setsid"):  # not on Windows
        os.setsid()


class TokenStreams:
    """
    Reader of a text in one direction, as `num_rows` parallel token streams.

    Each sentence is read from `<S>` to `</S>`, or backward from `</S>` to `<S>`. The boundary at
    the end is only a target, never an input.

    # Parameters

    text : `Text`
        Files, batch sizes and shuffling.
    vocabulary : `WordVocabulary`
        Vocabulary of the words to predict.
    direction : `str`
        `"forward"` or `"backward"`.
    num_rows : `int`
        Number of streams over all processes.
    own_rows : `range | None`, optional (default = `None`)
        Streams of this process; all streams if not given.
    """

    def __init__(
        self,
        text: Text,
        vocabulary: WordVocabulary,
        direction: str,
        num_rows: int,
        own_rows: range | None = None,
    ) -> None:
        self.text, self.vocabulary, self.direction = text, vocabulary, direction
        self.num_rows = num_rows
        self.own_rows = range(num_rows) if own_rows is None else own_rows

    def batches(
        self,
        start: StreamPosition | None = None,
        endless: bool = False,
        worker: int = 0,
        num_workers: int = 1,
    ) -> Iterator[StreamBatch]:
        """
        Yield the batches of one pass over the text; an incomplete last batch is dropped.

        `start` is the position to resume from. With `endless`, another pass follows when the
        sentences run out. Only every `num_workers`-th batch is yielded, beginning with batch
        `worker`. Raise a `ValueError` if `start` has another number of streams, or there is no
        sentence in the text.
        """
        position = start or StreamPosition()
        rows: list[SentenceCursor | None] = list(position.rows) or [None] * self.num_rows
        if len(rows) != self.num_rows:
            raise ValueError(
                f"the position to resume from has {len(rows)} streams, expected {self.num_rows}"
            )
        sentences = self._sentences(position, endless)
        for number in itertools.count():
            pieces: list[tuple[SentenceCursor, int]] = []
            for index, cursor in enumerate(rows):
                missing = self.text.num_steps
                while missing:
                    if cursor is None or len(cursor.tokens) - cursor.offset < 2:
                        following = next(sentences, None)
                        if following is None:
                            return
                        cursor, position = following
                    taken = min(missing, len(cursor.tokens) - cursor.offset - 1)
                    if index in self.own_rows:
                        pieces.append((cursor, taken))
                    cursor = cursor._replace(offset=cursor.offset + taken)
                    missing -= taken
                rows[index] = cursor
            if number % num_workers == worker:
                now = tuple(cursor for cursor in rows if cursor is not None)
                yield self._batch(pieces, replace(position, rows=now))

    def _batch(
        self, pieces: list[tuple[SentenceCursor, int]], after: StreamPosition
    ) -> StreamBatch:
        inputs: list[str] = []
        targets: list[str] = []
        for cursor, taken in pieces:
            end = cursor.offset + taken
            inputs += cursor.tokens[cursor.offset : end]
            targets += cursor.tokens[cursor.offset + 1 : end + 1]
        shape = (len(self.own_rows), self.text.num_steps)
        rows = numpy.stack([token_row(token, self.text.num_characters) for token in inputs])
        characters = torch.from_numpy(rows.astype(numpy.int64)).view(*shape, rows.shape[1])
        ids = torch.tensor([self.vocabulary.id(token) for token in targets]).view(shape)
        return StreamBatch(characters, ids, after, [(c.path, c.line) for c, _ in pieces])

    def _sentences(
        self, position: StreamPosition, endless: bool
    ) -> Iterator[tuple[SentenceCursor, StreamPosition]]:
        """Yield each sentence, and the position after it; raise a `ValueError` if there is none."""
        epoch, first_file, done = position.epoch, position.file, position.sentence
        found = bool(position.rows)
        while True:
            groups = self._groups(epoch)
            for file in range(first_file, len(groups)):
                lines = self._lines(groups[file], f"{epoch} {file}")
                for path, number, line in itertools.islice(lines, done, None):
                    found = True
                    done += 1
                    tokens = (BEGIN_OF_SENTENCE, *line.split(), END_OF_SENTENCE)
                    if self.direction == "backward":
                        tokens = tokens[::-1]
                    yield SentenceCursor(tokens, 0, path, number), StreamPosition(epoch, file, done)
                done = 0
            if not found:
                paths = self.text.paths
                raise ValueError(
                    f"no sentence in {', '.join(map(str, paths[:3]))}"
                    f"{' and more' if len(paths) > 3 else ''}, expected one a line"
                )
            if not endless:
                return
            epoch, first_file = epoch + 1, 0

    def _groups(self, epoch: int) -> list[list[str | Path]]:
        """Divide the files of a pass into groups whose sentences are shuffled together."""
        paths = list(self.text.paths)
        if not self.text.shuffle:
            return [[path] for path in paths]
        random.Random(self._seed(f"{epoch}")).shuffle(paths)
        size = self.text.files_at_once
        return [paths[start : start + size] for start in range(0, len(paths), size)]

    def _lines(self, paths: list[str | Path], occasion: str) -> Iterator[tuple[str, int, str]]:
        if self.text.shuffle:
            return shuffled_lines(paths, self._seed(occasion))
        return (
            (str(path), number, line)
            for path in paths
            for number, line in read_lines(path)
            if line.strip()
        )

    def _seed(self, occasion: str) -> str:
        # Each shuffle has its own seed, so a resumed run need not repeat earlier shuffles.
        return f"{self.text.seed} {self.direction} {occasion}"


class _PairedBatches(torch.utils.data.IterableDataset):
    """Dataset of `BatchPair` objects; with N workers, worker k yields the pairs k, k + N, ..."""

    def __init__(
        self, streams: Sequence[TokenStreams], positions: Positions, endless: bool
    ) -> None:
        self.streams = streams
        self.positions = positions
        self.endless = endless

    def __iter__(self) -> Iterator[BatchPair | ValueError]:
        worker = torch.utils.data.get_worker_info()
        share = (0, 1) if worker is None else (worker.id, worker.num_workers)
        batches = (
            streams.batches(position, self.endless, *share)
            for streams, position in zip(self.streams, self.positions)
        )
        pairs = itertools.starmap(BatchPair, zip(*batches))
        return pairs if worker is None else _yield_errors(pairs)


def _yield_errors(pairs: Iterator[BatchPair]) -> Iterator[BatchPair | ValueError]:
    """Yield a `ValueError` instead of raising it: the loader replaces its text by a traceback."""
    try:
        yield from pairs
    except ValueError as error:
        yield error


def _raise_errors(pairs: Iterable[BatchPair | ValueError]) -> Iterator[BatchPair]:
    for pair in pairs:
        if isinstance(pair, ValueError):
            raise pair
        yield pair


def shuffled_lines(paths: Sequence[str | Path], seed: str) -> Iterator[tuple[str, int, str]]:
    """
    Yield file, line number (from 1) and text of all lines of the files, in one random order.

    Blank lines are left out. The order depends on `seed` and the number of lines only. The text is
    held in memory as UTF-8, plus 32 bytes per line. Raise a `ValueError` if a line is not UTF-8.
    """
    text, starts = bytearray(), array("q", [0])
    files, numbers = array("q"), array("q")
    for file, path in enumerate(paths):
        for number, line in read_lines(path):
            if not line.strip():
                continue
            text += line.encode("utf-8")
            starts.append(len(text))
            files.append(file)
            numbers.append(number)
    order = array("q", range(len(numbers)))
    random.Random(seed).shuffle(order)
    for index in order:
        line = text[starts[index] : starts[index + 1]].decode("utf-8")
        yield str(paths[files[index]]), numbers[index], line
