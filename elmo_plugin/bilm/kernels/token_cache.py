"""Vectors of the tokens seen last, so that a frozen char-CNN computes a token once."""

import threading
from collections.abc import Callable

import torch

from elmo_plugin.bilm.kernels.distinct_rows import distinct_rows, row_hashes


class TokenCache:
    """
    Least recently used goes first. Tokens are found by a 64-bit hash and told apart by their
    characters, so a collision costs a computation and never gives a wrong vector.

    # Parameters

    num_characters : `int`
        Character ids of a token.
    dim : `int`
        Width of a vector.
    capacity : `int`
        Tokens held, at least 1.
    """

    def __init__(self, num_characters: int, dim: int, capacity: int) -> None:
        self._capacity = capacity
        with torch.inference_mode(False):  # a cache made there is written to elsewhere too
            # Character ids fit 16 bits.
            self._ids = torch.empty(capacity, num_characters, dtype=torch.int16, device="cpu")
            self._table = torch.empty(capacity, dim, dtype=torch.float32, device="cpu")
        self._slots: dict[int, int] = {}  # by hash, the least recently used first
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
        touched = [self._touch(key) for key in row_hashes(character_ids).tolist()]
        slots = torch.tensor(touched, dtype=torch.long)
        known = slots >= 0
        slots.clamp_(min=0)
        known &= (self._ids[slots] == character_ids).all(dim=1)
        vectors = self._table[slots]
        unknown = (~known).nonzero().squeeze(1)
        if len(unknown):
            distinct, inverse = distinct_rows(character_ids[unknown])
            computed = compute(distinct)
            vectors[unknown] = computed[inverse]
            kept = distinct[-self._capacity :]
            places = torch.tensor([self._place(key) for key in row_hashes(kept).tolist()])
            self._ids[places] = kept.to(torch.int16)
            self._table[places] = computed[-len(kept) :]
        return vectors

    def _touch(self, key: int) -> int:
        slot = self._slots.pop(key, -1)
        if slot >= 0:
            self._slots[key] = slot
        return slot

    def _place(self, key: int) -> int:
        """The slot of a token to be stored: its own, a free one, or the oldest's."""
        if key in self._slots:
            slot = self._slots.pop(key)
        elif len(self._slots) < self._capacity:
            slot = len(self._slots)
        else:
            slot = self._slots.pop(next(iter(self._slots)))
        self._slots[key] = slot
        return slot
