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

    # Parameters

    lengths : `torch.Tensor`
        Number of tokens of each sentence, int64, shape `(batch_size,)`.
    num_steps : `int`
        Length of each padded sentence, in tokens.

    # Attributes

    batch_sizes : `list[int]`
        Number of rows of each step, non-increasing.
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

    def unpack(self, forward: torch.Tensor, backward: torch.Tensor) -> torch.Tensor:
        """Convert both directions' packed rows to one zero-padded batch, forward half first."""
        dim = forward.shape[1]
        # Within `torch.vmap` over some weights, only one of both may be batched.
        like = torch.cat([forward[:0], backward[:0]], dim=1)
        padded = like.new_zeros(*self._shape, 2 * dim)
        rows = padded.view(-1, 2 * dim)
        rows[:, :dim].index_copy_(0, self._index["forward"], forward)
        rows[:, dim:].index_copy_(0, self._index["backward"], backward)
        return padded

    def unpack_one(self, rows: torch.Tensor, direction: str) -> torch.Tensor:
        """Convert one direction's packed rows to a zero-padded batch."""
        size, num_steps = self._shape
        padded = rows.new_zeros(size * num_steps, rows.shape[1])
        return padded.index_copy(0, self._index[direction], rows).unflatten(0, (size, num_steps))

    def sort(self, state: LstmState) -> LstmState:
        """Return the state with sentences in packed order."""
        order = self._order
        return state if order is None else state.map(lambda values: values[:, order])

    def unsort(self, state: LstmState) -> LstmState:
        """Return the state with sentences in the order of the batch."""
        original = None if self._order is None else self._order.argsort()
        return state if original is None else state.map(lambda values: values[:, original])
