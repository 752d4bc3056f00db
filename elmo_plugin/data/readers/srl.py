"""Reader of semantic roles in the columns of the CoNLL-2012 shared task (OntoNotes 5)."""

import logging
import re
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from allennlp.common.file_utils import cached_path
from allennlp.data import DatasetReader, Field, Instance, Token, TokenIndexer
from allennlp.data.dataset_readers.dataset_reader import PathOrStr
from allennlp.data.fields import MetadataField, SequenceLabelField, TextField
from allennlp.data.token_indexers import PretrainedTransformerIndexer, SingleIdTokenIndexer

from elmo_plugin.bilm.files.text import quoted, read_lines
from elmo_plugin.data.coref_documents import BLANKS
from elmo_plugin.data.gold_labels import GoldTagsField

logger = logging.getLogger(__name__)

WORD_COLUMN = 3
# Document, part, number, word, tag, parse, lemma, frameset, sense, speaker, named entity; then one
# column per predicate; coreference last.
FIRST_PREDICATE_COLUMN = 11
MIN_COLUMNS = 12
CELL = re.compile(r"(\([^()*]+)*\*\)*")
SPAN_START = re.compile(r"\(([^()*]+)")


class Row(NamedTuple):
    """One line of a file: its number, from 1, and its columns."""

    line_number: int
    columns: List[str]


class Sentence(NamedTuple):
    """The words of a sentence, and the BIO tags of each predicate's arguments."""

    words: List[str]
    frames: List[List[str]]


def read_sentences(path: Path) -> Iterator[Sentence]:
    """
    # Parameters

    path : `Path`
        A `*gold_conll` file. Blank lines and lines that start with `#` end a sentence.

    # Returns

    `Iterator[Sentence]`
        One sentence at a time; no more of the file is held.

    # Raises

    `ValueError`
        With path and line: too few columns, a sentence whose rows differ in number of columns,
        brackets that do not match.
    """
    rows: List[Row] = []
    for line_number, line in read_lines(path):
        columns = BLANKS.split(line.strip(" \t\r\n"))
        if columns[0] and not columns[0].startswith("#"):
            rows.append(Row(line_number, columns))
            _check_width(path, rows)
        elif rows:
            yield _sentence(path, rows)
            rows = []
    if rows:
        yield _sentence(path, rows)


def _check_width(path: Path, rows: List[Row]) -> None:
    line_number, columns = rows[-1]
    if len(columns) < MIN_COLUMNS:
        raise ValueError(
            f"{path}, line {line_number}: found {len(columns)} columns, "
            f"expected at least {MIN_COLUMNS}"
        )
    if len(columns) != len(rows[0].columns):
        raise ValueError(
            f"{path}, line {line_number}: found {len(columns)} columns, expected "
            f"{len(rows[0].columns)} as in the sentence's first line, {rows[0].line_number}"
        )


def _sentence(path: Path, rows: List[Row]) -> Sentence:
    frames = []
    for column in range(FIRST_PREDICATE_COLUMN, len(rows[0].columns) - 1):
        tags = _bio_tags(path, rows, column)
        if "B-V" in tags:
            frames.append(tags)
        elif any(tag != "O" for tag in tags):
            logger.warning(
                "%s, line %d: column %d has arguments and no (V*; left out",
                path,
                rows[0].line_number,
                column + 1,
            )
    return Sentence([row.columns[WORD_COLUMN] for row in rows], frames)


