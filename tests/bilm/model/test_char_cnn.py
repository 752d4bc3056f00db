import pytest
import torch

from elmo_plugin.bilm.kernels import reference, tuning
from elmo_plugin.bilm.model.char_cnn import CharCnn
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.model.options import ACTIVATIONS, ElmoOptions
from tests.tiny_bilm import random_bilm

TOKENS = ["a", "bcd", "", "a", "<S>", "long" * 20, "naïve", "x" * 43, "x" * 44, "x" * 48, "a"]


def plain(cnn, ids):
    return reference.token_layer(ids, cnn.weights)


def test_by_hand():
    """One filter of width 2 over words of at most 4 ids; no highway, no projection."""
    cnn = CharCnn(ElmoOptions(1, 1, 1, char_embedding_dim=1, filters=((2, 1),), num_highways=0))
    assert cnn.projection is None
    with torch.no_grad():
        cnn.char_embedding[:, 0] = torch.arange(262.0) / 100
        cnn.char_conv_0.weight.copy_(torch.tensor([[[1.0, -2.0]]]))
        cnn.char_conv_0.bias.fill_(0.5)
    ids = torch.tensor([[259, 98, 260, 261], [259, 260, 261, 261]])
    # Windows of the first row: 2.59 - 1.96, 0.98 - 5.2, 2.6 - 5.22; of the second the best is
    # 2.59 - 5.2, and relu makes it 0.
    expected = torch.tensor([[2.59 - 1.96 + 0.5], [0.0]])
    torch.testing.assert_close(cnn(ids), expected)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("filters", [((1, 3), (2, 4), (4, 5)), ((7, 6),), ((3, 2), (1, 2))])
@pytest.mark.parametrize("num_highways", [0, 2])
def test_distinct_tokens_and_fewer_windows_give_the_definition(activation, filters, num_highways):
    bilm = random_bilm(activation=activation, filters=filters, num_highways=num_highways).double()
    cnn = bilm.char_cnn
    for tokens in (TOKENS, TOKENS[:1], TOKENS[:5], ["x" * 43], ["", ""]):
        ids = batch_to_ids([tokens])[0]
        torch.testing.assert_close(cnn(ids), plain(cnn, ids), atol=1e-12, rtol=1e-10)
        with torch.no_grad():  # nothing remembered, prepacked weights
            cnn.forget_derived()
            torch.testing.assert_close(cnn(ids), plain(cnn, ids), atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("frozen", [True, False])
def test_many_tokens_a_part_at_a_time(operators, frozen, monkeypatch):
    """Their vectors come in the order of the tokens."""
    monkeypatch.setattr(tuning, "TOKENS_AT_ONCE_IN_LIBRARY", 3)
    monkeypatch.setattr(tuning, "TOKENS_AT_ONCE" if frozen else "TRAINED_TOKENS_AT_ONCE", 3)
    cnn = random_bilm().char_cnn.requires_grad_(not frozen)
    ids = batch_to_ids([TOKENS])[0]
    vectors = cnn(ids)
    assert vectors.requires_grad is not frozen
    torch.testing.assert_close(vectors, plain(cnn, ids), atol=1e-5, rtol=1e-5)


def test_the_padding_tokens_row_is_zero():
    cnn = CharCnn(ElmoOptions(2, 1, 1, char_embedding_dim=4, filters=((1, 3),), num_highways=1))
    assert not cnn.char_embedding[0].any()
    assert cnn.char_embedding[1:].abs().max() <= 1


def test_no_rows():
    cnn = random_bilm().char_cnn
    assert cnn(torch.zeros(0, 50, dtype=torch.long)).shape == (0, 6)


def test_fewer_characters_than_the_widest_filter():
    cnn = random_bilm(filters=((1, 2), (5, 2)))._token_embedder
    with pytest.raises(ValueError, match="tokens have 4 character ids, expected at least 5, the"):
        cnn(torch.ones(2, 4, dtype=torch.long))
    assert cnn(torch.ones(2, 5, dtype=torch.long)).shape == (2, 6)
