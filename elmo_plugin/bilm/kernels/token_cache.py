"""Compute each token's vector once: per batch or, with frozen weights, across all batches."""

import functools
from collections.abc import Callable
from contextlib import ExitStack

import torch

from elmo_plugin.bilm.kernels.fork_safe_lock import fork_safe_lock


class TokenCache:
    """
    Cache of vectors, of width `dim`, for up to `capacity` tokens (at least 1). The least recently
    used ones are dropped.
    """

    def __init__(self, dim: int, capacity: int) -> None:
        self._capacity = capacity
        with torch.inference_mode(False):  # the table is written to outside inference mode too
            self._table = torch.empty(capacity, dim, dtype=torch.float32, device="cpu")
        # Maps a token's bytes to its row of the table. The least recently used token comes first.
        self._slots: dict[bytes, int] = {}
        self._lock = fork_safe_lock()

    def __len__(self) -> int:
        return len(self._slots)

    def vectors(
        self, character_ids: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """
        Return the vectors of tokens, float32, shape `(num_rows, dim)`; compute and store those that
        are not in the cache. `character_ids` are on the CPU, shape `(num_rows, num_characters)`.
        `compute`, from character ids to vectors, is called at most once for the distinct new ones.
        """
        tokens = _in_bytes(character_ids)
        with self._lock, ExitStack() as on_error:
            # If the block fails or is interrupted: slots may have no vector yet.
            on_error.callback(self._slots.clear)
            slots = [self._touch(token) for token in tokens]
            vectors = self._table[slots]  # rows of new tokens are overwritten below
            unknown = [row for row, slot in enumerate(slots) if slot < 0]
            if unknown:
                # `rows`: one row where each new token occurs. `numbers`: its index in `computed`.
                rows = {tokens[row]: row for row in unknown}
                numbers = {token: number for number, token in enumerate(rows)}
                computed = compute(character_ids[list(rows.values())])
                vectors[unknown] = computed[[numbers[tokens[row]] for row in unknown]]
                kept = list(rows)[-self._capacity :]
                self._table[[self._place(token) for token in kept]] = computed[-len(kept) :]
            on_error.pop_all()
        return vectors

    def _touch(self, token: bytes) -> int:
        slot = self._slots.pop(token, -1)
        if slot >= 0:
            self._slots[token] = slot
        return slot

    def _place(self, token: bytes) -> int:
        """Return a slot for a new token: a free one, or that of the least recently used token."""
        if len(self._slots) < self._capacity:
            slot = len(self._slots)
        else:
            slot = self._slots.pop(next(iter(self._slots)))
        self._slots[token] = slot
        return slot


def _in_bytes(character_ids: torch.Tensor) -> list[bytes]:
    """Return the character ids of each token as bytes, the keys of the cache."""
    ids = character_ids.to(torch.int32).numpy()
    size = ids.shape[1] * ids.itemsize
    together = ids.tobytes()
    return [together[start : start + size] for start in range(0, len(together), size)]


def distinct_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Return the distinct rows of an int64 matrix, and the index of each row among them:
    `distinct[inverse] == rows`.

    Rows are compared by a 64-bit hash, because sorting hashes is many times faster than
    `torch.unique(dim=0)`. The result is checked; after a collision `torch.unique(dim=0)` runs.
    """
    hashes, inverse = torch.unique(row_hashes(rows), return_inverse=True)
    representative = torch.empty(len(hashes), dtype=torch.long, device=rows.device)
    representative[inverse] = torch.arange(len(rows), device=rows.device)
    distinct = rows[representative]
    if not torch.equal(distinct[inverse], rows):
        distinct, inverse = torch.unique(rows, dim=0, return_inverse=True)
    return distinct, inverse


def row_hashes(rows: torch.Tensor) -> torch.Tensor:
    """Return 64-bit hashes of an int64 matrix's rows, shape `(num_rows,)`."""
    return (rows * _odd_numbers(rows.shape[1]).to(rows.device)).sum(dim=1)


@functools.cache
def _odd_numbers(count: int) -> torch.Tensor:
    with torch.inference_mode(False):  # the numbers are used outside inference mode too
        generator = torch.Generator().manual_seed(20180215)
        drawn = torch.randint(-(2**62), 2**62, (count,), generator=generator, device="cpu")
        return drawn * 2 + 1
