"""Dataset reader of files with one token per line, such as those of CoNLL-2003."""

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
from allennlp.data.token_indexers import TokenIndexer
from allennlp.data.tokenizers import Token

from elmo_plugin.bilm.files.text import quoted, read_lines
from elmo_plugin.data.gold_labels import GoldTagsField
from elmo_plugin.data.readers.sharding import ShardingReader
from elmo_plugin.data.tag_scheme import TagScheme, to_bioul

logger = logging.getLogger(__name__)

COLUMNS = ("word", "pos", "chunk", "ner")
LABELS = ("ner", "pos", "chunk")
SPAN_COLUMNS = ("chunk", "ner")
# Only ASCII blanks separate columns: a word may hold a no-break space or a line separator.
BLANKS = re.compile(r"[ \t\r\n]+")


class Row(NamedTuple):
    """One line of a file: its number, counted from 1, and its columns by name."""

    line_number: int
    columns: Dict[str, str]


@DatasetReader.register("conll2003", exist_ok=True)
class Conll2003DatasetReader(ShardingReader):
    """
    Reads files with one token per line, in columns separated by spaces or tabs. By default the
    columns are those of CoNLL-2003 (Tjong Kim Sang and De Meulder 2003), `WORD POS CHUNK NER`.
    Blank lines and `-DOCSTART-` lines end a sentence. Instances are the same as those of AllenNLP's
    reader of this name.

    The span columns (`chunk`, `ner`) may be in the tag scheme IOB1, BIO, BIOUL or BIOES. A first
    pass over the file checks the tags and logs the scheme. Only the tags of columns that become
    fields are checked. Other columns may hold anything, such as `-X-`.

    Registered as a `DatasetReader` with name "conll2003".

    # Parameters

    token_indexers : `Dict[str, TokenIndexer]`, optional (default = single ids as `tokens`)
    tag_label : `str`, optional (default = `"ner"`)
        Column that becomes the field `tags`: `ner`, `pos` or `chunk`. `None` makes no such field.
    feature_labels : `Sequence[str]`, optional (default = `()`)
        Columns to return as additional fields: `pos`, `chunk` or `ner`. The field `pos_tags`, for
        example, has the vocabulary namespace `pos_tags`.
    convert_to_coding_scheme : `str`, optional (default = `None`)
        `BIOUL` converts the span columns to that scheme. `None` keeps the tags of the file.
    label_namespace : `str`, optional (default = `"labels"`)
        Vocabulary namespace of the field `tags`.
    columns : `List[str]`, optional (default = `["word", "pos", "chunk", "ner"]`)
        Names of the file's columns, from left to right. `word` is required; columns with other
        names than `pos`, `chunk` and `ner` are ignored. Examples: `["word", "ner"]` (WNUT, JNLPBA),
        `["word", "pos", "ner"]` (CoNLL-2002), `["number", "word", "ner", "inner"]` (GermEval),
        `["word", "lemma", "pos", "chunk", "ner"]` (German CoNLL-2003). If this argument is given,
        lines with tabs are split at tabs only. A line that begins with `#` and has the wrong number
        of columns is then a comment, which ends a sentence.
    coding_scheme : `str`, optional
        Deprecated: `IOB1` means `convert_to_coding_scheme = None`, `BIOUL` means `"BIOUL"`.

    # Raises

    `ConfigurationError`
        If an argument's value is none of those listed above.
    `ValueError`
        If a file is empty or not UTF-8, if a line has the wrong number of columns, or if tags to
        convert are in no known scheme or mix several. The message begins with path and line.
    """

    def __init__(
        self,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        tag_label: str = "ner",
        feature_labels: Sequence[str] = (),
        convert_to_coding_scheme: Optional[str] = None,
        label_namespace: str = "labels",
        columns: Optional[List[str]] = None,
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
        super().__init__(token_indexers, **kwargs)
        self._has_own_columns = columns is not None
        self._columns = list(columns or COLUMNS)
        twice = [name for name in COLUMNS if self._columns.count(name) > 1]
        if "word" not in self._columns or twice:
            raise ConfigurationError(
                f"found the columns {self._columns}, expected word once, and ner, pos and chunk at "
                'most once, such as ["word", "ner"]'
            )
        labels = [] if tag_label is None else [("tag", tag_label)]
        for kind, label in [*labels, *(("feature", label) for label in feature_labels)]:
            if label not in LABELS:
                raise ConfigurationError(
                    f"unknown {kind} label type: {label}; expected ner, pos or chunk"
                )
            if label not in self._columns:
                raise ConfigurationError(
                    f"found the columns {self._columns} without {label!r}, which tag_label "
                    "or feature_labels names; expected it among them"
                )
        if convert_to_coding_scheme not in (None, "BIOUL"):
            raise ConfigurationError(
                f"unknown convert_to_coding_scheme: {convert_to_coding_scheme}; "
                "expected null or BIOUL"
            )
        self.tag_label = tag_label
        self.feature_labels = set(feature_labels)
        self.convert_to_coding_scheme = convert_to_coding_scheme
        self.label_namespace = label_namespace

    def _read(self, file_path: PathOrStr) -> Iterable[Instance]:
        local_path = cached_path(str(file_path))
        self._check(self._sentences(local_path, str(file_path)), str(file_path))
        for sentence in self.shard_iterable(self._sentences(local_path, str(file_path))):
            columns = {name: [row.columns[name] for row in sentence] for name in self._columns}
            tags = (columns.get(name) for name in ("pos", "chunk", "ner"))
            yield self.text_to_instance([Token(word) for word in columns["word"]], *tags)

    def _check(self, sentences: Iterable[List[Row]], file_name: str) -> None:
        """Read all sentences of a file once to check its columns and its tag schemes."""
        used = self.feature_labels | {self.tag_label}
        schemes = {column: TagScheme() for column in SPAN_COLUMNS if column in used}
        empty = True
        for sentence in sentences:
            empty = False
            for column, scheme in schemes.items():
                scheme.read((row.line_number, row.columns[column]) for row in sentence)
        if empty:
            raise ValueError(
                f"{file_name}:1: no sentence in this file; "
                f"expected lines of {' '.join(self._columns)}"
            )
        for column, scheme in schemes.items():
            try:
                found = scheme.name() or "no scheme, all O"
                logger.info("%s: the %s column is in %s", file_name, column, found)
            except ValueError as error:
                problem = f"{file_name}:{error} ({column} column)"
                if self.convert_to_coding_scheme:
                    raise ValueError(problem) from None
                logger.warning("%s; tags stay as they are", problem)

    def _sentences(self, local_path: Union[str, Path], file_name: str) -> Iterator[List[Row]]:
        """Yield the rows of each sentence. `file_name` is the file's name in error messages."""
        sentence: List[Row] = []
        for line_number, line in read_lines(local_path, file_name):
            line = line.strip(" \t\r\n")
            by_tabs = self._has_own_columns and "\t" in line
            columns = line.split("\t") if by_tabs else BLANKS.split(line)
            fits = len(columns) == len(self._columns)
            comment = self._has_own_columns and line.startswith("#") and not fits
            if not line.strip() or columns[0] == "-DOCSTART-" or comment:
                if sentence:
                    yield sentence
                    sentence = []
            elif fits and all(columns):
                columns = [column.strip(" ") for column in columns]
                sentence.append(Row(line_number, dict(zip(self._columns, columns))))
            else:
                raise ValueError(
                    f"{file_name}:{line_number}: {sum(map(bool, columns))} columns: "
                    f"{quoted(line)}; expected {len(self._columns)}: {' '.join(self._columns)}"
                    + (
                        ""
                        if self._has_own_columns
                        else "; the reader's argument `columns` names others"
                    )
                )
        if sentence:
            yield sentence

    def text_to_instance(
        self,
        tokens: List[Token],
        pos_tags: Optional[List[str]] = None,
        chunk_tags: Optional[List[str]] = None,
        ner_tags: Optional[List[str]] = None,
    ) -> Instance:
        """
        Make an instance from the words of one sentence, with a tag for each word. Span tags may be
        in IOB1, BIO, BIOUL or BIOES.

        The instance has the fields `tokens`, and `metadata` with the `words` as strings. It has the
        field `tags` if the column `tag_label` is given, and a field for each of `feature_labels`.
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
