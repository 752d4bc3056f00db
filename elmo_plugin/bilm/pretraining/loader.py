"""
Text as token streams: each row of a batch reads sentence after sentence without padding.

The next batch continues where this one stopped, so that the LSTM state can be carried on. This is
bilm-tf's way of reading (bilm/data.py, 7cffee2).
"""

import copy
import functools
import hashlib
import itertools
import os
import random
import signal
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch

from elmo_plugin.bilm.extraction.engine import end_with_parent
from elmo_plugin.bilm.files.text import read_lines
from elmo_plugin.bilm.model.characters import (
    BEGIN_OF_SENTENCE,
    END_OF_SENTENCE,
    PADDING_CHARACTER_ID,
    token_to_ids,
)
from elmo_plugin.bilm.pretraining.stop_request import WARNINGS
from elmo_plugin.bilm.pretraining.vocabulary import WordVocabulary, check_least, count_targets

# Number of sentences whose places are Python numbers at a time.
SENTENCES_AT_ONCE = 1 << 16


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


Positions = tuple[StreamPosition | None, StreamPosition | None]


class BatchPair(NamedTuple):
    """
    Input of one training step: a batch of the forward and one of the backward direction.

    `characters`: character ids of the distinct tokens of both directions, by rising length, shape
    `(num_types, num_characters)`. `tokens`: index of each input token in `characters`, int64, shape
    `(2, num_steps, batch_size)`. `targets`: ids of the words to predict, int64, same shape.
    `positions`, `sources`: see `StreamBatch`. `widths`: see `reference.token_layer`.
    """

    characters: torch.Tensor
    tokens: torch.Tensor
    targets: torch.Tensor
    positions: Positions = (None, None)
    sources: tuple[Any, ...] = ()
    widths: tuple[int, ...] | None = None

    def to(self, device: torch.device) -> "BatchPair":
        """Return the batch with its tensors on a device."""
        characters, tokens, targets = (to_device(one, device) for one in self[:3])
        return self._replace(characters=characters, tokens=tokens, targets=targets)


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a tensor to a device; a GPU is not waited for."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.contiguous().pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


