"""Words of text, counted: in memory, or with more distinct words than fit there."""

import heapq
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from elmo_plugin.bilm.training.vocabulary import WordVocabulary, check_limits, read_sentences


def count_targets(paths: Iterable[str | Path]) -> int:
    """What one pass over text files has to predict: their tokens, and the end of each sentence."""
    return sum(len(tokens) + 1 for path in paths for tokens in read_sentences(path))


def vocabulary_of(
    paths: Iterable[str | Path],
    min_count: int = 1,
    max_size: int | None = None,
    words_in_memory: int = 10_000_000,
) -> WordVocabulary:
    """
    The vocabulary of text files; memory is bounded by `words_in_memory` and by what is kept.

    # Parameters

    paths : `Iterable[str | Path]`
        Text files, one tokenized sentence a line.
    min_count, max_size
        See `WordVocabulary.from_counts`.
    words_in_memory : `int`, optional (default = `10000000`)
        Distinct words to count before their counts are written, sorted, to a temporary file.

    # Returns

    `WordVocabulary`
        The same for any `words_in_memory`.

    # Raises

    `ValueError`
        If a number is less than there can be, or a line is not UTF-8.
    """
    check_limits(min_count, max_size)
    if words_in_memory < 1:
        raise ValueError(f"words_in_memory is {words_in_memory}, expected 1 or more")
    with tempfile.TemporaryDirectory() as folder:
        runs: list[Path] = []
        counts: Counter = Counter()
        for path in paths:
            for tokens in read_sentences(path):
                counts.update(tokens)
                if len(counts) >= words_in_memory:
                    runs.append(Path(folder) / str(len(runs)))
                    _write(counts, runs[-1])
                    counts = Counter()
        if not runs:
            return WordVocabulary.from_counts(counts, min_count, max_size)
        merged = heapq.merge(sorted(counts.items()), *map(_read, runs))
        totals = (
            (word, sum(count for _, count in group))
            for word, group in itertools.groupby(merged, key=lambda pair: pair[0])
        )
        frequent: Counter = Counter()
        for word, count in totals:
            if count >= min_count:
                frequent[word] = count
                if max_size is not None and len(frequent) >= 2 * max_size + 1000:
                    frequent = Counter(dict(_most_frequent(frequent, max_size)))
        return WordVocabulary.from_counts(frequent, min_count, max_size)


def _most_frequent(counts: Counter, number: int) -> Sequence[tuple[str, int]]:
    return heapq.nsmallest(number, counts.items(), key=lambda pair: (-pair[1], pair[0]))


def _write(counts: Counter, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        # A word holds no white space.
        file.writelines(f"{word} {count}\n" for word, count in sorted(counts.items()))


def _read(path: Path) -> Iterator[tuple[str, int]]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for word, count in (line.split(" ") for line in file):
            yield word, int(count)
