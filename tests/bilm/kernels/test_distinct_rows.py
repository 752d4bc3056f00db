import torch

from elmo_plugin.bilm.kernels import token_cache as module
from elmo_plugin.bilm.kernels.token_cache import _odd_numbers, distinct_rows, row_hashes
from elmo_plugin.bilm.model.characters import batch_to_ids

TOKENS = ["a", "bcd", "", "a", "<S>", "long" * 20, "naïve", "x" * 48, "a"]


def test_distinct_rows_by_hand():
    rows = torch.tensor([[1, 2], [3, 4], [1, 2], [2, 1], [3, 4]])
    distinct, inverse = distinct_rows(rows)
    assert torch.equal(distinct[inverse], rows)
    assert sorted(distinct.tolist()) == [[1, 2], [2, 1], [3, 4]]


def test_distinct_rows_of_colliding_hashes(monkeypatch):
    """With a hash that tells nothing apart the answer is still right."""
    monkeypatch.setattr(module, "row_hashes", lambda rows: rows[:, 0] * 0)
    rows = batch_to_ids([TOKENS])[0]
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
