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
import signal
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch

from elmo_plugin.bilm.files.text import read_lines
from elmo_plugin.bilm.model.characters import (
    BEGIN_OF_SENTENCE,
    END_OF_SENTENCE,
    PADDING_CHARACTER_ID,
    token_to_ids,
)
from elmo_plugin.bilm.training.stop_request import WARNINGS
from elmo_plugin.bilm.training.vocabulary import WordVocabulary, check_positive, count_targets

BOUNDARIES = (BEGIN_OF_SENTENCE, END_OF_SENTENCE)
# Number of sentences that are put in reading order at a time.
SENTENCES_AT_ONCE = 1 << 16


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
    rows : `str`, optional (default = `""`)
        What each row has left of its sentence: tokens with spaces between, a line for each row.
        Empty at the start.
    sources : `Sequence[tuple[int, int]]`, optional (default = `()`)
        Number of the file, in the text's order, and line (from 1) of each row's sentence.
    """

    epoch: int = 0
    file: int = 0
    sentence: int = 0
    rows: str = ""
    sources: Sequence[tuple[int, int]] = ()

    def to_dict(self, paths: Sequence[str | Path]) -> dict[str, Any]:
        """Convert the position to numbers, strings and lists, for a checkpoint."""
        rows = [
            [tokens.split(" "), str(paths[file]), line]
            for tokens, (file, line) in zip(self.rows.split("\n"), self.sources)
        ]
        return {"epoch": self.epoch, "file": self.file, "sentence": self.sentence, "rows": rows}

    @classmethod
    def from_dict(cls, content: dict[str, Any], paths: Sequence[str | Path]) -> "StreamPosition":
        """Restore a position from the result of `to_dict`."""
        # The text may have been moved to another folder.
        numbers = {name: number for number, path in enumerate(paths) for name in _names(path)}
        rows = content["rows"]
        return cls(
            content["epoch"],
            content["file"],
            content["sentence"],
            "\n".join(" ".join(tokens) for tokens, _, _ in rows),
            [(numbers.get(path, numbers[Path(path).name]), line) for _, path, line in rows],
        )


def _names(path: str | Path) -> tuple[str, str]:
    return Path(path).name, str(path)


class StreamBatch(NamedTuple):
    """
    Input tokens of one direction, and the words to predict.

    `tokens`: type of each input token, see `Types`, shape `(num_steps, batch_size)`.
    `targets`: ids of the next words, shape `(num_steps, batch_size)`.
    `position`: position in the text after this batch.
    `sources`: number of the file and line (from 1) of each sentence in the batch, for error
    messages, shape `(num_sentences, 2)`.
    """

    tokens: numpy.ndarray
    targets: numpy.ndarray
    position: StreamPosition
    sources: numpy.ndarray


Positions = tuple[StreamPosition | None, StreamPosition | None]


class BatchPair(NamedTuple):
    """
    Input of one training step: a batch of the forward and one of the backward direction.

    `characters`: character ids of the distinct tokens of both directions, by rising length, shape
    `(num_types, num_characters)`.
    `tokens`: index of each input token in `characters`, int64, shape
    `(2, num_steps, batch_size)`.
    `targets`: ids of the words to predict, int64, same shape.
    `positions`, `sources`: those of the two batches, see `StreamBatch`.
    `widths`: see `Backend.token_layer`.
    """

    characters: torch.Tensor
    tokens: torch.Tensor
    targets: torch.Tensor
    positions: Positions = (None, None)
    sources: tuple[Any, ...] = ()
    widths: tuple[int, ...] | None = None

    def to(self, device: torch.device) -> "BatchPair":
        """Return the batch with its tensors on a device."""
        characters, tokens, targets = (one.to(device) for one in self[:3])
        return self._replace(characters=characters, tokens=tokens, targets=targets)


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
        types = Types(words, self.num_characters)
        streams = [
            TokenStreams(self, types, direction, num_rows, own_rows)
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
    process group, must not end it, nor a scheduler's warning to all processes: the run needs its
    next batch, to save a checkpoint.
    """
    if hasattr(os, "setsid"):  # not on Windows
        os.setsid()
        for number in WARNINGS:
            signal.signal(number, signal.SIG_IGN)


