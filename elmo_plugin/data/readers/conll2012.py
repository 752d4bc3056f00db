"""Read files in CoNLL-2012 format (OntoNotes 5) sentence by sentence."""

import re
from pathlib import Path
from typing import Iterator, List, NamedTuple, Tuple

from elmo_plugin.bilm.files.text import read_lines

# Columns: document, part, number, word, tag, parse, lemma, frameset, sense, speaker, named entity;
# then one column for the arguments of each predicate; then coreference.
WORD_COLUMN = 3
SPEAKER_COLUMN = 9
FIRST_PREDICATE_COLUMN = 11
MIN_COLUMNS = 12
# Only ASCII blanks separate columns, because a word may hold a no-break space.
BLANKS = re.compile(r"[ \t]+")


class Row(NamedTuple):
    """One line of a file: its number, counted from 1, and its columns."""

    line_number: int
    columns: List[str]


def gold_conll_files(path: Path) -> List[Path]:
    """
    Return the files to read: `path` itself, or all `*gold_conll` files below a directory, sorted by
    path. Raise a `ValueError` if there is none.
    """
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*gold_conll") if file.is_file())
    if not found:
        raise ValueError(f"{path}: found no *gold_conll file in this directory")
    return found


def read_sentence_rows(path: Path) -> Iterator[Tuple[List[Row], int, str]]:
    """
    Yield `(rows, line_number, line)` for each sentence: its rows, and the number and text of the
    line that ends it. Blank lines, lines that start with `#`, and the end of the file end a
    sentence. If one such line directly follows another, `rows` is empty. Raise a `ValueError` with
    path and line if a row has too few columns, or not as many as the sentence's first row.
    """
    rows: List[Row] = []
    number = 0
    for number, line in read_lines(path):
        line = line.strip(" \t\r\n")
        if not line or line.startswith("#"):
            yield rows, number, line
            rows = []
            continue
        rows.append(Row(number, BLANKS.split(line)))
        found, first = len(rows[-1].columns), rows[0]
        if found < MIN_COLUMNS:
            raise ValueError(
                f"{path}, line {number}: found {found} columns, expected at least {MIN_COLUMNS}"
            )
        if found != len(first.columns):
            raise ValueError(
                f"{path}, line {number}: found {found} columns, expected {len(first.columns)} as "
                f"in the sentence's first line, {first.line_number}"
            )
    yield rows, number + 1, ""
