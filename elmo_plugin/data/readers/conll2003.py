"""Reader of the columns of the CoNLL-2003 shared task (Tjong Kim Sang and De Meulder 2003)."""

import logging
import re
import warnings
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Union

from allennlp.common.checks import ConfigurationError
from allennlp.common.file_utils import cached_path
from allennlp.data.dataset_readers.dataset_reader import DatasetReader, PathOrStr
from allennlp.data.fields import Field, MetadataField, SequenceLabelField, TextField
from allennlp.data.instance import Instance
from allennlp.data.token_indexers import SingleIdTokenIndexer, TokenIndexer
from allennlp.data.tokenizers import Token

from elmo_plugin.bilm.files.text import quoted, read_lines
from elmo_plugin.data.gold_labels import GoldTagsField
from elmo_plugin.data.tag_scheme import TagScheme, to_bioul

logger = logging.getLogger(__name__)

COLUMNS = ("word", "pos", "chunk", "ner")
SPAN_COLUMNS = ("chunk", "ner")
# Only ASCII blanks divide columns: a no-break space or a line separator inside a token stays in it.
BLANKS = re.compile(r"[ \t\r\n]+")


class Row(NamedTuple):
    """One line of the file: its number, from 1, and its columns."""

    line_number: int
    columns: List[str]