@dataclass
class StreamLoader:
    """
    Loader of text files as batches of token streams. Both directions read the sentences in random
    orders of their own.

    # Parameters

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
        check_least(1, batch_size=self.batch_size, num_steps=self.num_steps)
        check_least(1, num_tokens=self.num_tokens, batches_per_epoch=self.batches_per_epoch)
        check_least(1, files_at_once=self.files_at_once)
        check_least(3, num_characters=self.num_characters)
        check_least(0, num_workers=self.num_workers)

    @property
    def _name(self) -> str:
        return f"{self.paths[0]}{' and more' if len(self.paths) > 1 else ''}"

    def batches_in_an_epoch(self, num_rows: int) -> int:
        """Return the number of batches in an epoch, for `num_rows` streams over all processes."""
        if self.batches_per_epoch is not None:
            return self.batches_per_epoch
        if self.num_tokens is None:
            self.num_tokens = count_targets(self.paths)
        per_batch = num_rows * self.num_steps
        if self.num_tokens < per_batch:
            raise ValueError(
                f"{self._name} holds {self.num_tokens} tokens, expected at least the "
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

    def pairs(
        self,
        words: WordVocabulary,
        num_rows: int | None = None,
        own_rows: range | None = None,
        positions: Positions = (None, None),
        endless: bool = False,
    ) -> Iterator[BatchPair]:
        """
        Yield the batches of both directions in pairs, until one runs out, or pass after pass.

        `num_rows` is the number of streams over all processes (default: `batch_size`), `own_rows`
        has those of this process (default: all). Reading resumes from `positions`.
        """
        num_rows = num_rows or self.batch_size
        own_rows = range(num_rows) if own_rows is None else own_rows
        batches: Any = _Pairs(self, words, num_rows, own_rows, positions, endless)
        if self.num_workers:
            batches = torch.utils.data.DataLoader(
                batches,
                batch_size=None,
                num_workers=self.num_workers,
                # Arrays come through a pipe faster than tensors through shared memory.
                collate_fn=copy.copy,
                # The loader has its own generator, so that it does not draw from PyTorch's global.
                generator=torch.Generator(),
                worker_init_fn=_leave_process_group,
            )
        pairs = _tensors(batches)
        first = next(pairs, None)
        if first is None:
            raise ValueError(
                f"{self._name} holds less than one batch of {num_rows} streams of "
                f"{self.num_steps} tokens, expected at least that"
            )
        return itertools.chain([first], pairs)


def _tensors(pairs: Iterable[Any]) -> Iterator[BatchPair]:
    """Yield batches of arrays as batches of tensors; raise an error that is among them."""
    for pair in pairs:
        if isinstance(pair, ValueError):
            raise pair
        characters, tokens, targets = map(torch.from_numpy, pair[:3])
        yield pair._replace(characters=characters, tokens=tokens.long(), targets=targets.long())


def _leave_process_group(_: int) -> None:
    """
    Begin a session of this worker's own. Ctrl-C and torchrun's SIGTERM, which go to the whole
    process group, must not end it, nor a scheduler's warning to all processes: the run needs its
    next batch, to save a checkpoint. If the run is killed, a worker that has a batch to send would
    wait for ever.
    """
    end_with_parent()
    if hasattr(os, "setsid"):  # not on Windows
        os.setsid()
        for number in WARNINGS:
            signal.signal(number, signal.SIG_IGN)


@dataclass
class _Pairs(torch.utils.data.IterableDataset):
    """
    Dataset of `BatchPair` objects that have NumPy arrays; with N workers, worker k yields the pairs
    k, k + N, ...
    """

    loader: StreamLoader
    words: WordVocabulary
    num_rows: int
    own_rows: range
    positions: Positions
    endless: bool

    def __iter__(self) -> Iterator[Any]:
        worker, loader = torch.utils.data.get_worker_info(), self.loader
        share = (0, 1) if worker is None else (worker.id, worker.num_workers)
        # Each direction has a group of files of its own.
        types = TokenTypes(self.words, loader.num_characters, 2 * loader.files_at_once)
        forward, backward = (
            TokenStreams(loader, types, direction, self.num_rows, self.own_rows)
            for direction in ("forward", "backward")
        )
        one, other = self.positions
        try:
            yield from map(
                types.pair,
                forward.batches(one, self.endless, *share),
                backward.batches(other, self.endless, *share),
            )
        except ValueError as error:  # the loader would replace its text by a traceback
            yield error


def read_text(known: dict[str, int], path: str | Path) -> tuple[numpy.ndarray, ...]:
    """
    Return the type of each token in a file, with both boundaries around each sentence; where the
    sentences start, and the last one ends; and their lines (from 1). Tokens that are not `known`
    get the next types.
    """
    ids, starts, lines = array("i"), array("q", [0]), array("q")
    for number, line in read_lines(path):
        if tokens := line.split():
            ids.append(0)
            ids.extend([known.setdefault(token, len(known)) for token in tokens])
            ids.append(1)
            starts.append(len(ids))
            lines.append(number)
    return tuple(map(numpy.asarray, (ids, starts, lines)))


class StreamBatch(NamedTuple):
    """
    Batch of one direction.

    `tokens`, `targets`: numbers in `TokenTypes` of the input tokens, and of those that follow them
    (backward: that precede them), shape `(num_steps, batch_size)`. `position`: where the next batch
    begins. `sources`: index of the file in the loader's `paths`, and line (from 1), of each
    sentence that has a token here, shape `(num_sentences, 2)`.
    """

    tokens: numpy.ndarray
    targets: numpy.ndarray
    position: StreamPosition
    sources: numpy.ndarray


class TokenTypes:
    """
    Distinct tokens, numbered as they are read. The first two are `<S>` and `</S>`. `read` is
    `read_text`; the `num_files` files that were read last stay in memory.
    """

    def __init__(self, vocabulary: WordVocabulary, num_characters: int, num_files: int) -> None:
        self.vocabulary = vocabulary
        self.ids = {BEGIN_OF_SENTENCE: 0, END_OF_SENTENCE: 1}
        # For each type: character ids, how many are not padding, id as a word of the vocabulary.
        self.characters: Any = numpy.empty((0, num_characters), numpy.int16)
        self.lengths = numpy.empty(0, numpy.int16)
        self.words = numpy.empty(0, numpy.int32)
        self.read = functools.lru_cache(num_files)(functools.partial(read_text, self.ids))

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

    def pair(self, *batches: StreamBatch) -> Any:
        """Return batches of both directions as a `BatchPair` of arrays."""
        self.describe()
        tokens, targets = (numpy.stack(part) for part in list(zip(*batches))[:2])
        is_read = numpy.zeros(len(self.words), bool)
        is_read[tokens] = True
        distinct = numpy.flatnonzero(is_read)  # faster than a sort
        distinct = distinct[numpy.argsort(self.lengths[distinct], kind="stable")]
        places = numpy.empty(len(self.words), numpy.int32)
        places[distinct] = numpy.arange(len(distinct))
        positions, sources = list(zip(*batches))[2:]
        characters, words = self.characters[distinct], self.words[targets]
        return BatchPair(characters, places[tokens], words, positions, sources)


@dataclass
class TokenStreams:
    """
    Reader of a loader's text in one direction, as `num_rows` parallel token streams over all
    processes, of which this process has `own_rows`. Both directions share `types`.

    Each sentence is read from `<S>` to `</S>`, or backward from `</S>` to `<S>`. The boundary at
    the end is only a target, never an input.
    """

    loader: StreamLoader
    types: TokenTypes
    direction: str
    num_rows: int
    own_rows: range

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
        sources = [row[:2] for row in start.rows] or [(0, 0)] * num_rows
        # For each row, the types that are left of its sentence; the first one was a target before.
        left = [numpy.zeros(1, numpy.int32)] * num_rows
        for row, (file, line, num_left) in sorted(enumerate(start.rows), key=lambda one: one[1]):
            if num_left:
                ids, starts, lengths, lines = self._read(file)
                sentence = numpy.searchsorted(lines, line)
                end = starts[sentence] + lengths[sentence]
                left[row] = ids[end - num_left : end + 1]
        sentences = self._sentences(place, endless)
        for number in itertools.count():
            own_rows = self.own_rows if number % num_workers == worker else range(0)
            pieces: list[numpy.ndarray] = []
            read: list[tuple[int, int]] = []
            for row in range(num_rows):
                missing = self.loader.num_steps
                while missing:
                    if len(left[row]) == 1:
                        if (found := next(sentences, None)) is None:
                            return
                        place, left[row], sources[row] = found
                    piece = left[row][: missing + 1]
                    if row in own_rows:
                        pieces.append(piece)
                        read.append(sources[row])
                    left[row] = left[row][len(piece) - 1 :]
                    missing -= len(piece) - 1
            if own_rows:
                shape = len(own_rows), self.loader.num_steps
                tokens = numpy.concatenate([one[:-1] for one in pieces]).reshape(shape).T
                targets = numpy.concatenate([one[1:] for one in pieces]).reshape(shape).T
                rows = [(*source, len(one) - 1) for source, one in zip(sources, left)]
                yield StreamBatch(tokens, targets, StreamPosition(*place, rows), numpy.array(read))

    def _read(self, file: int) -> tuple[numpy.ndarray, ...]:
        """Return a file's types in reading direction; starts, lengths and lines of sentences."""
        ids, starts, lines = self.types.read(self.loader.paths[file])
        lengths = numpy.diff(starts) - 1
        if self.direction == "backward":
            return ids[::-1], len(ids) - starts[1:], lengths, lines
        return ids, starts[:-1], lengths, lines

    def _sentences(self, place: tuple[int, int, int], endless: bool) -> Iterator[Any]:
        """
        Yield the sentences from a place on: the place after each, its types, and its source. Raise
        a `ValueError` if there is none.
        """
        epoch, first_group, done = place
        found = False
        while True:
            groups = self._groups(epoch)
            for group in range(first_group, len(groups)):
                texts = [self._read(file) for file in groups[group]]
                columns = [numpy.concatenate(column) for column in list(zip(*texts))[1:]]
                counts = [len(lines) for *_, lines in texts]
                columns.append(numpy.repeat(numpy.arange(len(texts)), counts))
                if self.loader.shuffle:
                    order = array("q", range(sum(counts)))
                    self._shuffle(order, f"{epoch} {group}")
                    columns = [column[numpy.asarray(order)] for column in columns]
                found = found or sum(counts) > 0
                for first in range(done, sum(counts), SENTENCES_AT_ONCE):
                    some = (one[first : first + SENTENCES_AT_ONCE].tolist() for one in columns)
                    for number, (start, length, line, owner) in enumerate(zip(*some), first + 1):
                        types = texts[owner][0][start : start + length + 1]
                        yield (epoch, group, number), types, (groups[group][owner], line)
                done = 0
            if not found:
                paths = self.loader.paths
                raise ValueError(
                    f"no sentence in {', '.join(map(str, paths[:3]))}"
                    f"{' and more' if len(paths) > 3 else ''}, expected one a line"
                )
            if not endless:
                return
            epoch, first_group = epoch + 1, 0

    def _groups(self, epoch: int) -> list[list[int]]:
        """Divide the files of a pass into groups whose sentences are shuffled together."""
        files, size = list(range(len(self.loader.paths))), 1
        if self.loader.shuffle:
            self._shuffle(files, f"{epoch}")
            size = self.loader.files_at_once
        return [files[start : start + size] for start in range(0, len(files), size)]

    def _shuffle(self, numbers: Any, occasion: str) -> None:
        # Each shuffle has its own seed, so a resumed run need not repeat earlier shuffles.
        random.Random(f"{self.loader.seed} {self.direction} {occasion}").shuffle(numbers)
