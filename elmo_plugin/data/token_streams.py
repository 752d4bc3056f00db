"""Contiguous token streams as AllenNLP's data loader."""

from typing import Iterator, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import DataLoader, DatasetReader, Instance, TensorDict, Vocabulary

from elmo_plugin.bilm.training.streams import BatchPair
from elmo_plugin.bilm.training.text import Text
from elmo_plugin.bilm.training.vocabulary import WordVocabulary
from elmo_plugin.data.bilm_vocabulary import word_vocabulary
from elmo_plugin.data.readers.bilm_text import BilmTextReader


@DataLoader.register("token_streams", exist_ok=True)
class TokenStreamsLoader(DataLoader):
    """
    Says how a text is read as token streams (see `elmo_plugin.bilm.training.text`), for the trainer
    `bilm_pretraining`. Iterated, it gives one pass from the beginning, for an evaluation; what is
    left when the sentences run out is dropped.

    A batch is `{"batch": BatchPair, "starts": bool}`, `starts` where nothing came before.

    # Parameters

    reader : `BilmTextReader`
        Says which files.
    data_path : `str`
        A path or glob.
    batch_size : `int`
    num_steps : `int`, optional (default = `20`)
    shuffle : `bool`, optional (default = `True`)
    num_tokens : `Optional[int]`, optional (default = `None`)
    batches_per_epoch : `Optional[int]`, optional (default = `None`)
    num_characters : `int`, optional (default = `50`)
    num_workers : `int`, optional (default = `0`)
    seed : `int`, optional (default = `0`)
    files_at_once : `int`, optional (default = `1`)
        See `Text`; in several processes `batch_size` is each one's.

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
        self.reader = reader
        self.data_path = data_path
        try:
            self.text = Text(
                reader.files(data_path),
                batch_size,
                num_steps,
                shuffle,
                num_tokens,
                batches_per_epoch,
                num_characters,
                num_workers,
                seed,
                files_at_once,
            )
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        self._words: Optional[WordVocabulary] = None
        self._device: Optional[torch.device] = None

    def __len__(self) -> int:
        raise TypeError("the number of batches of a single pass is not known beforehand")

    def __iter__(self) -> Iterator[TensorDict]:
        if self._words is None:
            raise ConfigurationError("the data loader was not given its vocabulary (index_with)")
        try:
            pairs = self.text.pairs(self._words)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        starts = True
        for pair in pairs:
            if self._device is not None:
                pair = BatchPair(*(one.to(self._device) for one in pair))
            yield {"batch": pair, "starts": starts}  # type: ignore[dict-item]
            starts = False

    def iter_instances(self) -> Iterator[Instance]:
        """The text's sentences, for a vocabulary."""
        yield from self.reader.read(self.data_path)

    def index_with(self, vocab: Vocabulary) -> None:
        """
        # Parameters

        vocab : `Vocabulary`
            Made by `bilm_words`.
        """
        self._words = word_vocabulary(vocab)

    def set_target_device(self, device: torch.device) -> None:
        """
        # Parameters

        device : `torch.device`
            Where batches go.
        """
        self._device = device
