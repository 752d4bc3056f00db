"""
Text files as contiguous token streams, as bilm-tf feeds them (bilm/data.py at 7cffee2).

Each row of a batch reads sentence after sentence without padding and goes on in the next batch
where it stopped, so that the LSTM's state can be carried. Forward and backward rows are independent
streams over differently shuffled sentences.
"""

import random
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Optional, Sequence, Union

import numpy
import torch

from elmo_plugin.bilm.characters import BEGIN_OF_SENTENCE, END_OF_SENTENCE, token_row
from elmo_plugin.bilm.training.vocabulary import WordVocabulary, read_sentences


class StreamBatch(NamedTuple):
    """
    One direction's next tokens and what follows them.

    `characters`: int64, shape `(batch_size, num_steps, num_characters)`.
    `targets`: int64 word ids, shape `(batch_size, num_steps)`.
    """

    characters: torch.Tensor
    targets: torch.Tensor


class TokenStreams:
    """
    One direction's `batch_size` streams over a list of files.

    A sentence `w` is read as `<S> w </S>`, or from its end in the backward direction; its last
    boundary is only ever a target. Files and the sentences within a file come in a new random order
    in every epoch where `shuffle` is on, in the given order otherwise.

    # Parameters

    paths : `Sequence[Union[str, Path]]`
        Text files, one sentence a line.
    vocabulary : `WordVocabulary`
        Gives the targets.
    direction : `str`
        `"forward"` or `"backward"`.
    batch_size : `int`
        Streams.
    num_steps : `int`
        Tokens of each stream in a batch.
    num_characters : `int`, optional (default = `50`)
        Character ids per token.
    shuffle : `bool`, optional (default = `True`)
        Whether sentences are shuffled.
    seed : `int`, optional (default = `0`)
        Of the shuffling.

    # Raises

    `ValueError`
        If there is no file, or no sentence in any.
    """

    def __init__(
        self,
        paths: Sequence[Union[str, Path]],
        vocabulary: WordVocabulary,
        direction: str,
        *,
        batch_size: int,
        num_steps: int,
        num_characters: int = 50,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        if direction not in ("forward", "backward"):
            raise ValueError(f"direction is {direction!r}, expected 'forward' or 'backward'")
        if not paths:
            raise ValueError("no text files to read, expected at least one")
        self.paths = [Path(path) for path in paths]
        self.vocabulary = vocabulary
        self.direction = direction
        self.batch_size = batch_size
        self.num_steps = num_steps
        self.num_characters = num_characters
        self.shuffle = shuffle
        self.seed = seed

    def epoch(self, number: int) -> Iterator[StreamBatch]:
        """
        # Parameters

        number : `int`
            Counts from 0; gives the order of the sentences.

        # Returns

        `Iterator[StreamBatch]`
            Whole batches only: what is left when the sentences run out is dropped.
        """
        sentences = self._sentences(number)
        # What each row has yet to read; the first of it is the next input.
        rows: list[list[str]] = [[] for _ in range(self.batch_size)]
        shape = (self.batch_size, self.num_steps)
        while True:
            characters = numpy.empty((*shape, self.num_characters), dtype=numpy.int64)
            targets = numpy.empty(shape, dtype=numpy.int64)
            for row, pending in enumerate(rows):
                filled = 0
                while filled < self.num_steps:
                    if len(pending) < 2:
                        tokens = next(sentences, None)
                        if tokens is None:
                            return
                        pending[:] = tokens
                    taken = min(self.num_steps - filled, len(pending) - 1)
                    for offset in range(taken):
                        characters[row, filled + offset] = token_row(
                            pending[offset], self.num_characters
                        )
                        targets[row, filled + offset] = self.vocabulary.id(pending[offset + 1])
                    del pending[:taken]
                    filled += taken
            yield StreamBatch(torch.from_numpy(characters), torch.from_numpy(targets))

    def _sentences(self, epoch: int) -> Iterator[list[str]]:
        order = random.Random(f"{self.seed} {self.direction} {epoch}")
        paths = list(self.paths)
        if self.shuffle:
            order.shuffle(paths)
        found = False
        for path in paths:
            sentences: Any = read_sentences(path)
            if self.shuffle:
                sentences = list(sentences)
                order.shuffle(sentences)
            for tokens in sentences:
                found = True
                bounded = [BEGIN_OF_SENTENCE, *tokens, END_OF_SENTENCE]
                yield bounded if self.direction == "forward" else bounded[::-1]
        if not found:
            raise ValueError(
                f"no sentence in {', '.join(str(path) for path in self.paths[:3])}"
                f"{' and more' if len(self.paths) > 3 else ''}, expected one a line"
            )


class BatchPair(NamedTuple):
    """A step's worth of both directions."""

    forward: StreamBatch
    backward: StreamBatch


def both_directions(
    paths: Sequence[Union[str, Path]],
    vocabulary: WordVocabulary,
    epoch: int = 0,
    limit: Optional[int] = None,
    **options: Any,
) -> Iterator[BatchPair]:
    """
    Both directions' batches side by side; stops when either runs out, or after `limit` batches.

    # Parameters

    paths, vocabulary, options
        As for `TokenStreams`.
    epoch : `int`, optional (default = `0`)
        See `TokenStreams.epoch`.
    limit : `Optional[int]`, optional (default = `None`)
        Batches at most.
    """
    pairs = zip(
        *(
            TokenStreams(paths, vocabulary, direction, **options).epoch(epoch)
            for direction in ("forward", "backward")
        )
    )
    for number, (forward, backward) in enumerate(pairs):
        if limit is not None and number >= limit:
            return
        yield BatchPair(forward, backward)