def _bio_tags(path: Path, rows: List[Row], column: int) -> List[str]:
    """One bracketed column as BIO tags. Of nested spans, which BIO cannot say, the outer stay."""
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
class SrlReader(DatasetReader):
    """
    Reads directories of CoNLL-2012 files, one instance per predicate, sentence by sentence. Takes
    every file whose name ends in `gold_conll`, at any depth, in the order of their paths.

    An instance has `tokens`; `verb_indicator`, 1 where a tag ends in `-V`; `tags`, the predicate's
    arguments in BIO; and `metadata` with `words`, `verb`, `verb_index` and `gold_tags`. A sentence
    without predicates is one instance whose tags are all `O`; a predicate without arguments is an
    instance like any other, its only span `V`. A column with arguments and no `(V*` belongs to no
    predicate: it is left out, with a warning.

    Registered as a `DatasetReader` with name "srl".

    # Parameters

    token_indexers : `Dict[str, TokenIndexer]`, optional (default = `None`)
        `{"tokens": SingleIdTokenIndexer()}` if not given, or the indexer of `bert_model_name`.
    domain_identifier : `str`, optional (default = `None`)
        Read only files in a directory of this name, such as `nw`.
    bert_model_name : `str`, optional (default = `None`)
        A BERT model whose word pieces the tokens are then; tags and indicators are spread over
        them, and `metadata` has `offsets`, each word's first piece. Lower-cases if the name says
        `uncased`.

    # Raises

    `ValueError`
        When read: no `*gold_conll` file, or, with path and line, a file that is not well-formed.
    """

    def __init__(
        self,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        domain_identifier: Optional[str] = None,
        bert_model_name: Optional[str] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            manual_distributed_sharding=True, manual_multiprocess_sharding=True, **kwargs
        )
        self.bert_tokenizer = None
        self.lowercase_input = False
        if bert_model_name is not None:
            from transformers import BertTokenizer

            self.bert_tokenizer = BertTokenizer.from_pretrained(bert_model_name)
            self.lowercase_input = "uncased" in bert_model_name
            token_indexers = token_indexers or {
                "tokens": PretrainedTransformerIndexer(bert_model_name)
            }
        self._token_indexers = token_indexers or {"tokens": SingleIdTokenIndexer()}
        self._domain_identifier = domain_identifier

    def _read(self, file_path: str) -> Iterator[Instance]:
        for words, tags in self.shard_iterable(self._frames(cached_path(file_path))):
            verb_indicator = [int(tag.endswith("-V")) for tag in tags]
            yield self.text_to_instance([Token(word) for word in words], verb_indicator, tags)

    def _frames(self, directory: PathOrStr) -> Iterator[Tuple[List[str], List[str]]]:
        for path in self._files(Path(directory)):
            for sentence in read_sentences(path):
                for tags in sentence.frames or [["O"] * len(sentence.words)]:
                    yield sentence.words, tags

    def _files(self, directory: Path) -> Iterable[Path]:
        found = sorted(path for path in directory.rglob("*gold_conll") if path.is_file())
        if not found:
            raise ValueError(f"{directory}: expected a directory that has *gold_conll files")
        if self._domain_identifier is None:
            return found
        selected = [path for path in found if f"/{self._domain_identifier}/" in path.as_posix()]
        if not selected:
            raise ValueError(
                f"{directory}: none of {len(found)} *gold_conll files is in a directory "
                f"{self._domain_identifier!r}, the domain_identifier"
            )
        return selected

    def text_to_instance(
        self, tokens: List[Token], verb_label: List[int], tags: Optional[List[str]] = None
    ) -> Instance:
        """
        # Parameters

        tokens : `List[Token]`
            The words.
        verb_label : `List[int]`
            1 for the predicate's words, else 0; one per token.
        tags : `List[str]`, optional (default = `None`)
            The predicate's arguments in BIO, one per token.

        # Returns

        `Instance`
        """
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
            sizes = [len(word_pieces) for word_pieces in pieces]
            # The first place belongs to [CLS].
            metadata["offsets"] = [1 + sum(sizes[:index]) for index in range(len(sizes))]
            indicator = _spread(verb_label, verb_label, sizes, outside=0)
            if tags is not None:
                inside = ["I" + tag[1:] if tag[0] == "B" else tag for tag in tags]
                labels = _spread(tags, inside, sizes, outside="O")
            tokens = [
                # The ids are BERT's own: no indexer looks them up.
                Token(piece, text_id=self.bert_tokenizer.vocab[piece])
                for piece in ["[CLS]", *(p for word_pieces in pieces for p in word_pieces), "[SEP]"]
            ]
        # A worker process hands fields on without indexers; `apply_token_indexers` adds them.
        text_field = TextField(tokens, None if self.get_worker_info() else self._token_indexers)
        fields: Dict[str, Field] = {
            "tokens": text_field,
            "verb_indicator": SequenceLabelField(indicator, text_field),
        }
        if tags and labels:
            fields["tags"] = GoldTagsField(labels, text_field)
            metadata["gold_tags"] = tags
        fields["metadata"] = MetadataField(metadata)
        return Instance(fields)

    def apply_token_indexers(self, instance: Instance) -> None:
        """
        # Parameters

        instance : `Instance`
            Its tokens get the reader's indexers.
        """
        instance["tokens"].token_indexers = self._token_indexers  # type: ignore[attr-defined]

    def _word_pieces(self, word: str) -> List[str]:
        assert self.bert_tokenizer is not None
        word = word.lower() if self.lowercase_input else word
        return self.bert_tokenizer.wordpiece_tokenizer.tokenize(word)


def _spread(first: List[Any], others: List[Any], sizes: List[int], outside: Any) -> List[Any]:
    """A word's label for its first piece and for its others, `outside` for [CLS] and [SEP]."""
    spread = [outside]
    for head, other, size in zip(first, others, sizes, strict=True):
        spread += [head, *[other] * (size - 1)][:size]
    return [*spread, outside]
