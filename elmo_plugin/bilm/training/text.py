"""The text of a run and how it is read: settings of both directions' streams."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from elmo_plugin.bilm.training.settings import check_positive
from elmo_plugin.bilm.training.stream_position import StreamPosition
from elmo_plugin.bilm.training.streams import BatchPair, TokenStreams
from elmo_plugin.bilm.training.vocabulary import WordVocabulary
from elmo_plugin.bilm.training.word_counts import count_targets

Positions = tuple[StreamPosition | None, StreamPosition | None]


@dataclass
class Text:
    """
    # Parameters

    paths : `Sequence[Path]`
        Text files, one tokenized sentence a line.
    batch_size : `int`
        Streams of each process that a run is begun with.
    num_steps : `int`, optional (default = `20`)
        Tokens of each stream in a batch: how far back gradients reach.
    shuffle : `bool`, optional (default = `True`)
        Whether files, and sentences within a file, come in a new random order in every pass.
    num_tokens : `int | None`, optional (default = `None`)
        Tokens and sentence ends of the text, where known; counted once otherwise.
    batches_per_epoch : `int | None`, optional (default = `None`)
        In place of what the text gives.
    num_characters : `int`, optional (default = `50`)
        Character ids per token: the biLM's, `max_characters_per_token` of its options.
    num_workers : `int`, optional (default = `0`)
        Processes that prepare batches ahead; the batches are the same for any number.
    seed : `int`, optional (default = `0`)
        Of the shuffling.
    files_at_once : `int`, optional (default = `1`)
        See `TokenStreams`.

    # Raises

    `ValueError`
        If a number is not positive.
    """

    paths: Sequence[Path]
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
        check_positive(
            self, "batch_size", "num_steps", "batches_per_epoch", "num_tokens", "files_at_once"
        )

    def batches_in_an_epoch(self, num_rows: int) -> int:
        """
        # Parameters

        num_rows : `int`
            Streams of all processes.

        # Raises

        `ValueError`
            If the text is too short for one batch.
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

    def in_one_pass(self) -> "Text":
        """The same text for one pass over all of it, whatever an epoch of training is."""
        return replace(self, num_tokens=None, batches_per_epoch=None)

    def files(self) -> dict[str, int]:
        """Bytes of each file, by its name."""
        return {path.name: path.stat().st_size for path in self.paths}

    def check_files(self, begun_with: dict[str, int] | None) -> None:
        """
        Raises a `ValueError` if the text is not that of a run: a position in it would be another.
        """
        if begun_with is None:  # of a checkpoint that does not say
            return
        here = self.files()
        for name in sorted(here.keys() | begun_with.keys()):
            if here.get(name) != begun_with.get(name):
                raise ValueError(
                    f"the run was begun with {begun_with.get(name, 'no')} bytes of {name}, now it "
                    f"has {here.get(name, 'none')}; expected the same text"
                )

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
        Both directions' batches side by side, until either runs out.

        # Parameters

        words : `WordVocabulary`
            Gives the targets.
        num_rows : `int | None`, optional (default = `None`)
            Streams of all processes; `batch_size` if not given.
        own_rows : `range | None`, optional (default = `None`)
            This process's among them; all if not given.
        positions : `Positions`, optional (default = `(None, None)`)
            Where to go on.
        endless : `bool`, optional (default = `False`)
            Whether another pass follows when the sentences run out.

        # Raises

        `ValueError`
            If a single pass is less than one batch.
        """
        num_rows = num_rows or self.batch_size
        streams = [
            TokenStreams(
                self.paths,
                words,
                direction,
                batch_size=num_rows,
                num_steps=self.num_steps,
                num_characters=self.num_characters,
                shuffle=self.shuffle,
                files_at_once=self.files_at_once,
                seed=self.seed,
                own_rows=own_rows,
            )
            for direction in ("forward", "backward")
        ]
        batches = _PairedBatches(streams, positions, endless)
        pairs = iter(
            batches
            if not self.num_workers
            else torch.utils.data.DataLoader(
                batches,
                batch_size=None,
                num_workers=self.num_workers,
                # Its own generator: the run's random numbers do not depend on the workers.
                generator=torch.Generator(),
            )
        )
        first = next(pairs, None)
        if first is None:
            raise ValueError(
                f"{self._name()} holds less than one batch of {num_rows} streams of "
                f"{self.num_steps} tokens, expected at least that"
            )
        return itertools.chain([first], pairs)


class _PairedBatches(torch.utils.data.IterableDataset):
    """Both directions' batches; each of several workers makes every so-manieth."""

    def __init__(
        self, streams: Sequence[TokenStreams], positions: Positions, endless: bool
    ) -> None:
        self.streams = streams
        self.positions = positions
        self.endless = endless

    def __iter__(self) -> Iterator[BatchPair]:
        worker = torch.utils.data.get_worker_info()
        share = (0, 1) if worker is None else (worker.id, worker.num_workers)
        batches = (
            streams.batches(position, self.endless, *share)
            for streams, position in zip(self.streams, self.positions)
        )
        return itertools.starmap(BatchPair, zip(*batches))
