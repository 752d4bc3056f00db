import pytest
import torch
from allennlp.data.token_indexers.elmo_indexer import ELMoCharacterMapper
from allennlp.modules.elmo import batch_to_ids as stock_batch_to_ids

from elmo_plugin.bilm.model.characters import batch_to_ids, token_row, token_to_ids

ODD_TOKENS = [
    "",
    "a",
    "naïve",
    "日本語",
    "\U0001f600\U0001f468‍\U0001f469",
    "x" * 10_000,
    "é" * 10_000,  # cut after 24 of its 2-byte characters
    "ab" + "日" * 20,  # cut within a character
    "\ud800",
    "a\udfffb\ud800",
    "\0",
    "a\0b",
    " ",
    "\n",
    "<S>",
    "</S>",
    "<s>",
    "﻿",
    "@@PADDING@@",
]


def test_by_hand():
    # Bytes of the UTF-8 text between 258 and 259, 260 behind, all raised by one.
    assert token_to_ids("aé", 8) == [259, 98, 196, 170, 260, 261, 261, 261]
    assert token_to_ids("<S>", 5) == [259, 257, 260, 261, 261]
    assert token_to_ids("</S>", 5) == [259, 258, 260, 261, 261]
    assert token_to_ids("", 4) == [259, 260, 261, 261]
    assert token_to_ids("abcdef", 5) == [259, 98, 99, 100, 260]
    assert token_to_ids("\ud800a", 5) == [259, 98, 260, 261, 261]
    assert token_to_ids("a", 4, {"a": 0}) == [259, 1, 260, 261]
    assert len(token_to_ids("a")) == 50


def test_batch_by_hand():
    ids = batch_to_ids([["a", ""], ["<S>"]], 4)
    assert ids.dtype == torch.int64
    assert ids.tolist() == [
        [[259, 98, 260, 261], [259, 260, 261, 261]],
        [[259, 257, 260, 261], [0, 0, 0, 0]],
    ]
    assert batch_to_ids([]).shape == (0, 0, 50)
    assert batch_to_ids([[], []]).shape == (2, 0, 50)


@pytest.mark.parametrize("token", ODD_TOKENS, ids=lambda token: ascii(token[:20]))
def test_tokens_equal_allennlp(token):
    assert token_to_ids(token) == ELMoCharacterMapper().convert_word_to_char_ids(token)
    # Twice: the second time it comes from memory.
    assert token_row(token).tolist() == token_row(token).tolist() == token_to_ids(token)


@pytest.mark.parametrize("token", ["a", "<S>", "</S>", "b"])
def test_added_tokens_equal_allennlp(token):
    added = {"a": 7, "<S>": 1, "zero": 0}
    expected = ELMoCharacterMapper(added).convert_word_to_char_ids(token)
    assert token_to_ids(token, tokens_to_add=added) == expected


def test_batches_equal_allennlp():
    for batch in ([ODD_TOKENS], [["a"]], [["a", "b"], [], ODD_TOKENS], [ODD_TOKENS[:3], ["a"] * 9]):
        assert torch.equal(batch_to_ids(batch), stock_batch_to_ids(batch))


def test_every_id_has_a_row():
    for length in (3, 50):
        for token in ODD_TOKENS:
            row = token_to_ids(token, length)
            assert len(row) == length
            assert min(row) >= 1
            assert max(row) <= 261


def test_a_kept_row_cannot_be_spoiled():
    with pytest.raises(ValueError, match="read-only"):
        token_row("spoil")[0] = 0
    batch_to_ids([["spoil"]])[:] = 0
    assert token_row("spoil")[0] == 259