class Types:
    """
    Distinct tokens of a text, numbered as they are read, and the text as their numbers.

    The first two are the boundaries. A word of the text that is written like one is another type.

    # Parameters

    vocabulary : `WordVocabulary`
        Vocabulary of the words to predict.
    num_characters : `int`
        Number of character ids of a token.
    """

    def __init__(self, vocabulary: WordVocabulary, num_characters: int) -> None:
        self.vocabulary = vocabulary
        # No token begins with a space.
        self.ids = {f" {boundary}": number for number, boundary in enumerate(BOUNDARIES)}
        self.tokens: list[str] = []
        # For each type: character ids, how many are not padding, id as a word of the vocabulary.
        self.characters = numpy.empty((0, num_characters), numpy.int16)
        self.lengths = self.words = numpy.empty(0, numpy.int64)
        self._texts: dict[frozenset[int], _Text] = {}

    def read(self, paths: Sequence[str | Path], files: Sequence[int]) -> "_Text":
        """Return the text of some of the files; the last two texts are kept in memory."""
        key = frozenset(files)
        if key not in self._texts:
            while len(self._texts) > 1:  # each direction reads a text of its own
                self._texts.pop(next(iter(self._texts)))
            self._texts[key] = self._read({file: paths[file] for file in files})
        text = self._texts[key] = self._texts.pop(key)
        return text

    def _read(self, paths: dict[int, str | Path]) -> "_Text":
        ids, starts, numbers, places = array("i"), array("q", [0]), array("i"), {}
        known = self.ids
        for file, path in paths.items():
            first = len(numbers)
            for number, line in read_lines(path):
                if tokens := line.split():
                    ids.extend([known.setdefault(token, len(known)) for token in tokens])
                    starts.append(len(ids))
                    numbers.append(number)
            places[file] = range(first, len(numbers))
        self._describe_new()
        arrays = numpy.asarray(ids), numpy.asarray(starts), numpy.asarray(numbers)
        return _Text(*arrays, places)

    def numbers(self, tokens: Sequence[str]) -> list[int]:
        """Return the type of each token, new or not."""
        found = [self.ids.setdefault(token, len(self.ids)) for token in tokens]
        self._describe_new()
        return found

    def _describe_new(self) -> None:
        new = [token.strip(" ") for token in itertools.islice(self.ids, len(self.tokens), None)]
        if not new:
            return
        self.tokens += new
        # Not `token_row`, which keeps each row that it has made.
        width = self.characters.shape[1]
        rows = numpy.array([token_to_ids(token, width) for token in new], numpy.int16)
        words = numpy.array([self.vocabulary.id(token) for token in new], numpy.int64)
        lengths = (rows != PADDING_CHARACTER_ID).sum(axis=1)
        self.characters = numpy.concatenate([self.characters, rows])
        self.lengths = numpy.concatenate([self.lengths, lengths])
        self.words = numpy.concatenate([self.words, words])

    def pair(self, batches: Sequence[StreamBatch]) -> BatchPair:
        """Return the batches of both directions, with their distinct tokens by length."""
        tokens = numpy.stack([one.tokens for one in batches])
        distinct = numpy.unique(tokens)
        distinct = distinct[numpy.argsort(self.lengths[distinct], kind="stable")]
        places = numpy.empty(len(self.tokens), numpy.int64)
        places[distinct] = numpy.arange(len(distinct))
        return BatchPair(
            torch.from_numpy(self.characters[distinct]),
            torch.from_numpy(places[tokens]),
            torch.from_numpy(numpy.stack([one.targets for one in batches])),
            (batches[0].position, batches[1].position),
            tuple(one.sources for one in batches),
        )


