"""
Convert tokens to rows of Unicode code points, the input of an ELMoForManyLangs model.

A row has a begin-of-word mark, the token's code points (raised by 1), an end-of-word mark, and
padding; zeros are a padding token. Marks are larger than all code points, to tell rows of bytes
(`model/characters.py`) apart.
"""

from functools import lru_cache

import numpy

LAST_CODE_POINT = 0x10FFFF
PADDING, BEGIN_OF_WORD, END_OF_WORD, BEGIN, END = range(LAST_CODE_POINT + 2, LAST_CODE_POINT + 7)
BEGIN_OF_SENTENCE = "<bos>"
END_OF_SENTENCE = "<eos>"
SENTENCE_MARKS = {BEGIN_OF_SENTENCE: BEGIN, END_OF_SENTENCE: END}


@lru_cache(maxsize=1 << 17)
def token_row(token: str, num_characters: int = 50) -> numpy.ndarray:
    """
    Return the code points of a token, truncated to `num_characters - 2`, as a row, int32, shape
    `(num_characters,)`, which is cached and read-only. `<bos>` and `<eos>` are the boundaries.
    """
    inner = [ord(character) + 1 for character in token[: num_characters - 2]]
    if token in SENTENCE_MARKS:
        inner = [SENTENCE_MARKS[token]]
    row = numpy.full(num_characters, PADDING, dtype=numpy.int32)
    row[: len(inner) + 2] = [BEGIN_OF_WORD, *inner, END_OF_WORD]
    row.setflags(write=False)
    return row


def token_of(row: numpy.ndarray) -> str:
    """Convert a row from `token_row` back to its token; a long token stays truncated."""
    inner = row[1 : 1 + int(numpy.argmax(row[1:] == END_OF_WORD))]
    if len(inner) == 1 and inner[0] > LAST_CODE_POINT:
        return BEGIN_OF_SENTENCE if inner[0] == BEGIN else END_OF_SENTENCE
    return (inner - 1).astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