@DatasetReader.register("conll2003", exist_ok=True)
class Conll2003DatasetReader(DatasetReader):
    """
    Reads files with one token a line in four columns, `WORD POS CHUNK NER`, divided by blanks or
    tabs. Blank lines and `-DOCSTART-` lines end a sentence. Sentences are read one at a time.

    The span columns (`chunk`, `ner`) may be written in IOB1, BIO or BIOUL; a first pass over the
    file finds out which, says so in the log, and checks the file. Only the columns that the
    arguments name are looked at, so others may hold fillers (`-X-`). Where AllenNLP's reader of
    this name reads a file, this one makes the same instances.

    Registered as a `DatasetReader` with name "conll2003".

    # Parameters

    token_indexers : `Dict[str, TokenIndexer]`, optional (default = single ids as `tokens`)
        How the words are represented.
    tag_label : `str`, optional (default = `"ner"`)
        The column that becomes the field `tags`: `ner`, `pos`, `chunk`, or `None` for no such
        field.
    feature_labels : `Sequence[str]`, optional (default = `()`)
        Columns that become further fields, in namespaces of these names: `pos_tags`, `chunk_tags`,
        `ner_tags`.
    convert_to_coding_scheme : `str`, optional (default = `None`)
        `BIOUL`: the span columns are converted. `None`: all tags stay as they stand in the file.
    label_namespace : `str`, optional (default = `"labels"`)
        The namespace of the field `tags`.
    coding_scheme : `str`, optional
        Deprecated: `IOB1` means `convert_to_coding_scheme = None`, `BIOUL` means `"BIOUL"`.

    # Raises

    `ConfigurationError`
        For an argument that is none of the above.
    `ValueError`
        For a file that is empty, not UTF-8, with a wrong number of columns in a line or, where tags
        are converted, with tags of no known scheme or of several. The text begins with the path and
        the line.
    """

    def __init__(
        self,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        tag_label: str = "ner",
        feature_labels: Sequence[str] = (),
        convert_to_coding_scheme: Optional[str] = None,
        label_namespace: str = "labels",
        **kwargs: Any,
    ) -> None:
        if "coding_scheme" in kwargs:
            warnings.warn(
                "`coding_scheme` is deprecated; use `convert_to_coding_scheme`",
                DeprecationWarning,
                stacklevel=2,
            )
            coding_scheme = kwargs.pop("coding_scheme")
            if coding_scheme not in ("IOB1", "BIOUL"):
                raise ConfigurationError(
                    f"unknown coding_scheme: {coding_scheme}; expected IOB1 or BIOUL"
                )
            convert_to_coding_scheme = None if coding_scheme == "IOB1" else coding_scheme
        super().__init__(
            manual_distributed_sharding=True, manual_multiprocess_sharding=True, **kwargs
        )
        if tag_label is not None and tag_label not in COLUMNS[1:]:
            raise ConfigurationError(
                f"unknown tag label type: {tag_label}; expected ner, pos or chunk"
            )
        for label in feature_labels:
            if label not in COLUMNS[1:]:
                raise ConfigurationError(
                    f"unknown feature label type: {label}; expected ner, pos or chunk"
                )
        if convert_to_coding_scheme not in (None, "BIOUL"):
            raise ConfigurationError(
                f"unknown convert_to_coding_scheme: {convert_to_coding_scheme}; "
                "expected null or BIOUL"
            )
        self._token_indexers = token_indexers or {"tokens": SingleIdTokenIndexer()}
        self.tag_label = tag_label
        self.feature_labels = set(feature_labels)
        self.convert_to_coding_scheme = convert_to_coding_scheme
        self.label_namespace = label_namespace

    def _read(self, file_path: PathOrStr) -> Iterable[Instance]:
        local_path = cached_path(str(file_path))
        self._check(local_path, str(file_path))
        for sentence in self.shard_iterable(_sentences(local_path, str(file_path))):
            words, pos_tags, chunk_tags, ner_tags = map(
                list, zip(*(row.columns for row in sentence), strict=True)
            )
            yield self.text_to_instance(
                [Token(word) for word in words], pos_tags, chunk_tags, ner_tags
            )

    def _check(self, local_path: Union[str, Path], file_name: str) -> None:
        """Reads the whole file once: form, tag schemes."""
        used = self.feature_labels | {self.tag_label}
        schemes = {column: TagScheme() for column in SPAN_COLUMNS if column in used}
        strange: Dict[
            str, str
        ] = {}  # column -> why it is in no scheme; matters only for conversion
        num_sentences = 0
        for sentence in _sentences(local_path, file_name):
            num_sentences += 1
            for column, scheme in schemes.items():
                index = COLUMNS.index(column)
                try:
                    if column not in strange:
                        scheme.read((row.line_number, row.columns[index]) for row in sentence)
                except ValueError as error:
                    strange[column] = f"{file_name}:{error}"
        if num_sentences == 0:
            raise ValueError(
                f"{file_name}:1: no sentence in this file; expected lines of {' '.join(COLUMNS)}"
            )
        for column, scheme in schemes.items():
            found = None
            try:
                found = scheme.name()
            except ValueError as error:
                strange.setdefault(column, f"{file_name}:{error}")
            if column not in strange:
                logger.info(
                    "%s: the %s column is in %s", file_name, column, found or "no scheme, all O"
                )
            elif self.convert_to_coding_scheme:
                raise ValueError(f"{strange[column]} ({column} column)")
            else:
                logger.warning("%s (%s column); tags stay as they are", strange[column], column)

    def text_to_instance(
        self,
        tokens: List[Token],
        pos_tags: Optional[List[str]] = None,
        chunk_tags: Optional[List[str]] = None,
        ner_tags: Optional[List[str]] = None,
    ) -> Instance:
        """
        # Parameters

        tokens : `List[Token]`
            The words of one sentence, at least one.
        pos_tags, chunk_tags, ner_tags : `List[str]`, optional (default = `None`)
            Their tags; spans in IOB1, BIO or BIOUL.

        # Returns

        `Instance`
            Fields `tokens`, `metadata` (its `words` are the strings), `tags` if the column of
            `tag_label` is given, and one for each of `feature_labels`.
        """
        if not tokens:
            raise ValueError("a sentence of 0 tokens cannot be tagged; expected at least one")
        sequence = TextField(tokens)
        fields: Dict[str, Field] = {
            "tokens": sequence,
            "metadata": MetadataField({"words": [token.text for token in tokens]}),
        }
        columns = {"pos": pos_tags, "chunk": chunk_tags, "ner": ner_tags}
        for column, tags in columns.items():
            wanted = column in self.feature_labels
            if wanted and tags is None:
                raise ConfigurationError(
                    f"feature_labels names {column}, but text_to_instance got no {column}_tags"
                )
            if tags is None or not (wanted or column == self.tag_label):
                continue
            if column in SPAN_COLUMNS and self.convert_to_coding_scheme == "BIOUL":
                tags = to_bioul(tags)
            if wanted:
                fields[f"{column}_tags"] = SequenceLabelField(tags, sequence, f"{column}_tags")
            if column == self.tag_label:
                fields["tags"] = GoldTagsField(tags, sequence, self.label_namespace)
        return Instance(fields)

    def apply_token_indexers(self, instance: Instance) -> None:
        """Gives the words of an instance this reader's indexers."""
        instance.fields["tokens"]._token_indexers = self._token_indexers  # type: ignore[attr-defined]


def _sentences(local_path: Union[str, Path], file_name: str) -> Iterator[List[Row]]:
    """Sentences of a file; `file_name` is what error texts call it."""
    sentence: List[Row] = []
    for line_number, line in read_lines(local_path, file_name):
        columns = BLANKS.split(line.strip(" \t\r\n"))
        if not line.strip() or columns[0] == "-DOCSTART-":
            if sentence:
                yield sentence
                sentence = []
            continue
        if len(columns) != len(COLUMNS):
            raise ValueError(
                f"{file_name}:{line_number}: {len(columns)} columns: {quoted(line.strip())}; "
                f"expected {len(COLUMNS)}: {' '.join(COLUMNS)}"
            )
        sentence.append(Row(line_number, columns))
    if sentence:
        yield sentence
