"""
Tokens to character ids, as bilm-tf's `UnicodeCharsVocabulary` gives them.

A token is its UTF-8 bytes between a begin-of-word and an end-of-word mark, filled up to
`num_characters` with a padding mark; every id is then raised by 1, so that 0 is free for padding
*tokens* (https://github.com/allenai/bilm-tf/blob/7cffee2/bilm/data.py). Every special id lives
here.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy
import torch

BEGIN_OF_SENTENCE_CHARACTER = 256
END_OF_SENTENCE_CHARACTER = 257
BEGIN_OF_WORD_CHARACTER = 258
END_OF_WORD_CHARACTER = 259
PADDING_CHARACTER = 260

# Rows of the weight file's character table: 256 bytes and the five marks above, before the +1.
NUM_CHARACTER_EMBEDDINGS = 261
# The padding mark as it stands in a row of ids, after the +1.
PADDING_CHARACTER_ID = PADDING_CHARACTER + 1

BEGIN_OF_SENTENCE = "<S>"
END_OF_SENTENCE = "</S>"
SENTENCE_MARKS = {
    BEGIN_OF_SENTENCE: BEGIN_OF_SENTENCE_CHARACTER,
    END_OF_SENTENCE: END_OF_SENTENCE_CHARACTER,
}


def token_to_ids(
    token: str, num_characters: int = 50, tokens_to_add: dict[str, int] | None = None
) -> list[int]:
    """
    One token's row of character ids.

    # Parameters

    token : `str`
        Any text. `<S>` and `</S>` give the sentence boundaries' rows. Bytes past
        `num_characters - 2` are cut, as the released models saw it (this may cut a character in
        two); lone surrogates, which UTF-8 cannot hold, are left out.
    num_characters : `int`, optional (default = `50`)
        Length of the row.
    tokens_to_add : `Optional[dict[str, int]]`, optional (default = `None`)
        Tokens that stand for a single character id of their own (before the +1).

    # Returns

    `list[int]`
        `num_characters` ids from 1 to 261.
    """
    single = (tokens_to_add or {}).get(token)
    if single is None:
        single = SENTENCE_MARKS.get(token)
    if single is not None:
        inner = [single]
    else:
        inner = list(token.encode("utf-8", "ignore")[: num_characters - 2])
    row = [BEGIN_OF_WORD_CHARACTER, *inner, END_OF_WORD_CHARACTER]
    row += [PADDING_CHARACTER] * (num_characters - len(row))
    return [character + 1 for character in row]


@lru_cache(maxsize=1 << 17)
def token_row(token: str, num_characters: int = 50) -> numpy.ndarray:
    """`token_to_ids` as an int16 array, kept for the next time; do not write into it."""
    row = numpy.array(token_to_ids(token, num_characters), dtype=numpy.int16)
    row.setflags(write=False)
    return row


def batch_to_ids(
    batch: Sequence[Sequence[str]],
    num_characters: int = 50,
    row_of: Callable[[str, int], numpy.ndarray] = token_row,
) -> torch.Tensor:
    """
    Character ids of a batch of tokenized sentences, padded on the right.

    # Returns

    `torch.Tensor`
        Int64, shape `(batch_size, num_tokens, num_characters)`; 0 = padding token.
    """
    num_tokens = max((len(sentence) for sentence in batch), default=0)
    ids = numpy.zeros((len(batch), num_tokens, num_characters), dtype=numpy.int64)
    for row, sentence in zip(ids, batch):
        for position, token in enumerate(sentence):
            row[position] = row_of(token, num_characters)
    return torch.from_numpy(ids)
