"""The words a biLM predicts."""

import glob
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from elmo_plugin.bilm.files.text import read_lines
from elmo_plugin.bilm.files.whole_file import whole_file
from elmo_plugin.bilm.model.characters import BEGIN_OF_SENTENCE, END_OF_SENTENCE

UNKNOWN = "<UNK>"
# bilm-tf reads files that have these anywhere (bilm/data.py at 7cffee2); those it trained with
# begin with them.
SPECIAL_WORDS = (BEGIN_OF_SENTENCE, END_OF_SENTENCE, UNKNOWN)
# The 1 Billion Word Benchmark's files have this line, which is no word; bilm-tf passes it over.
NO_WORD = "!!!MAXTERMID"


class WordVocabulary:
    """
    Words by falling frequency, with `<S>`, `</S>` and `<UNK>` among them; a word's id is its line
    in the file.

    # Parameters

    words : `Sequence[str]`
        All words. The three specials may stand anywhere; `from_counts` has them first.
    source : `str`, optional (default = `"vocabulary"`)
        What to call it in an error: the file's name.

    # Raises

    `ValueError`
        If one of the specials is missing, or a word stands twice.
    """

    def __init__(self, words: Sequence[str], source: str = "vocabulary") -> None:
        self.words = list(words)
        self.ids = {word: index for index, word in enumerate(self.words)}
        missing = [word for word in SPECIAL_WORDS if word not in self.ids]
        if missing:
            begin = [word[:50] for word in words[:3]]
            raise ValueError(
                f"{source} begins with {begin} and has no {' and no '.join(missing)}, expected the "
                f"lines {list(SPECIAL_WORDS)}, in any order"
            )
        if len(self.ids) != len(self.words):
            seen: set[str] = set()
            for number, word in enumerate(self.words, start=1):
                if word in seen:
                    raise ValueError(f"{source}:{number}: the word {word[:50]!r} stands here again")
                seen.add(word)
        self.unknown_id = self.ids[UNKNOWN]

    def __len__(self) -> int:
        return len(self.words)

    @property
    def digest(self) -> str:
        """Of the words in their order."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()

    def id(self, word: str) -> int:
        """Its line, or that of `<UNK>`."""
        return self.ids.get(word, self.unknown_id)

    @classmethod
    def from_file(cls, path: str | Path) -> "WordVocabulary":
        """
        Reads a vocabulary file: UTF-8, one word a line.

        # Raises

        `FileNotFoundError`
            If there is no such file.
        `ValueError`
            If it is not such a vocabulary; the text names the file and, where there is one, the
            line.
        """
        if not Path(path).is_file():  # a FIFO would wait for ever
            raise FileNotFoundError(f"there is no vocabulary file {path}")
        content = Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n")
        words = []
        for number, line in enumerate(content.split(b"\n"), start=1):
            try:
                word = line.removesuffix(b"\r").decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path} is not UTF-8 on line {number} ({error.reason}), expected a word a line"
                ) from error
            if content and (not word or any(blank in word for blank in " \t\r\v\f")):
                raise ValueError(
                    f"{path}:{number}: {word[:50]!r} is empty or holds white space, expected one "
                    "word"
                )
            words.append(word)
        return cls([word for word in words if word != NO_WORD], source=str(path))

    def save(self, path: str | Path) -> None:
        """
        Writes the file that `from_file` reads; an existing one is replaced when the new is whole.
        """
        with whole_file(path) as aside:
            aside.write_text("\n".join(self.words) + "\n", encoding="utf-8")

    @classmethod
    def from_counts(
        cls, counts: Counter, min_count: int = 1, max_size: int | None = None
    ) -> "WordVocabulary":
        """
        # Parameters

        counts : `Counter`
            Word -> occurrences.
        min_count : `int`, optional (default = `1`)
            Rarer words become `<UNK>`.
        max_size : `int | None`, optional (default = `None`)
            At most so many words, specials included.

        # Raises

        `ValueError`
            See `check_limits`.
        """
        check_limits(min_count, max_size)
        frequent = (
            (-count, word)
            for word, count in counts.items()
            if count >= min_count and word not in SPECIAL_WORDS
        )
        most = None if max_size is None else max_size - len(SPECIAL_WORDS)
        return cls([*SPECIAL_WORDS, *(word for _, word in sorted(frequent)[:most])])


def check_limits(min_count: int, max_size: int | None) -> None:
    """
    # Raises

    `ValueError`
        If a count is less than 1, or there is no room for the three specials.
    """
    for name, number, least in (
        ("min_count", min_count, 1),
        ("max_size", max_size, len(SPECIAL_WORDS)),
    ):
        if number is not None and number < least:
            raise ValueError(f"{name} is {number}, expected {least} or more")


def read_sentences(path: str | Path) -> Iterator[list[str]]:
    """
    The sentences of a text file, one a line, tokens separated by white space.

    # Raises

    `ValueError`
        If a line is not UTF-8; the text names file and line.
    """
    for _, line in read_lines(path):
        if tokens := line.split():
            yield tokens


def find_text_files(pattern: str | Path) -> list[Path]:
    """
    The files that a path or glob pattern (`**` for any depth) names, sorted.

    # Parameters

    pattern : `str | Path`
        A file's path, or a pattern.

    # Raises

    `FileNotFoundError`
        If there is none.
    """
    names = sorted(glob.glob(str(pattern), recursive=True))  # noqa: PTH207 (absolute patterns too)
    # A file whose own name looks like a pattern.
    paths = [Path(name) for name in names or [str(pattern)] if Path(name).is_file()]
    if not paths:
        raise FileNotFoundError(f"there is no text file {pattern}, expected a path or a glob")
    return paths
