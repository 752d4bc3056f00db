"""Vectors of the tokens seen last, so that a frozen char-CNN computes a token once."""

import threading
from collections.abc import Callable

import torch


class TokenCache:
    """
    Least recently used goes first.

    # Parameters

    dim : `int`
        Width of a vector.
    capacity : `int`
        Tokens held, at least 1.
    """

    def __init__(self, dim: int, capacity: int) -> None:
        self._capacity = capacity
        with torch.inference_mode(False):  # a cache made there is written to elsewhere too
            self._table = torch.empty(capacity, dim, dtype=torch.float32, device="cpu")
        # By the token's characters, the least recently used first.
        self._slots: dict[bytes, int] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._slots)

    def vectors(
        self, character_ids: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """
        # Parameters

        character_ids : `torch.Tensor`
            Tokens, shape `(num_rows, num_characters)`, on the CPU.
        compute : `Callable[[torch.Tensor], torch.Tensor]`
            From such rows to vectors; called once, with each of those that are not here, if any.

        # Returns

        `torch.Tensor`
            Float32, shape `(num_rows, dim)`.
        """
        with self._lock:
            return self._vectors_of(character_ids, compute)

    def _vectors_of(
        self, character_ids: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        tokens = _in_bytes(character_ids)
        slots = [self._touch(token) for token in tokens]
        vectors = self._table[slots]  # of unknown ones whatever is there, to be overwritten
        unknown = [row for row, slot in enumerate(slots) if slot < 0]
        if unknown:
            # Each once: which row, and which of those that are computed.
            rows = {tokens[row]: row for row in unknown}
            numbers = {token: number for number, token in enumerate(rows)}
            computed = compute(character_ids[list(rows.values())])
            vectors[unknown] = computed[[numbers[tokens[row]] for row in unknown]]
            kept = list(rows)[-self._capacity :]
            self._table[[self._place(token) for token in kept]] = computed[-len(kept) :]
        return vectors

    def _touch(self, token: bytes) -> int:
        slot = self._slots.pop(token, -1)
        if slot >= 0:
            self._slots[token] = slot
        return slot

    def _place(self, token: bytes) -> int:
        """The slot of a token to be stored: a free one, or the oldest's."""
        if len(self._slots) < self._capacity:
            slot = len(self._slots)
        else:
            slot = self._slots.pop(next(iter(self._slots)))
        self._slots[token] = slot
        return slot


def _in_bytes(character_ids: torch.Tensor) -> list[bytes]:
    """Each token's characters."""
    ids = character_ids.to(torch.int32).numpy()
    size = ids.shape[1] * ids.itemsize
    together = ids.tobytes()
    return [together[start : start + size] for start in range(0, len(together), size)]
