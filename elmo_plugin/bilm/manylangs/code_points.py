"""
Tokens to code points, which need no dictionary: a model's own is looked up by its token layer.

A token is its Unicode code points, each raised by 1, between two marks and filled up to
`num_characters`; 0 is left for padding *tokens*. The marks lie above all code points, so that
bytes' ids (`model/characters.py`) and these are never taken for each other.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy
import torch

from elmo_plugin.bilm.model import characters

LAST_CODE_POINT = 0x10FFFF
PADDING, BEGIN_OF_WORD, END_OF_WORD, BEGIN, END = range(LAST_CODE_POINT + 2, LAST_CODE_POINT + 7)
BEGIN_OF_SENTENCE = "<bos>"
END_OF_SENTENCE = "<eos>"
SENTENCE_MARKS = {BEGIN_OF_SENTENCE: BEGIN, END_OF_SENTENCE: END}


@lru_cache(maxsize=1 << 17)
def token_row(token: str, num_characters: int = 50) -> numpy.ndarray:
    """
    One token's row of code points, kept for the next time; do not write into it.

    # Parameters

    token : `str`
        Any text. `<bos>` and `<eos>` give the sentence boundaries' rows. Code points past
        `num_characters - 2` are cut.
    num_characters : `int`, optional (default = `50`)
        Length of the row.

    # Returns

    `numpy.ndarray`
        Int32, `num_characters` ids.
    """
    inner = [ord(character) + 1 for character in token[: num_characters - 2]]
    if token in SENTENCE_MARKS:
        inner = [SENTENCE_MARKS[token]]
    row = numpy.full(num_characters, PADDING, dtype=numpy.int32)
    row[: len(inner) + 2] = [BEGIN_OF_WORD, *inner, END_OF_WORD]
    row.setflags(write=False)
    return row


def token_of(row: numpy.ndarray) -> str:
    """The token, cut, that has this row."""
    inner = row[1 : 1 + int(numpy.argmax(row[1:] == END_OF_WORD))]
    if len(inner) == 1 and inner[0] > LAST_CODE_POINT:
        return BEGIN_OF_SENTENCE if inner[0] == BEGIN else END_OF_SENTENCE
    return (inner - 1).astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")


def batch_to_ids(batch: Sequence[Sequence[str]], num_characters: int = 50) -> torch.Tensor:
    """
    Code points of a batch of tokenized sentences, padded on the right: what a biLM of
    ELMoForManyLangs takes.

    # Returns

    `torch.Tensor`
        Int64, shape `(batch_size, num_tokens, num_characters)`; 0 = padding token.
    """
    return characters.batch_to_ids(batch, num_characters, token_row)
