"""
Conversion of tokens to character ids, as in bilm-tf's `UnicodeCharsVocabulary`
(https://github.com/allenai/bilm-tf/blob/7cffee2/bilm/data.py).

The ids of a token are a begin-of-word mark, the token's UTF-8 bytes, an end-of-word mark, and
padding marks up to `num_characters`. Each id is raised by 1, because 0 stands for padding *tokens*.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy
import torch

from elmo_plugin.bilm.model.tokens import BEGIN_OF_SENTENCE, END_OF_SENTENCE, tokenized_batch

BEGIN_OF_SENTENCE_CHARACTER = 256
END_OF_SENTENCE_CHARACTER = 257
BEGIN_OF_WORD_CHARACTER = 258
END_OF_WORD_CHARACTER = 259
PADDING_CHARACTER = 260

# Number of character embeddings in a weight file: for 256 bytes and the five marks above.
NUM_CHARACTER_EMBEDDINGS = 261
# Id of the padding mark, raised by 1 like every character id, because 0 stands for padding tokens.
PADDING_CHARACTER_ID = PADDING_CHARACTER + 1

SENTENCE_MARKS = {
    BEGIN_OF_SENTENCE: BEGIN_OF_SENTENCE_CHARACTER,
    END_OF_SENTENCE: END_OF_SENTENCE_CHARACTER,
}


def token_to_ids(
    token: str, num_characters: int = 50, tokens_to_add: dict[str, int] | None = None
) -> list[int]:
    """
    Return the `num_characters` ids of one token, from 1 to 261: a mark of its begin, its UTF-8
    bytes, a mark of its end, and padding within the token. Each is 1 more than the byte or mark,
    because 0 stands for a token that is padding.

    `<S>` and `</S>` have one id between the marks, that of a sentence boundary; so has a token in
    `tokens_to_add`, which maps it to the id before 1 is added. Bytes past `num_characters - 2` are
    cut off, even within a character, as in bilm-tf. Lone surrogates are left out.
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
    """Return `token_to_ids` as a cached, read-only int16 array."""
    row = numpy.array(token_to_ids(token, num_characters), dtype=numpy.int16)
    row.setflags(write=False)
    return row


def batch_to_ids(
    batch: Iterable[Iterable[Any]],
    num_characters: int = 50,
    row_of: Callable[[str, int], numpy.ndarray] = token_row,
) -> torch.Tensor:
    """
    Return the character ids of a batch of tokenized sentences, padded on the right.

    # Parameters

    batch : `Iterable[Iterable[Any]]`
        Tokenized sentences, see `tokenized_batch`.
    num_characters : `int`, optional (default = `50`)
        Number of ids per token. Longer tokens are truncated, see `token_to_ids`.
    row_of : `Callable[[str, int], numpy.ndarray]`, optional (default = `token_row`)
        Function that turns a token into its row of ids.

    # Returns

    `torch.Tensor`
        Int64, shape `(batch_size, num_tokens, num_characters)`; 0 = padding token.

    # Raises

    `ValueError`
        If a sentence is a string, or a token has no text; see `tokenized_batch`.
    """
    sentences = tokenized_batch(batch)
    num_tokens = max(map(len, sentences), default=0)
    ids = numpy.zeros((len(sentences), num_tokens, num_characters), dtype=numpy.int64)
    for row, sentence in zip(ids, sentences):
        for position, token in enumerate(sentence):
            row[position] = row_of(token, num_characters)
    return torch.from_numpy(ids)


def sentence_lengths(real: torch.Tensor) -> torch.Tensor:
    """
    Return the number of tokens of each sentence, int64, shape `(batch_size,)`.

    `real` is bool, shape `(batch_size, num_tokens)`, false at padding. Raise a `ValueError` if a
    token comes after padding.
    """
    late = real[:, 1:] & ~real[:, :-1]
    if late.any():
        row, position = late.nonzero()[0].tolist()
        raise ValueError(
            f"sentence {row} of the batch has a token at position {position + 1} after padding, "
            "expected padding only behind the last token"
        )
    return real.sum(dim=1)


def with_boundaries(
    ids: torch.Tensor, lengths: torch.Tensor, begin: torch.Tensor, end: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Put a boundary before and after each sentence. Return the ids or vectors, shape `(batch_size,
    num_tokens + 2, ...)`, and their bool mask, false at padding.

    `ids` have the shape `(batch_size, num_tokens, ...)`, padded on the right. `lengths` count the
    boundaries too. `begin` and `end` have the shape of one token of `ids`.
    """
    batch_size, num_tokens = ids.shape[:2]
    padded = ids.new_zeros(batch_size, num_tokens + 2, *ids.shape[2:])
    padded[:, 1:-1] = ids
    padded[:, 0] = begin.to(ids)
    padded[torch.arange(batch_size, device=ids.device), lengths - 1] = end.to(ids)
    return padded, torch.arange(num_tokens + 2, device=ids.device) < lengths.unsqueeze(1)
