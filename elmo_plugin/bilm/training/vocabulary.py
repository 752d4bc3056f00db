"""The words a biLM predicts."""

import glob
import heapq
from collections import Counter
from pathlib import Path
from typing import Iterable, Iterator, Optional, Sequence, Union

from elmo_plugin.bilm.files.text import read_lines
from elmo_plugin.bilm.files.whole_file import whole_file
from elmo_plugin.bilm.model.characters import BEGIN_OF_SENTENCE, END_OF_SENTENCE

UNKNOWN = "<UNK>"
# bilm-tf's vocabulary files begin with these, in this order (bilm/data.py at 7cffee2).
SPECIAL_WORDS = (BEGIN_OF_SENTENCE, END_OF_SENTENCE, UNKNOWN)


class WordVocabulary:
    """
    Words by falling frequency, after `<S>`, `</S>` and `<UNK>`; a word's id is its line in the
    file.

    # Parameters

    words : `Sequence[str]`
        All words, the three specials first.
    source : `str`, optional (default = `"vocabulary"`)
        What to call it in an error: the file's name.

    # Raises

    `ValueError`
        If the specials are not the first three words, or a word stands twice.
    """

    def __init__(self, words: Sequence[str], source: str = "vocabulary") -> None:
        if tuple(words[:3]) != SPECIAL_WORDS:
            raise ValueError(
                f"{source} begins with {list(words[:3])}, expected the lines {list(SPECIAL_WORDS)}"
            )
        self.words = list(words)
        self.ids = {word: index for index, word in enumerate(self.words)}
        if len(self.ids) != len(self.words):
            seen: set[str] = set()
            for number, word in enumerate(self.words, start=1):
                if word in seen:
                    raise ValueError(f"{source}:{number}: the word {word!r} stands here again")
                seen.add(word)
        self.unknown_id = self.ids[UNKNOWN]

    def __len__(self) -> int:
        return len(self.words)

    def id(self, word: str) -> int:
        """Its line, or that of `<UNK>`."""
        return self.ids.get(word, self.unknown_id)

    @classmethod
    def from_file(cls, path: Union[str, Path]) -> "WordVocabulary":
        """Reads a vocabulary file: UTF-8, one word a line."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path} is not UTF-8 ({error.reason}), expected a word a line"
            ) from error
        return cls(text.removesuffix("\n").split("\n"), source=str(path))

    def save(self, path: Union[str, Path]) -> None:
        """
        Writes the file that `from_file` reads; an existing one is replaced when the new is whole.
        """
        with whole_file(path) as aside:
            aside.write_text("\n".join(self.words) + "\n", encoding="utf-8")

    @classmethod
    def from_counts(
        cls, counts: Counter, min_count: int = 1, max_size: Optional[int] = None
    ) -> "WordVocabulary":
        """
        # Parameters

        counts : `Counter`
            Word -> occurrences.
        min_count : `int`, optional (default = `1`)
            Rarer words become `<UNK>`.
        max_size : `Optional[int]`, optional (default = `None`)
            At most so many words, specials included.
        """
        frequent = (
            (-count, word)
            for word, count in counts.items()
            if count >= min_count and word not in SPECIAL_WORDS
        )
        kept = (
            sorted(frequent)
            if max_size is None
            else heapq.nsmallest(max(0, max_size - len(SPECIAL_WORDS)), frequent)
        )
        return cls([*SPECIAL_WORDS, *(word for _, word in kept)])


def count_words(paths: Iterable[Union[str, Path]]) -> Counter:
    """Occurrences of each white-space separated token in text files of one sentence a line."""
    counts: Counter = Counter()
    for path in paths:
        for tokens in read_sentences(path):
            counts.update(tokens)
    return counts


def read_sentences(path: Union[str, Path]) -> Iterator[list[str]]:
    """
    The sentences of a text file, one a line, tokens separated by white space.

    # Raises

    `ValueError`
        If a line is not UTF-8; the text names file and line.
    """
    for _, line in read_lines(path):
        if tokens := line.split():
            yield tokens


def count_targets(paths: Iterable[Union[str, Path]]) -> int:
    """What one pass over text files has to predict: their tokens, and the end of each sentence."""
    return sum(len(tokens) + 1 for path in paths for tokens in read_sentences(path))


def find_text_files(pattern: Union[str, Path]) -> list[Path]:
    """
    The files that a path or glob pattern (`**` for any depth) names, sorted.

    # Parameters

    pattern : `Union[str, Path]`
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
