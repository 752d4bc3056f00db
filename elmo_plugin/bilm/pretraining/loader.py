"""Loader of the pairs of batches, one of each direction, that a biLM is trained on."""

import hashlib
import itertools
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch

from elmo_plugin.bilm.extraction.engine import end_with_parent
from elmo_plugin.bilm.pretraining.stop_request import WARNINGS
from elmo_plugin.bilm.pretraining.streams import (
    StreamBatch,
    StreamPosition,
    TokenStreams,
    TokenTypes,
)
from elmo_plugin.bilm.pretraining.vocabulary import WordVocabulary, check_least, count_targets

Positions = tuple[StreamPosition | None, StreamPosition | None]


class BatchPair(NamedTuple):
    """
    Input of one training step: a batch of the forward and one of the backward direction.

    `characters`: character ids of the distinct tokens of both directions, by rising length, shape
    `(num_types, num_characters)`. `tokens`: index of each input token in `characters`, int64, shape
    `(2, num_steps, batch_size)`. `targets`: ids of the words to predict, int64, same shape.
    `positions`, `sources`: see `StreamBatch`. `widths`: see `Backend.token_layer`.
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

    def batches_in_an_epoch(self, num_rows: int) -> int:
        """Return the number of batches in an epoch, for `num_rows` streams over all processes."""
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
        Yield the batches of both directions in pairs, until one runs out, or pass after pass.

        `num_rows` is the number of streams over all processes (default: `batch_size`), `own_rows`
        has those of this process (default: all). Reading resumes from `positions`.
        """
        num_rows = num_rows or self.batch_size
        # Each direction has a group of files of its own.
        types = TokenTypes(words, self.num_characters, 2 * self.files_at_once)
        order = self.shuffle, self.files_at_once, self.seed
        streams = [
            TokenStreams(types, self.paths, direction, num_rows, self.num_steps, own_rows, *order)
            for direction in ("forward", "backward")
        ]
        batches: Any = _Pairs(streams, positions, endless)
        if self.num_workers:
            # The loader has its own generator, so that it does not draw from PyTorch's global one.
            batches = torch.utils.data.DataLoader(
                batches,
                batch_size=None,
                num_workers=self.num_workers,
                collate_fn=_as_arrays,
                generator=torch.Generator(),
                worker_init_fn=_leave_process_group,
            )
        pairs = _tensors(batches)
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
    next batch, to save a checkpoint. If the run is killed, a worker that has a batch to send would
    wait for ever.
    """
    end_with_parent()
    if hasattr(os, "setsid"):  # not on Windows
        os.setsid()
        for number in WARNINGS:
            signal.signal(number, signal.SIG_IGN)


class _Pairs(torch.utils.data.IterableDataset):
    """
    Dataset of `BatchPair` objects that have NumPy arrays; with N workers, worker k yields the pairs
    k, k + N, ...
    """

    def __init__(
        self, streams: Sequence[TokenStreams], positions: Positions, endless: bool
    ) -> None:
        self.streams, self.positions, self.endless = streams, positions, endless

    def __iter__(self) -> Iterator[Any]:
        worker = torch.utils.data.get_worker_info()
        share = (0, 1) if worker is None else (worker.id, worker.num_workers)
        batches = (
            streams.batches(position, self.endless, *share)
            for streams, position in zip(self.streams, self.positions)
        )
        try:
            yield from map(self._pair, zip(*batches))
        except ValueError as error:  # the loader would replace its text by a traceback
            yield error

    def _pair(self, batches: Sequence[StreamBatch]) -> Any:
        types = self.streams[0].types
        types.describe()
        tokens, targets = (numpy.stack(part) for part in list(zip(*batches))[:2])
        is_read = numpy.zeros(len(types.words), bool)
        is_read[tokens] = True
        distinct = numpy.flatnonzero(is_read)  # faster than a sort
        distinct = distinct[numpy.argsort(types.lengths[distinct], kind="stable")]
        places = numpy.empty(len(types.words), numpy.int32)
        places[distinct] = numpy.arange(len(distinct))
        return BatchPair(
            types.characters[distinct],
            places[tokens],
            types.words[targets],
            (batches[0].position, batches[1].position),
            tuple(one.sources for one in batches),
        )


def _as_arrays(pair: Any) -> Any:
    """Leave a batch as it is: arrays come through a pipe faster than tensors by shared memory."""
    return pair


def _tensors(pairs: Iterable[Any]) -> Iterator[BatchPair]:
    """Yield batches of arrays as batches of tensors; raise an error that is among them."""
    for pair in pairs:
        if isinstance(pair, ValueError):
            raise pair
        characters, tokens, targets = map(torch.from_numpy, pair[:3])
        yield pair._replace(characters=characters, tokens=tokens.long(), targets=targets.long())
