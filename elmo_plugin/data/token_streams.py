"""Contiguous token streams as AllenNLP's data loader."""

import itertools
from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple

import torch
import torch.distributed as dist
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import is_distributed
from allennlp.data import DataLoader, DatasetReader, Instance, TensorDict, Vocabulary
from allennlp.nn.util import move_to_device

from elmo_plugin.bilm.training.streams import BatchPair, StreamPosition, TokenStreams
from elmo_plugin.bilm.training.word_counts import count_targets
from elmo_plugin.data.bilm_vocabulary import word_vocabulary
from elmo_plugin.data.readers.bilm_text import BilmTextReader


class Resumption(NamedTuple):
    """
    Where a recovered run goes on: both directions' positions, and what the trainer will ask for
    only to pass it over.
    """

    positions: Tuple[StreamPosition, StreamPosition]
    skipped_epochs: int
    skipped_batches: int


@DataLoader.register("token_streams", exist_ok=True)
class TokenStreamsLoader(DataLoader):
    """
    Both directions' token streams (see `elmo_plugin.bilm.training.streams`).

    In training (`endless`) an epoch is as many batches as the text has tokens for, and the next one
    goes on where it ended, as in bilm-tf. Otherwise every iteration is one pass from the beginning;
    what is left when the sentences run out is dropped.

    A batch is `{"batch": BatchPair, "starts": bool}`, `starts` where nothing came before.

    # Parameters

    reader : `BilmTextReader`
        Says which files.
    data_path : `str`
        A path or glob.
    batch_size : `int`
        Streams of each process.
    num_steps : `int`, optional (default = `20`)
        Tokens of each stream in a batch: how far back gradients reach.
    shuffle : `bool`, optional (default = `True`)
        Whether files, and sentences within a file, come in a new random order in every pass.
    endless : `Optional[bool]`, optional (default = `None`)
        `None`: as `shuffle`.
    num_tokens : `Optional[int]`, optional (default = `None`)
        Tokens and sentence ends of the text, where known (bilm-tf's `n_train_tokens`); counted
        once otherwise.
    batches_per_epoch : `Optional[int]`, optional (default = `None`)
        Of an endless loader, in place of what the text gives.
    num_characters : `int`, optional (default = `50`)
        Character ids per token.
    num_workers : `int`, optional (default = `0`)
        Processes that prepare batches ahead; the batches are the same for any number.
    seed : `int`, optional (default = `0`)
        Of the shuffling.
    files_at_once : `int`, optional (default = `1`)
        The shuffled files are taken in groups of so many, and the sentences of a group shuffled
        together: for files that are books, not mixed shards. That many files are held in memory at
        a time by each direction, of each process and worker. Nothing where `shuffle` is off.

    # Raises

    `ConfigurationError`
        If the reader is another, a number is not positive, or the text too short for one batch.
    """

    def __init__(
        self,
        reader: DatasetReader,
        data_path: str,
        batch_size: int,
        num_steps: int = 20,
        shuffle: bool = True,
        endless: Optional[bool] = None,
        num_tokens: Optional[int] = None,
        batches_per_epoch: Optional[int] = None,
        num_characters: int = 50,
        num_workers: int = 0,
        seed: int = 0,
        files_at_once: int = 1,
    ) -> None:
        super().__init__()
        if not isinstance(reader, BilmTextReader):
            raise ConfigurationError(
                f"token_streams reads through {type(reader).__name__}, expected the dataset reader "
                "bilm_text"
            )
        for name, value in (
            ("batch_size", batch_size),
            ("num_steps", num_steps),
            ("batches_per_epoch", batches_per_epoch),
            ("num_tokens", num_tokens),
            ("files_at_once", files_at_once),
        ):
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} is {value}, expected at least 1")
        self.reader = reader
        self.data_path = data_path
        self.paths = reader.files(data_path)
        self.endless = shuffle if endless is None else endless
        self.num_workers = num_workers
        self.world_size = dist.get_world_size() if is_distributed() else 1
        self._options: Dict[str, Any] = {
            "batch_size": batch_size,
            "num_steps": num_steps,
            "num_characters": num_characters,
            "shuffle": shuffle,
            "files_at_once": files_at_once,
            "seed": seed,
            "rank": dist.get_rank() if is_distributed() else 0,
            "world_size": self.world_size,
        }
        self._num_tokens = num_tokens
        self._batches_per_epoch = batches_per_epoch
        self._streams: Optional[Tuple[TokenStreams, TokenStreams]] = None
        self._running: Optional[Iterator[BatchPair]] = None
        self._resumption: Optional[Resumption] = None
        self._epochs_begun = 0
        self._device: Optional[torch.device] = None

    def __len__(self) -> int:
        if not self.endless:
            raise TypeError("the number of batches of a single pass is not known beforehand")
        if self._batches_per_epoch is None:
            if self._num_tokens is None:
                self._num_tokens = count_targets(self.paths)
            per_batch = self._options["batch_size"] * self._options["num_steps"] * self.world_size
            self._batches_per_epoch = self._num_tokens // per_batch
            if self._batches_per_epoch == 0:
                raise ConfigurationError(
                    f"{self.data_path} holds {self._num_tokens} tokens, expected at least the "
                    f"{per_batch} of one batch: give more text, or fewer streams or steps"
                )
        return self._batches_per_epoch

    def resume(self, resumption: Resumption) -> None:
        """
        Yields empty batches for what a recovered trainer passes over, then goes on as it stood.

        # Parameters

        resumption : `Resumption`
        """
        self._resumption = resumption

    def __iter__(self) -> Iterator[TensorDict]:
        if not self.endless:
            yield from self._one_pass()
            return
        epoch, first = self._epochs_begun, 0
        self._epochs_begun += 1
        if self._resumption is not None:
            if epoch < self._resumption.skipped_epochs:
                first = len(self)
            elif epoch == self._resumption.skipped_epochs:
                first = self._resumption.skipped_batches
            for _ in range(first):
                yield {}
        for _ in range(first, len(self)):
            starts = self._running is None and self._resumption is None
            if self._running is None:
                positions = None if self._resumption is None else self._resumption.positions
                self._running = self._pairs(positions, endless=True)
            yield self._to_device(next(self._running), starts)

    def _one_pass(self) -> Iterator[TensorDict]:
        starts = True
        for pair in self._pairs(None, endless=False):
            yield self._to_device(pair, starts)
            starts = False
        if starts:
            raise ConfigurationError(
                f"{self.data_path} holds less than one batch of "
                f"{self._options['batch_size'] * self.world_size} streams of "
                f"{self._options['num_steps']} tokens, expected at least that"
            )

    def _pairs(
        self, positions: Optional[Tuple[StreamPosition, StreamPosition]], endless: bool
    ) -> Iterator[BatchPair]:
        if self._streams is None:
            raise ConfigurationError("the data loader was not given its vocabulary (index_with)")
        batches = _PairedBatches(self._streams, positions or (None, None), endless)
        if not self.num_workers:
            return iter(batches)
        return iter(
            torch.utils.data.DataLoader(
                batches,
                batch_size=None,
                num_workers=self.num_workers,
                # Its own generator: the run's random numbers do not depend on the workers.
                generator=torch.Generator(),
            )
        )

    def _to_device(self, pair: BatchPair, starts: bool) -> TensorDict:
        if self._device is not None:
            pair = BatchPair(
                *(
                    one._replace(
                        characters=move_to_device(one.characters, self._device),
                        targets=move_to_device(one.targets, self._device),
                    )
                    for one in pair
                )
            )
        return {"batch": pair, "starts": starts}  # type: ignore[dict-item]

    def iter_instances(self) -> Iterator[Instance]:
        """The text's sentences, for a vocabulary."""
        yield from self.reader.read(self.data_path)

    def index_with(self, vocab: Vocabulary) -> None:
        """
        # Parameters

        vocab : `Vocabulary`
            Made by `bilm_words`.
        """
        words = word_vocabulary(vocab)
        forward, backward = (
            TokenStreams(self.paths, words, direction, **self._options)
            for direction in ("forward", "backward")
        )
        self._streams = (forward, backward)

    def set_target_device(self, device: torch.device) -> None:
        """
        # Parameters

        device : `torch.device`
            Where batches go.
        """
        self._device = device


class _PairedBatches(torch.utils.data.IterableDataset):
    """Both directions' batches; each of several workers makes every so-manieth."""

    def __init__(
        self,
        streams: Tuple[TokenStreams, TokenStreams],
        positions: Tuple[Optional[StreamPosition], Optional[StreamPosition]],
        endless: bool,
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
