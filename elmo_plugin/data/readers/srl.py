"""Dataset reader for semantic role labelling data in CoNLL-2012 format (OntoNotes 5)."""

import itertools
import logging
import re
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from allennlp.common.file_utils import cached_path
from allennlp.data import DatasetReader, Field, Instance, Token, TokenIndexer
from allennlp.data.dataset_readers.dataset_reader import PathOrStr
from allennlp.data.fields import MetadataField, SequenceLabelField, TextField
from allennlp.data.token_indexers import PretrainedTransformerIndexer

from elmo_plugin.bilm.files.text import quoted
from elmo_plugin.data.gold_labels import GoldTagsField
from elmo_plugin.data.readers.conll2012 import (
    FIRST_PREDICATE_COLUMN,
    WORD_COLUMN,
    Row,
    gold_conll_files,
    read_sentence_rows,
)
from elmo_plugin.data.readers.sharding import ShardingReader

logger = logging.getLogger(__name__)

CELL = re.compile(r"(\([^()*]+)*\*\)*")
SPAN_START = re.compile(r"\(([^()*]+)")


def frames(path: Path, rows: List[Row]) -> Iterator[List[str]]:
    """
    Yield the BIO tags of each predicate's arguments in a sentence. Raise a `ValueError` with path
    and line if the columns are malformed.
    """
    for column in range(FIRST_PREDICATE_COLUMN, len(rows[0].columns) - 1):
        tags = _bio_tags(path, rows, column)
        if "B-V" in tags:
            yield tags
        elif any(tag != "O" for tag in tags):
            logger.warning(
                "%s, line %d: column %d has arguments and no (V*; left out",
                path,
                rows[0].line_number,
                column + 1,
            )


def _bio_tags(path: Path, rows: List[Row], column: int) -> List[str]:
    """Convert a bracketed column to BIO tags. Spans inside another span are left out."""
    tags = []
    role, depth = "", 0
    for line_number, columns in rows:
        cell = columns[column]
        where = f"{path}, line {line_number}, column {column + 1}"
        opened = SPAN_START.findall(cell)
        if not CELL.fullmatch(cell):
            raise ValueError(f"{where}: found {quoted(cell)}, expected (ROLE*, (ROLE*), * or *)")
        if opened and depth == 0:
            role = opened[0]
            tags.append(f"B-{role}")
        else:
            tags.append(f"I-{role}" if depth else "O")
        if depth + len(opened) > 1 and opened:
            logger.warning("%s: %r stands inside another span; the outer one counts", where, cell)
        depth += len(opened) - cell.count(")")
        if depth < 0:
            raise ValueError(
                f"{where}: found {quoted(cell)}, which closes more spans than are open"
            )
    if depth:
        raise ValueError(
            f"{path}, line {rows[-1].line_number}, column {column + 1}: the sentence ends with "
            f"{quoted(role)} open, expected a closing bracket"
        )
    return tags


