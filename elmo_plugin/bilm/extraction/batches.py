"""Which sentences run together."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

# Sentences are sorted by length within this many batches' worth of tokens.
WINDOW_BATCHES = 16
# Surrogates but for U+DC80 to U+DCFF, which `surrogateescape` makes of bytes.
NO_BYTES = re.compile("[\ud800-\udc7f\udd00-\udfff]")


class Sentence(NamedTuple):
    """
    `text`: the line, without white space at its ends. `tokens`: its words, none for a blank line.
    """

    text: str
    tokens: list[str]

    @property
    def num_steps(self) -> int:
        """Its tokens and two boundaries."""
        return len(self.tokens) + 2


def read_sentences(
    lines: Iterable[str], replace_bad_utf8: bool = False, name: str = "input"
) -> Iterator[Sentence]:
    """
    # Parameters

    lines : `Iterable[str]`
        Lines of text; from a file opened with `errors="surrogateescape"`, whose bad bytes are found
        here.
    replace_bad_utf8 : `bool`, optional (default = `False`)
        Whether what is not UTF-8, bytes or a lone surrogate, becomes U+FFFD, in place of an error.
    name : `str`, optional (default = `"input"`)
        What to call the input in an error.

    # Raises

    `ValueError`
        If a line is not UTF-8; the text names the line, from 1.
    """
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            if not replace_bad_utf8:
                raise ValueError(
                    f"{name}, line {number}: {_spelled(text[error.start])} is not UTF-8; expected "
                    "UTF-8 text, or --replace-bad-utf8"
                ) from error
            text = NO_BYTES.sub("\ufffd", text)
            text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        yield Sentence(text, text.split())


def _spelled(bad: str) -> str:
    """A lone surrogate: one that stands for a byte, or one that was in the text."""
    code_point = ord(bad)
    if NO_BYTES.match(bad):
        return f"the code point U+{code_point:04X}"
    return f"the byte 0x{code_point & 0xFF:02x}"


def windows(
    sentences: Iterable[Sentence], max_tokens: int, carried_batch_size: int | None = None
) -> Iterator[list[Sentence]]:
    """
    Cuts a stream into what is sorted by length as a whole.

    # Parameters

    sentences : `Iterable[Sentence]`
        Read as they are needed.
    max_tokens : `int`
        Positions in a batch.
    carried_batch_size : `Optional[int]`, optional (default = `None`)
        Where the state is carried: a window is then one batch of this many sentences that are not
        empty.
    """
    window: list[Sentence] = []
    steps = batched = 0
    for sentence in sentences:
        window.append(sentence)
        steps += sentence.num_steps
        batched += bool(sentence.tokens)
        full = (
            steps >= WINDOW_BATCHES * max_tokens
            if carried_batch_size is None
            else batched == carried_batch_size
        )
        if full:
            yield window
            window, steps, batched = [], 0, 0
    if window:
        yield window


def batches(
    num_steps: Sequence[int], max_tokens: int, batch_size: int | None = None
) -> Iterator[list[int]]:
    """
    Cuts a window into batches of similar lengths, the longest first: what does not fit in memory
    fails at once.

    # Parameters

    num_steps : `Sequence[int]`
        Tokens of each sentence, boundaries counted.
    max_tokens : `int`
        Positions in a batch at most, padding counted. A sentence above that is a batch of its own.
    batch_size : `Optional[int]`, optional (default = `None`)
        Sentences in a batch at most.

    # Returns

    `Iterator[list[int]]`
        Places in `num_steps`.
    """
    batch: list[int] = []
    for index in sorted(range(len(num_steps)), key=lambda index: -num_steps[index]):
        too_many = batch and (len(batch) + 1) * num_steps[batch[0]] > max_tokens
        if too_many or len(batch) == batch_size:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
