"""Documents with coreference chains in the columns of CoNLL-2012 (OntoNotes 5), read one by one."""

import logging
import re
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Tuple

from elmo_plugin.bilm.files.text import quoted, read_lines

logger = logging.getLogger(__name__)

Mention = Tuple[int, int]

WORD_COLUMN = 3
SPEAKER_COLUMN = 9
# Document, part, number, word, tag, parse, lemma, frameset, sense, speaker, named entity; then a
# column for each predicate; coreference last.
MIN_COLUMNS = 12
# Only ASCII blanks divide columns: a no-break space inside a token stays in it.
BLANKS = re.compile(r"[ \t]+")
BEGIN = re.compile(r"#begin document \((.*)\); part (\d+)")
BRACKET = re.compile(r"(\()?([0-9]+)(\))?")


class Document(NamedTuple):
    """
    One document: its key, such as `bc/cctv/00/cctv_0000` (empty if the file names none), its
    sentences, the speaker of each token by sentence, and its clusters of mentions, each the first
    and the last token, counted through the document.
    """

    key: str
    sentences: List[List[str]]
    speakers: List[List[str]]
    clusters: List[List[Mention]]


def read_documents(path: Path) -> Iterator[Document]:
    """
    # Parameters

    path : `Path`
        A file of documents between `#begin document (KEY); part NUMBER` and `#end document`. Blank
        lines and other lines that start with `#` end a sentence. Without `#` lines the file is one
        document.

    # Returns

    `Iterator[Document]`
        One at a time; no more of the file is held. Documents without a token are left out.

    # Raises

    `ValueError`
        With path and line: too few columns, a sentence whose rows differ in number of columns, a
        mention that closes and is not open or never closes, a document that begins before the last
        one ends, bytes that are not UTF-8; or a file without a token.
    """
    builder = _Builder(path)
    num_documents = 0
    begun = 0
    for line_number, line in read_lines(path):
        line = line.strip(" \t\r\n")
        if line and not line.startswith("#"):
            builder.add_row(line_number, BLANKS.split(line))
            continue
        builder.end_sentence()
        if line.startswith("#begin document"):
            if begun:
                raise ValueError(
                    f"{path}, line {line_number}: found {quoted(line)}, expected "
                    f"'#end document' of the one that begins in line {begun}"
                )
            begun = line_number
            match = BEGIN.match(line)
            builder.key = match[1] if match else ""
        elif line.startswith("#end document"):
            begun = 0
            if builder.sentences:
                num_documents += 1
                yield builder.end_document()
    builder.end_sentence()
    if begun:
        logger.warning(
            "%s: the document that begins in line %d has no '#end document': a file cut short?",
            path,
            begun,
        )
    if builder.sentences:
        num_documents += 1
        yield builder.end_document()
    if not num_documents:
        raise ValueError(f"{path}: found no token, expected CoNLL-2012 columns")


class _Builder:
    """What has been read of the current document."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self.key = ""
        self.sentences: List[List[str]] = []
        self._speakers: List[List[str]] = []
        self._clusters: Dict[str, List[Mention]] = {}
        self._num_tokens = 0
        self._start_sentence()

    def _start_sentence(self) -> None:
        self._rows: List[List[str]] = []
        self._first_line = 0
        # The first tokens, and their lines, of each cluster's mentions that are open.
        self._open: Dict[str, List[Tuple[int, int]]] = {}

    def add_row(self, line_number: int, columns: List[str]) -> None:
        where = f"{self._path}, line {line_number}"
        if len(columns) < MIN_COLUMNS:
            raise ValueError(
                f"{where}: found {len(columns)} columns, expected at least {MIN_COLUMNS}"
            )
        if self._rows and len(columns) != len(self._rows[0]):
            raise ValueError(
                f"{where}: found {len(columns)} columns, expected {len(self._rows[0])} as in the "
                f"sentence's first line, {self._first_line}"
            )
        self._first_line = self._first_line or line_number
        if columns[-1] not in ("-", "_", "*"):
            for bracket in columns[-1].split("|"):
                self._add_bracket(line_number, bracket, columns[-1])
        self._rows.append(columns)

    def _add_bracket(self, line_number: int, bracket: str, cell: str) -> None:
        where = f"{self._path}, line {line_number}"
        match = BRACKET.fullmatch(bracket)
        if match is None or not (match[1] or match[3]):
            raise ValueError(
                f"{where}: found {quoted(cell)} in the last column, expected '-' or brackets "
                "such as (3, 3) or (3), divided by |"
            )
        opens, cluster, closes = match.groups()
        token = self._num_tokens + len(self._rows)
        if opens:
            self._open.setdefault(cluster, []).append((token, line_number))
        if closes:
            if not self._open.get(cluster):
                raise ValueError(
                    f"{where}: found {quoted(cell)}, but no mention of cluster {quoted(cluster)} "
                    "is open in this sentence"
                )
            start, _ = self._open[cluster].pop()
            self._clusters.setdefault(cluster, []).append((start, token))

    def end_sentence(self) -> None:
        if not self._rows:
            return
        for cluster, mentions in self._open.items():
            for _, line_number in mentions:
                raise ValueError(
                    f"{self._path}, line {line_number}: a mention of cluster {quoted(cluster)} "
                    "opens here and does not close before its sentence ends"
                )
        self.sentences.append([columns[WORD_COLUMN] for columns in self._rows])
        self._speakers.append([columns[SPEAKER_COLUMN] for columns in self._rows])
        self._num_tokens += len(self._rows)
        self._start_sentence()

    def end_document(self) -> Document:
        document = Document(self.key, self.sentences, self._speakers, list(self._clusters.values()))
        self._begin()
        return document
