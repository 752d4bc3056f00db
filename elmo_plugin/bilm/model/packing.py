"""
Packed rows of a batch of sentences, as in PyTorch's `PackedSequence`.

Sentences are sorted by decreasing length; the first step of all sentences is followed by the second
step of those that have one, and so on. `batch_sizes[t]` is the number of sentences that have a step
`t`.
"""

import torch

from elmo_plugin.bilm.kernels.backend import LstmState


class Packing:
    """
    Converts a padded batch of token vectors to packed rows, and packed rows back.

    `lengths` holds the number of tokens of each sentence, int64, shape `(batch_size,)`; a padded
    sentence has `num_steps` tokens. `batch_sizes` are the numbers of rows of each step.
    """

    def __init__(self, lengths: torch.Tensor, num_steps: int) -> None:
        self._shape = len(lengths), num_steps
        # Indices of the sentences by decreasing length; `None` for a single sentence.
        self._order: torch.Tensor | None = None
        if len(lengths) == 1:
            index = torch.arange(int(lengths), device=lengths.device)
            self.batch_sizes = [1] * len(index)
            self._index = {"forward": index, "backward": index.flip(0)}
            return
        self._order = lengths.argsort(descending=True, stable=True)
        lengths = lengths[self._order]
        steps = torch.arange(num_steps, device=lengths.device)
        # Shape: (num_steps, batch_size); its row-major order is the packed order.
        is_real = steps.unsqueeze(1) < lengths
        self.batch_sizes = [size for size in is_real.sum(dim=1).tolist() if size]
        step, rank = is_real.nonzero(as_tuple=True)
        start = self._order[rank] * num_steps
        # Index of each packed row in the flattened padded batch.
        self._index = {"forward": start + step, "backward": start + lengths[rank] - 1 - step}

    def pack(self, padded: torch.Tensor, direction: str) -> torch.Tensor:
        """Return the packed rows of a padded batch; `"backward"` reverses each sentence."""
        return padded.flatten(0, 1).index_select(0, self._index[direction])

    def unpack(self, **packed: torch.Tensor) -> torch.Tensor:
        """
        Convert the packed rows of one or both directions to one zero-padded batch, side by side.
        """
        # Within `torch.vmap` over some weights, only one of both may be batched.
        like = torch.cat([rows[:0] for rows in packed.values()], dim=1)
        padded, start = like.new_zeros(self._shape[0] * self._shape[1], like.shape[1]), 0
        for direction, rows in packed.items():
            part = padded[:, start : start + rows.shape[1]]
            part.index_copy_(0, self._index[direction], rows)
            start += rows.shape[1]
        return padded.unflatten(0, self._shape)

    def sort(self, state: LstmState) -> LstmState:
        """Return the state with sentences in packed order."""
        order = self._order
        return state if order is None else state.map(lambda values: values[:, order])

    def unsort(self, state: LstmState) -> LstmState:
        """Return the state with sentences in the order of the batch."""
        original = None if self._order is None else self._order.argsort()
        return state if original is None else state.map(lambda values: values[:, original])
