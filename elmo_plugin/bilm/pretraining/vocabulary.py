"""Vocabulary of a biLM's softmax, and how its words are counted in text files."""

import glob
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from elmo_plugin.bilm.files.atomic_write import atomic_write
from elmo_plugin.bilm.files.text import read_lines
from elmo_plugin.bilm.model.tokens import BEGIN_OF_SENTENCE, END_OF_SENTENCE

UNKNOWN = "<UNK>"
# Words that a vocabulary needs, on any line, as in bilm-tf (bilm/data.py at 7cffee2).
SPECIAL_WORDS = (BEGIN_OF_SENTENCE, END_OF_SENTENCE, UNKNOWN)
# A line in the 1 Billion Word Benchmark's vocabulary that is not a word; bilm-tf skips it.
NO_WORD = "!!!MAXTERMID"


class WordVocabulary:
    """
    Words of the softmax, sorted by decreasing frequency, including `<S>`, `</S>` and `<UNK>`.

    The id of a word is its line number in the vocabulary file, from 0. `words` has the special ones
    at any position. `source` is a file name for error messages.
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
                    raise ValueError(f"{source}:{number}: the word {word[:50]!r} comes twice")
                seen.add(word)
        self.unknown_id = self.ids[UNKNOWN]

    def __len__(self) -> int:
        return len(self.words)

    @property
    def digest(self) -> str:
        """SHA-256 hash of the words in their order, in hexadecimal."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()

    def id(self, word: str) -> int:
        """Return the id of a word, or that of `<UNK>` for a word outside the vocabulary."""
        return self.ids.get(word, self.unknown_id)

    @classmethod
    def from_file(cls, path: str | Path) -> "WordVocabulary":
        """Read a vocabulary file: UTF-8, one word a line."""
        if not Path(path).is_file():  # reading a FIFO would block
            raise FileNotFoundError(f"there is no vocabulary file {path}")
        words = []
        for number, line in read_lines(path):
            word = line.removesuffix("\n").removesuffix("\r")
            if not word or any(blank in word for blank in " \t\r\v\f"):
                raise ValueError(
                    f"{path}:{number}: {word[:50]!r} is empty or holds white space, expected one "
                    "word"
                )
            words.append(word)
        return cls([word for word in words if word != NO_WORD], source=str(path))

    def save(self, path: str | Path) -> None:
        """Write a vocabulary file, atomically."""
        with atomic_write(path) as aside:
            aside.write_text("\n".join(self.words) + "\n", encoding="utf-8")

    @classmethod
    def from_counts(
        cls, counts: Counter, min_count: int = 1, max_size: int | None = None
    ) -> "WordVocabulary":
        """
        Build a vocabulary from word counts, with the special words first, of at most `max_size`
        words in all. Words that occur less often than `min_count` become `<UNK>`.
        """
        frequent = (
            (-count, word)
            for word, count in counts.items()
            if count >= min_count and word not in SPECIAL_WORDS
        )
        most = None if max_size is None else max_size - len(SPECIAL_WORDS)
        return cls([*SPECIAL_WORDS, *(word for _, word in sorted(frequent)[:most])])


def check_least(least: int, **numbers: float | None) -> None:
    """Raise a `ValueError` that names the first number not from `least` on; `None` is allowed."""
    for name, number in numbers.items():
        if number is not None and not number >= least:  # NaN is no number
            raise ValueError(f"{name} is {number}, expected at least {least}")


def check_fraction(name: str, number: float) -> None:
    """Raise a `ValueError` that names the number if it is not from 0 to 1."""
    if not 0 <= number <= 1:
        raise ValueError(f"{name} is {number}, expected a number from 0 to 1")


def read_sentences(path: str | Path) -> Iterator[list[str]]:
    """Yield the tokens of each non-blank line, which white space separates."""
    return (tokens for _, line in read_lines(path) if (tokens := line.split()))


def find_text_files(pattern: str | Path) -> list[Path]:
    """Return the files that match a path or a glob pattern (`**` for any depth), sorted."""
    if Path(pattern).is_file():  # its name may have the special characters of a glob
        return [Path(pattern)]
    names = sorted(glob.glob(str(pattern), recursive=True))  # noqa: PTH207 (absolute patterns too)
    paths = [Path(name) for name in names if Path(name).is_file()]
    if not paths:
        raise FileNotFoundError(f"there is no text file {pattern}, expected a path or a glob")
    return paths


def count_targets(paths: Iterable[str | Path]) -> int:
    """Count the words that a biLM predicts in one pass: all tokens, and each sentence's end."""
    return sum(len(tokens) + 1 for path in paths for tokens in read_sentences(path))


def count_words(paths: Iterable[str | Path]) -> Counter[str]:
    """Count each word that a biLM predicts forward in one pass, sentence ends too."""
    counts = Counter[str]()
    for path in paths:
        for tokens in read_sentences(path):
            counts.update(tokens)
            counts[END_OF_SENTENCE] += 1
    return counts


def word_counts(paths: Iterable[str | Path], words: WordVocabulary) -> list[int]:
    """
    Count how often a biLM predicts each word of a vocabulary forward in one pass over text files.
    `<S>` gets the count of `</S>`, which it has in the backward direction.
    """
    found = [0] * len(words)
    for word, count in count_words(paths).items():
        found[words.id(word)] += count
    found[words.ids[BEGIN_OF_SENTENCE]] = found[words.ids[END_OF_SENTENCE]]
    return found


def vocabulary_of(
    paths: Iterable[str | Path],
    min_count: int = 1,
    max_size: int | None = None,
    vocabulary_file: str | None = None,
) -> WordVocabulary:
    """
    Build a vocabulary from the words of text files, see `WordVocabulary.from_counts`, or read it
    from a file.
    """
    if vocabulary_file is not None:
        given = {"min_count": min_count, "max_size": max_size}
        if limits := {name: one for name, one in given.items() if one not in (None, 1)}:
            raise ValueError(
                f"vocabulary: vocabulary_file is given with {limits}, expected one of them: the "
                "file's words are taken as they are"
            )
        return WordVocabulary.from_file(vocabulary_file)
    check_least(1, min_count=min_count)
    check_least(len(SPECIAL_WORDS), max_size=max_size)
    return WordVocabulary.from_counts(count_words(paths), min_count, max_size)