class _Text(NamedTuple):
    """
    Text of some files. `ids`: type of each token, without boundaries. `starts`: index of the first
    token of each sentence, and the number of tokens. `lines`: line (from 1) of each sentence.
    `places`: the sentences of each file.
    """

    ids: numpy.ndarray
    starts: numpy.ndarray
    lines: numpy.ndarray
    places: dict[int, range]


class _Chunk(NamedTuple):
    """
    Some sentences in reading order. `tokens`: all their inputs, each sentence with the boundary
    at which it begins. `lengths`: number of inputs of each sentence. `sources`: see `StreamBatch`.
    `position`: before the first one.
    """

    tokens: numpy.ndarray
    lengths: numpy.ndarray
    sources: numpy.ndarray
    position: StreamPosition


class TokenStreams:
    """
    Reader of a text in one direction, as `num_rows` parallel token streams.

    Each sentence is read from `<S>` to `</S>`, or backward from `</S>` to `<S>`. The boundary at
    the end is only a target, never an input.

    # Parameters

    text : `Text`
        Files, batch sizes and shuffling.
    types : `Types`
        Distinct tokens of the text; both directions share them.
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
        types: Types,
        direction: str,
        num_rows: int,
        own_rows: range | None = None,
    ) -> None:
        self.text, self.types, self.direction = text, types, direction
        self.num_rows = num_rows
        self.own_rows = range(num_rows) if own_rows is None else own_rows
        # Types of the boundaries at which a sentence begins and ends.
        self._begin, self._end = (0, 1) if direction == "forward" else (1, 0)

    def batches(
        self,
        start: StreamPosition | None = None,
        endless: bool = False,
        worker: int = 0,
        num_workers: int = 1,
    ) -> Iterator[StreamBatch]:
        """
        Yield batches until the sentences run out, or without end.

        # Parameters

        start : `StreamPosition | None`, optional (default = `None`)
            Position to resume from; `None` for the beginning.
        endless : `bool`, optional (default = `False`)
            Start another pass over the text when the sentences run out.
        worker, num_workers : `int`
            With N workers, worker k yields the batches k, k + N, ...

        # Raises

        `ValueError`
            If there is no sentence, a line is not UTF-8, or `start` has another number of streams.
        """
        num_rows, num_steps = self.num_rows, self.text.num_steps
        position = start or StreamPosition()
        if position.sources and len(position.sources) != num_rows:
            raise ValueError(
                f"the position has {len(position.sources)} streams, expected {num_rows}"
            )
        chunks = self._chunks(position, endless)
        reading = _Reading(self.types, self._begin, self._end, num_rows, position)
        for number in itertools.count():
            more = []
            # A batch takes a sentence a token at most, so that none of it comes in two parts.
            missing = num_rows * num_steps + 1 - reading.num_unread
            while missing > 0 and (chunk := next(chunks, None)) is not None:
                more.append(chunk)
                missing -= len(chunk.lengths)
            if more:
                reading.append(more)
            own = number % num_workers == worker
            batch = reading.read(num_steps, self.own_rows if own else range(0))
            if batch is None:
                return
            if own:
                yield batch

    def _chunks(self, position: StreamPosition, endless: bool) -> Iterator[_Chunk]:
        """Yield all sentences from a position on; raise a `ValueError` if there is none."""
        epoch, first_file, done = position.epoch, position.file, position.sentence
        found = bool(position.sources)
        while True:
            groups = self._groups(epoch)
            for file in range(first_file, len(groups)):
                text = self.types.read(self.text.paths, groups[file])
                order = self._order(text, groups[file], f"{epoch} {file}")
                found = found or len(order) > 0
                for first in range(done, len(order), SENTENCES_AT_ONCE):
                    some = order[first : first + SENTENCES_AT_ONCE]
                    yield self._chunk(text, some, StreamPosition(epoch, file, first))
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

    def _groups(self, epoch: int) -> list[list[int]]:
        """Divide the files of a pass into groups whose sentences are shuffled together."""
        files = list(range(len(self.text.paths)))
        if not self.text.shuffle:
            return [[file] for file in files]
        random.Random(self._seed(f"{epoch}")).shuffle(files)
        size = self.text.files_at_once
        return [files[start : start + size] for start in range(0, len(files), size)]

    def _order(self, text: _Text, files: Sequence[int], occasion: str) -> numpy.ndarray:
        """Return the sentences' indices and files, shape `(num_sentences, 2)`, as they are read."""
        places = [text.places[file] for file in files]
        order = numpy.concatenate([numpy.arange(one.start, one.stop) for one in places])
        owner = numpy.repeat(files, [len(one) for one in places])
        if self.text.shuffle:
            shuffled = array("q", range(len(order)))
            random.Random(self._seed(occasion)).shuffle(shuffled)
            order, owner = order[numpy.asarray(shuffled)], owner[numpy.asarray(shuffled)]
        return numpy.stack([order, owner], axis=1)

    def _chunk(self, text: _Text, order: numpy.ndarray, position: StreamPosition) -> _Chunk:
        sentences, files = order.T
        starts, ends = text.starts[sentences], text.starts[sentences + 1]
        lengths = ends - starts + 1
        firsts = numpy.cumsum(lengths) - lengths
        offsets = numpy.arange(lengths.sum()) - numpy.repeat(firsts, lengths)
        if self.direction == "forward":
            places = numpy.repeat(starts - 1, lengths) + offsets
        else:
            places = numpy.repeat(ends, lengths) - offsets
        tokens = text.ids[numpy.minimum(places, len(text.ids) - 1)]
        tokens[firsts] = self._begin
        sources = numpy.stack([files, text.lines[sentences]], axis=1)
        return _Chunk(tokens, lengths, sources, position)

    def _seed(self, occasion: str) -> str:
        # Each shuffle has its own seed, so a resumed run need not repeat earlier shuffles.
        return f"{self.text.seed} {self.direction} {occasion}"


