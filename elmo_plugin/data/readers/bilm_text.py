"""Plain text for pretraining: one tokenized sentence a line."""

from pathlib import Path
from typing import Iterable, List, Optional, Sequence

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance, Token
from allennlp.data.fields import TextField

from elmo_plugin.bilm.training.vocabulary import find_text_files, read_sentences


@DatasetReader.register("bilm_text", exist_ok=True)
class BilmTextReader(DatasetReader):
    """
    Finds text files and reads their sentences: one a line, tokens separated by white space, UTF-8,
    blank lines skipped. Its instances serve to count words; for training, the `token_streams` data
    loader reads the same files as streams.
    """

    def files(self, data_path: str) -> List[Path]:
        """
        # Parameters

        data_path : `str`
            A file's path, or a glob pattern.

        # Returns

        `List[Path]`
            Sorted.

        # Raises

        `ConfigurationError`
            If there is no such file.
        """
        try:
            return find_text_files(data_path)
        except FileNotFoundError as error:
            raise ConfigurationError(str(error)) from error

    def _read(self, file_path: str) -> Iterable[Instance]:
        for path in self.files(file_path):
            for tokens in read_sentences(path):
                yield self.text_to_instance(tokens)

    def text_to_instance(self, tokens: Optional[Sequence[str]] = None) -> Instance:
        """
        # Parameters

        tokens : `Optional[Sequence[str]]`
            A sentence.
        """
        return Instance({"tokens": TextField([Token(token) for token in tokens or ()], {})})
