import copy

import pytest
import torch

from elmo_plugin.bilm.kernels import fast, token_cache
from elmo_plugin.bilm.kernels.token_cache import (
    TokenCache,
    _odd_numbers,
    distinct_rows,
    row_hashes,
)
from elmo_plugin.bilm.model.characters import batch_to_ids
from tests.tiny_bilm import cached_names, random_bilm


class Compute:
    """Vectors that say which token they are of, and how many were asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, ids):
        self.asked.append(len(ids))
        return ids[:, :2].float()


def rows(*numbers):
    return torch.tensor([[number, number + 1, 7] for number in numbers])


def test_each_token_is_computed_once_while_it_is_held():
    cache, compute = TokenCache(2, capacity=3), Compute()
    for wanted, computed in [
        ((1, 2), 2),
        ((2, 1), 0),
        ((3, 1), 1),  # 2 is now the oldest,
        ((4,), 1),  # and makes room.
        ((1, 3, 4), 0),
        ((2,), 1),
    ]:
        compute.asked.clear()
        found = cache.vectors(rows(*wanted), compute)
        assert torch.equal(found, rows(*wanted)[:, :2].float())
        assert sum(compute.asked) == computed
        assert len(cache) <= 3


def test_more_tokens_than_it_holds_and_none():
    cache, compute = TokenCache(2, capacity=2), Compute()
    for wanted in ((1, 2, 3, 4, 5), (5, 1, 4), ()):
        batch = rows(*wanted).reshape(-1, 3)
        assert torch.equal(cache.vectors(batch, compute), batch[:, :2].float())
    assert len(cache) == 2


@pytest.mark.parametrize("method", ["_touch", "_place"])
def test_an_interrupted_call_leaves_no_wrong_vector(method, monkeypatch):
    cache, compute = TokenCache(2, capacity=4), Compute()
    cache.vectors(rows(1, 2), compute)
    original = getattr(cache, method)

    def interrupted(token):
        original(token)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cache, method, interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.vectors(rows(1, 3), compute)
    assert torch.equal(cache.vectors(rows(3, 1, 2), compute), rows(3, 1, 2)[:, :2].float())


def test_a_token_that_comes_twice_is_computed_once():
    cache, compute = TokenCache(2, capacity=4), Compute()
    batch = rows(2, 1, 2, 1, 3)
    assert torch.equal(cache.vectors(batch, compute), batch[:, :2].float())
    assert compute.asked == [3]


def test_tokens_are_told_apart_by_every_character():
    """Of more than 16 bits, too, and where rows lie apart."""
    cache, compute = TokenCache(2, capacity=4), Compute()
    wide = torch.tensor([[1, 0, 0, 0], [1 + (1 << 16), 0, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]])
    for batch in (wide, wide[::2], wide[:, :3]):
        assert torch.equal(cache.vectors(batch, compute), batch[:, :2].float())
    assert compute.asked == [4, 3]


def frozen_cnn():
    cnn = random_bilm().char_cnn
    return cnn.requires_grad_(False)


TOKENS = batch_to_ids([["a", "cat", "a", "sat", "Überraschung", "", "<S>", "long" * 20]])[0]


def test_a_frozen_char_cnn_computes_a_token_once(monkeypatch):
    cnn = frozen_cnn()
    first = cnn(TOKENS)
    asked = []
    encode = fast._encode_frozen
    monkeypatch.setattr(
        fast, "_encode_frozen", lambda ids, *to: asked.append(len(ids)) or encode(ids, *to)
    )
    more = batch_to_ids([["dog", "cat", "a"]])[0]
    torch.testing.assert_close(cnn(more)[1:], first[[1, 0]], rtol=0, atol=0)
    assert asked == [1]


def token_vectors_kept(cnn):
    return fast.TOKEN_VECTORS in [name for name, *_ in cached_names(cnn)]


def test_nothing_is_held_where_gradients_are_wanted_nor_in_copies():
    cnn = frozen_cnn().requires_grad_()
    assert cnn(TOKENS).requires_grad
    assert not token_vectors_kept(cnn)
    cnn.requires_grad_(False)(TOKENS)
    assert token_vectors_kept(cnn)
    assert not token_vectors_kept(copy.deepcopy(cnn))
    assert not token_vectors_kept(cnn.double())
    assert cnn(TOKENS).dtype == torch.float64


# --- distinct tokens of a batch ------------------------------------------------------------------


def test_distinct_rows_by_hand():
    rows = torch.tensor([[1, 2], [3, 4], [1, 2], [2, 1], [3, 4]])
    distinct, inverse = distinct_rows(rows)
    assert torch.equal(distinct[inverse], rows)
    assert sorted(distinct.tolist()) == [[1, 2], [2, 1], [3, 4]]


def test_distinct_rows_of_colliding_hashes(monkeypatch):
    """With a hash that tells nothing apart the answer is still right."""
    monkeypatch.setattr(token_cache, "row_hashes", lambda rows: rows[:, 0] * 0)
    rows = TOKENS
    distinct, inverse = distinct_rows(rows)
    assert torch.equal(distinct[inverse], rows)
    assert len(distinct) == len(set(map(tuple, rows.tolist())))


def test_hashes_of_real_tokens_differ():
    ids = batch_to_ids([[f"{a}{b}" for a in range(100) for b in "abcdefghij"]])[0]
    assert len(row_hashes(ids).unique()) == 1000


def test_hashes_do_not_depend_on_the_default_device():
    _odd_numbers.cache_clear()
    ids = torch.arange(10, device="cpu").view(2, 5)
    with torch.device("meta"):
        inside = row_hashes(ids)
    assert torch.equal(row_hashes(ids), inside)