class _Reading:
    """
    Sentences to read, one after the other in one array, and each row's place in it.

    A row has a part of one sentence left, and continues with the first sentences that no row has.
    All of these are in one piece, so two slices of the array are a row of a batch.
    """

    def __init__(
        self, types: Types, begin: int, end: int, num_rows: int, position: StreamPosition
    ) -> None:
        self.types, self.begin, self.end = types, begin, end
        rows = [types.numbers(row.split(" ")[:-1]) for row in position.rows.split("\n")]
        rows = rows if position.sources else [[]] * num_rows
        self.left = [len(row) for row in rows]
        self.at = [0] * num_rows
        self.tokens = numpy.empty(0, numpy.int32)
        for row, ids in enumerate(rows):
            self.at[row] = len(self.tokens)
            self.tokens = numpy.concatenate([self.tokens, numpy.array(ids, numpy.int32)])
        # Index of each row's sentence in `sources`; those that nobody has begun come after them.
        self.sentences = list(range(num_rows))
        self.sources = numpy.array(position.sources or [(0, 0)] * num_rows).reshape(-1, 2)
        self.starts, self.next = array("q", [len(self.tokens)]), 0
        # Index of the first sentence of each chunk, and its position.
        self.positions = [(0, replace(position, rows="", sources=()))]
        self._rebuild(self.tokens[:0], numpy.empty(0, numpy.int64), self.sources[:0])

    @property
    def num_unread(self) -> int:
        """Number of sentences that no row has begun."""
        return len(self.starts) - 1 - self.next

    def append(self, chunks: Sequence[_Chunk]) -> None:
        """Add sentences at the end, and drop what has been read."""
        unread = self.num_unread
        kept: list[tuple[int, StreamPosition]] = []
        for index, position in self.positions if unread else ():
            if index <= self.next:  # the last such one has the first unread sentence
                sentence = position.sentence + self.next - index
                kept = [(0, replace(position, sentence=sentence))]
            else:
                kept.append((index - self.next, position))
        counts = itertools.accumulate((len(one.lengths) for one in chunks), initial=unread)
        self._rebuild(*(numpy.concatenate(part) for part in list(zip(*chunks))[:3]))
        self.positions = [*kept, *zip(counts, (one.position for one in chunks))]

    def _rebuild(
        self, tokens: numpy.ndarray, lengths: numpy.ndarray, sources: numpy.ndarray
    ) -> None:
        # A beginning follows each end: what comes before one is the last token of its sentence.
        begin = numpy.array([self.begin], numpy.int32)
        pieces: list[numpy.ndarray] = []
        at, size = [], 0
        for start, length in zip(self.at, self.left):
            at.append(size)
            pieces += [self.tokens[start : start + length], begin]
            size += length + 1
        unread = self.tokens[self.starts[self.next] : self.starts[-1]]
        before = numpy.asarray(self.starts)[self.next :]
        lengths = numpy.concatenate([[size], numpy.diff(before), lengths])
        kept = [*self.sentences, *range(len(at) + self.next, len(at) + len(self.starts) - 1)]
        self.sources = numpy.concatenate([self.sources[kept], sources])
        self.tokens = numpy.concatenate([*pieces, unread, tokens, begin])
        self.starts, self.next = array("q", numpy.cumsum(lengths).tolist()), 0
        self.at, self.sentences = at, list(range(len(at)))

    def _position(self) -> StreamPosition:
        """Return the position after the last sentence that a row has begun, without the rows."""
        begun = [one for one in self.positions if one[0] < self.next] or self.positions[:1]
        first, position = begun[-1]
        return replace(position, sentence=position.sentence + self.next - first)

    def read(self, num_steps: int, own_rows: range) -> StreamBatch | None:
        """Read a batch in all rows, and return it for some; `None` if the sentences run out."""
        starts, at, left, num_rows = self.starts, self.at, self.left, len(self.at)
        # Of each row: start and length of the first slice, and start of the second.
        slices: list[tuple[int, int, int]] = []
        sentences: list[int] = []
        for row in range(num_rows):
            taken = min(left[row], num_steps)
            slices.append((at[row], taken, starts[self.next]))
            if taken and row in own_rows:
                sentences.append(self.sentences[row])
            if taken == num_steps:
                at[row] += taken
                left[row] -= taken
                continue
            end = starts[self.next] + num_steps - taken
            following = bisect_left(starts, end, self.next + 1)
            if following == len(starts):
                return None
            if row in own_rows:
                sentences += range(num_rows + self.next, num_rows + following)
            at[row], left[row] = end, starts[following] - end
            self.sentences[row] = num_rows + following - 1
            self.next = following
        if not own_rows:
            return _NOTHING
        first, taken_, second = numpy.array(slices)[own_rows.start : own_rows.stop].T
        steps = numpy.arange(num_steps)[:, None]
        # Shape: (num_steps, batch_size)
        places = numpy.where(steps < taken_, first + steps, second + steps - taken_)
        following_ = self.tokens[places + 1]
        targets = numpy.where(following_ == self.begin, self.end, following_)
        word, end_word = self.types.tokens.__getitem__, self.types.tokens[self.end]
        rows = [
            " ".join([*map(word, self.tokens[start : start + length].tolist()), end_word])
            for start, length in zip(at, left)
        ]
        position = replace(
            self._position(), rows="\n".join(rows), sources=self.sources[self.sentences].tolist()
        )
        return StreamBatch(
            self.tokens[places], self.types.words[targets], position, self.sources[sentences]
        )


_NOTHING = StreamBatch(numpy.empty(0), numpy.empty(0), StreamPosition(), numpy.empty(0))


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
        pairs = map(self.streams[0].types.pair, zip(*batches))
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
