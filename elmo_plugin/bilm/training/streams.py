"""
Text files as contiguous token streams, as bilm-tf feeds them (bilm/data.py at 7cffee2).

Each row of a batch reads sentence after sentence without padding and goes on in the next batch
where it stopped, so that the LSTM's state can be carried. Forward and backward rows are independent
streams over differently shuffled sentences.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy
import torch

from elmo_plugin.bilm.files.text import read_lines
from elmo_plugin.bilm.model.characters import BEGIN_OF_SENTENCE, END_OF_SENTENCE, token_row
from elmo_plugin.bilm.training.shuffled_lines import shuffled_lines
from elmo_plugin.bilm.training.stream_position import Pending, StreamPosition
from elmo_plugin.bilm.training.vocabulary import WordVocabulary


class StreamBatch(NamedTuple):
    """
    One direction's next tokens and what follows them.

    `characters`: int64, shape `(batch_size, num_steps, num_characters)`.
    `targets`: int64 word ids, shape `(batch_size, num_steps)`.
    `position`: where the streams stand after it.
    `sources`: files and lines (from 1) that it was read from.
    """

    characters: torch.Tensor
    targets: torch.Tensor
    position: StreamPosition
    sources: list[tuple[str, int]]

    def to(self, device: torch.device) -> "StreamBatch":
        """Its tensors on a device."""
        return self._replace(characters=self.characters.to(device), targets=self.targets.to(device))


@dataclass(eq=False)
class TokenStreams:
    """
    One direction's `batch_size` streams over a list of files.

    A sentence `w` is read as `<S> w </S>`, or from its end in the backward direction; its last
    boundary is only ever a target. Files and the sentences within a file (or `files_at_once` of
    them) come in a new random order in every pass where `shuffle` is on, in the given order
    otherwise. Empty files are passed over.

    # Parameters

    paths : `Sequence[Union[str, Path]]`
        Text files, one sentence a line.
    vocabulary : `WordVocabulary`
        Gives the targets.
    direction : `str`
        `"forward"` or `"backward"`.
    batch_size : `int`
        Streams, of all processes.
    num_steps : `int`
        Tokens of each stream in a batch.
    num_characters : `int`, optional (default = `50`)
        Character ids per token.
    shuffle : `bool`, optional (default = `True`)
        Whether sentences are shuffled; `files_at_once` files are then held in memory at a time.
    files_at_once : `int`, optional (default = `1`)
        The shuffled files are taken in groups of so many, and the sentences of a group shuffled
        together. 1 is bilm-tf's way, for shards that are mixed already; where each file is a book
        of its own, a batch would then read a single book. Nothing where `shuffle` is off.
    seed : `int`, optional (default = `0`)
        Of the shuffling.
    own_rows : `range | None`, optional (default = `None`)
        Of several processes each makes batches of its own streams only (all if not given): together
        they see what a single process would, and each knows where all streams stand.

    # Raises

    `ValueError`
        If there is no file, or no sentence in any, or `files_at_once` is not positive.
    """

    paths: Sequence[str | Path]
    vocabulary: WordVocabulary
    direction: str
    batch_size: int
    num_steps: int
    num_characters: int = 50
    shuffle: bool = True
    files_at_once: int = 1
    seed: int = 0
    own_rows: range | None = None

    def __post_init__(self) -> None:
        if self.direction not in ("forward", "backward"):
            raise ValueError(f"direction is {self.direction!r}, expected 'forward' or 'backward'")
        if not self.paths:
            raise ValueError("no text files to read, expected at least one")
        if self.files_at_once < 1:
            raise ValueError(f"files_at_once is {self.files_at_once}, expected at least 1")
        self._own_rows = range(self.batch_size) if self.own_rows is None else self.own_rows

    def batches(
        self,
        start: StreamPosition | None = None,
        endless: bool = False,
        worker: int = 0,
        num_workers: int = 1,
    ) -> Iterator[StreamBatch]:
        """
        One pass over the text; what is left when the sentences run out is dropped.

        # Parameters

        start : `Optional[StreamPosition]`, optional (default = `None`)
            Where to go on; at the beginning if not given.
        endless : `bool`, optional (default = `False`)
            Whether another pass follows when the sentences run out.
        worker, num_workers : `int`, optional (default = `0`, `1`)
            Give the batches `worker`, `worker + num_workers`, ... only; the others cost little.

        # Raises

        `ValueError`
            If `start` belongs to another number of streams.
        """
        position = start or StreamPosition()
        rows: list[Pending | None] = list(position.rows) or [None] * self.batch_size
        if len(rows) != self.batch_size:
            raise ValueError(
                f"the position to go on from has {len(rows)} streams, expected {self.batch_size}"
            )
        sentences = self._sentences(position, endless)
        for number in itertools.count():
            pieces: list[tuple[Pending, int]] = []
            for index, pending in enumerate(rows):
                missing = self.num_steps
                while missing:
                    if pending is None or len(pending.tokens) - pending.offset < 2:
                        dealt = next(sentences, None)
                        if dealt is None:
                            return
                        pending, position = dealt
                    taken = min(missing, len(pending.tokens) - pending.offset - 1)
                    if index in self._own_rows:
                        pieces.append((pending, taken))
                    pending = pending._replace(offset=pending.offset + taken)
                    missing -= taken
                rows[index] = pending
            if number % num_workers == worker:
                now = tuple(pending for pending in rows if pending is not None)
                yield self._batch(pieces, replace(position, rows=now))

    def _batch(self, pieces: list[tuple[Pending, int]], after: StreamPosition) -> StreamBatch:
        inputs: list[str] = []
        targets: list[str] = []
        for pending, taken in pieces:
            end = pending.offset + taken
            inputs += pending.tokens[pending.offset : end]
            targets += pending.tokens[pending.offset + 1 : end + 1]
        shape = (len(self._own_rows), self.num_steps)
        rows = numpy.stack([token_row(token, self.num_characters) for token in inputs])
        characters = torch.from_numpy(rows.astype(numpy.int64)).view(*shape, self.num_characters)
        ids = torch.tensor([self.vocabulary.id(token) for token in targets]).view(shape)
        return StreamBatch(characters, ids, after, [(p.path, p.line) for p, _ in pieces])

    def _sentences(
        self, position: StreamPosition, endless: bool
    ) -> Iterator[tuple[Pending, StreamPosition]]:
        """Every sentence, and the position behind it."""
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
                    yield Pending(tokens, 0, path, number), StreamPosition(epoch, file, done)
                done = 0
            if not found:
                raise ValueError(
                    f"no sentence in {', '.join(str(path) for path in self.paths[:3])}"
                    f"{' and more' if len(self.paths) > 3 else ''}, expected one a line"
                )
            if not endless:
                return
            epoch, first_file = epoch + 1, 0

    def _groups(self, epoch: int) -> list[list[str | Path]]:
        """The files of a pass, in order; those of a group are shuffled together."""
        if not self.shuffle:
            return [[path] for path in self.paths]
        paths = list(self.paths)
        random.Random(self._seed(f"{epoch}")).shuffle(paths)
        size = self.files_at_once
        return [paths[start : start + size] for start in range(0, len(paths), size)]

    def _lines(self, paths: list[str | Path], occasion: str) -> Iterator[tuple[str, int, str]]:
        if self.shuffle:
            return shuffled_lines(paths, self._seed(occasion))
        return (
            (str(path), number, line)
            for path in paths
            for number, line in read_lines(path)
            if line.strip()
        )

    def _seed(self, occasion: str) -> str:
        # Each shuffle has a generator of its own, so that none need be replayed to go on.
        return f"{self.seed} {self.direction} {occasion}"


class BatchPair(NamedTuple):
    """A step's worth of both directions."""

    forward: StreamBatch
    backward: StreamBatch
