"""Read sentences from lines of text, and group them into batches."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from elmo_plugin.bilm.files.text import quoted

# Sentences are sorted by length within windows of about this many full batches.
WINDOW_BATCHES = 16
# Surrogates except U+DC80 to U+DCFF, which `surrogateescape` uses for bad bytes.
NOT_FROM_BYTES = re.compile("[\ud800-\udc7f\udd00-\udfff]")


class Sentence(NamedTuple):
    """
    A line of text, stripped of outer white space, and its tokens (none for a blank line). `number`
    is that of the line in the input `file`, from 1.
    """

    text: str
    tokens: list[str]
    file: str = ""
    number: int = 0

    @property
    def num_steps(self) -> int:
        """Number of tokens, including the two sentence boundaries."""
        return len(self.tokens) + 2


def read_sentences(
    lines: Iterable[str], replace_bad_utf8: bool = False, name: str = "input"
) -> Iterator[Sentence]:
    """
    Yield each line of text as a `Sentence`, with tokens split at white space.

    Bytes that are not UTF-8, decoded with `surrogateescape`, raise a `ValueError` with the input's
    `name` and the line number, from 1; with `replace_bad_utf8` they become U+FFFD.
    """
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, str):
            raise ValueError(f"{name}, line {number} is {quoted(line)}, expected a string")
        text = line.strip()
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            if not replace_bad_utf8:
                bad, code_point = text[error.start], ord(text[error.start])
                found = (
                    f"the code point U+{code_point:04X}"
                    if NOT_FROM_BYTES.match(bad)
                    else f"the byte 0x{code_point & 0xFF:02x}"
                )
                raise ValueError(
                    f"{name}, line {number}: {found} is not UTF-8; expected UTF-8 text, or "
                    "--replace-bad-utf8"
                ) from error
            text = NOT_FROM_BYTES.sub("\ufffd", text)
            text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        yield Sentence(text, text.split(), name, number)


def windows(
    sentences: Iterable[Sentence], max_tokens: int, carried_batch_size: int | None = None
) -> Iterator[list[Sentence]]:
    """
    Divide a stream of sentences into windows of about `WINDOW_BATCHES * max_tokens` tokens, which
    `batches` sorts by length, so that there is little padding.

    If LSTM states are carried from batch to batch (`state="carry"`), sentences must stay in order:
    each window is a single batch of `carried_batch_size` non-blank sentences.
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
    Divide a window of sentences into batches of similar lengths, as lists of indices. The longest
    come first, so that a run that needs too much memory fails at once.

    `num_steps` is the number of tokens of each sentence, boundaries included. A batch has at most
    `max_tokens` with padding, and `batch_size` sentences; a longer sentence is a batch by itself.
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