@DatasetReader.register("srl", exist_ok=True)
class SrlReader(ShardingReader):
    """
    Makes an instance from each predicate in a file in CoNLL-2012 format. Given a directory, it
    reads all `*gold_conll` files below it, sorted by path.

    The fields are `tokens`; `verb_indicator`, 1 at the predicate and 0 elsewhere; `tags`, the BIO
    tags of the arguments; and `metadata` with `words`, `verb`, `verb_index` and `gold_tags`. A
    sentence without predicates becomes one instance with only `O` tags. If a column marks arguments
    but no predicate (`(V*`), a warning is logged and the column is skipped.

    Registered as a `DatasetReader` with name "srl".

    # Parameters

    token_indexers : `Dict[str, TokenIndexer]`, optional (default = single ids as `tokens`)
        With `bert_model_name` the default is that model's indexer.
    domain_identifier : `str`, optional (default = `None`)
        Reads only files in a subdirectory of this name, such as `nw`.
    bert_model_name : `str`, optional (default = `None`)
        Name of a BERT model. Its word pieces become the tokens, and each piece gets the tag and the
        indicator of its word. The `offsets` in `metadata` are the indices of each word's first
        piece. Words are lower-cased if the name contains `uncased`.

    # Raises

    `ValueError`
        While reading, if there is no file or a file is malformed. The message gives path and line.
    """

    def __init__(
        self,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        domain_identifier: Optional[str] = None,
        bert_model_name: Optional[str] = None,
        **kwargs: Any,
    ) -> None:
        self.bert_tokenizer = None
        self.lowercase_input = False
        if bert_model_name is not None:
            from transformers import BertTokenizer

            self.bert_tokenizer = BertTokenizer.from_pretrained(bert_model_name)
            self.lowercase_input = "uncased" in bert_model_name
            token_indexers = token_indexers or {
                "tokens": PretrainedTransformerIndexer(bert_model_name)
            }
        super().__init__(token_indexers, **kwargs)
        self._domain_identifier = domain_identifier

    def _read(self, file_path: str) -> Iterator[Instance]:
        for words, tags in self.shard_iterable(self._frames(cached_path(file_path))):
            verb_indicator = [int(tag.endswith("-V")) for tag in tags]
            instance = self.text_to_instance([Token(word) for word in words], verb_indicator, tags)
            # Workers send instances without indexers to the main process, where AllenNLP adds them.
            instance["tokens"].token_indexers = None  # type: ignore[attr-defined]
            yield instance

    def _frames(self, file_path: PathOrStr) -> Iterator[Tuple[List[str], List[str]]]:
        for path in self._files(Path(file_path)):
            for rows, _, _ in read_sentence_rows(path):
                if rows:
                    words = [row.columns[WORD_COLUMN] for row in rows]
                    for tags in list(frames(path, rows)) or [["O"] * len(words)]:
                        yield words, tags

    def _files(self, path: Path) -> Iterable[Path]:
        found = gold_conll_files(path)
        if self._domain_identifier is None or not path.is_dir():
            return found
        selected = [file for file in found if f"/{self._domain_identifier}/" in file.as_posix()]
        if not selected:
            raise ValueError(
                f"{path}: none of {len(found)} *gold_conll files is in a directory "
                f"{self._domain_identifier!r}, the domain_identifier"
            )
        return selected

    def text_to_instance(
        self, tokens: List[Token], verb_label: List[int], tags: Optional[List[str]] = None
    ) -> Instance:
        """
        Make an instance from a sentence and one of its predicates. `verb_label` is 1 at the
        predicate's tokens, else 0. `tags` holds each token's BIO tag, which marks the arguments.
        """
        verb_label = list(map(int, verb_label))
        tags = None if tags is None else list(tags)
        words = [token.text or "" for token in tokens]
        verb_index = verb_label.index(1) if 1 in verb_label else None
        metadata: Dict[str, Any] = {
            "words": words,
            "verb": None if verb_index is None else words[verb_index],
            "verb_index": verb_index,
        }
        indicator, labels = verb_label, tags
        if self.bert_tokenizer is not None:
            pieces = [self._word_pieces(word) for word in words]
            # Offsets start at 1, because the first piece is [CLS].
            starts = itertools.accumulate(map(len, pieces), initial=1)
            metadata["offsets"] = [*starts][: len(words)]
            # Of each piece, the index of its word, and whether it is the word's first piece.
            places = [(i, k == 0) for i, parts in enumerate(pieces) for k in range(len(parts))]
            indicator = [0, *(verb_label[index] for index, _ in places), 0]
            if tags is not None:
                inside = [re.sub("^B", "I", tag) for tag in tags]
                labels = ["O", *((tags if first else inside)[i] for i, first in places), "O"]
            tokens = [
                # Give BERT's own id, which an indexer takes instead of looking up the piece.
                Token(piece, text_id=self.bert_tokenizer.vocab[piece])
                for piece in ["[CLS]", *itertools.chain(*pieces), "[SEP]"]
            ]
        text_field = TextField(tokens, self._token_indexers)
        fields: Dict[str, Field] = {
            "tokens": text_field,
            "verb_indicator": SequenceLabelField(indicator, text_field),
        }
        if tags and labels:
            fields["tags"] = GoldTagsField(labels, text_field)
            metadata["gold_tags"] = tags
        fields["metadata"] = MetadataField(metadata)
        return Instance(fields)

    def _word_pieces(self, word: str) -> List[str]:
        assert self.bert_tokenizer is not None
        word = word.lower() if self.lowercase_input else word
        return self.bert_tokenizer.wordpiece_tokenizer.tokenize(word)
