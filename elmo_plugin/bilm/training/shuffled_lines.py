"""The lines of several text files together, in a random order."""

import random
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

from elmo_plugin.bilm.files.text import read_lines


def shuffled_lines(paths: Sequence[str | Path], seed: str) -> Iterator[tuple[str, int, str]]:
    """
    Every line that is not blank once, the files' lines among each other.

    Held in memory: the text as UTF-8 in one piece and 32 bytes a line, until the last one is taken.

    # Parameters

    paths : `Sequence[Union[str, Path]]`
        Text files.
    seed : `str`
        Gives the order; for a single file it depends on nothing but this and the number of lines.

    # Returns

    `Iterator[tuple[str, int, str]]`
        File, line number from 1, and the line.

    # Raises

    `ValueError`
        See `read_lines`.
    """
    text, starts = bytearray(), array("q", [0])
    files, numbers = array("q"), array("q")
    for file, path in enumerate(paths):
        for number, line in read_lines(path):
            if not line.strip():
                continue
            text += line.encode("utf-8")
            starts.append(len(text))
            files.append(file)
            numbers.append(number)
    order = array("q", range(len(numbers)))
    random.Random(seed).shuffle(order)
    for index in order:
        line = text[starts[index] : starts[index + 1]].decode("utf-8")
        yield str(paths[files[index]]), numbers[index], line
