"""Padded batches to packed, time-major rows and back."""

from typing import Optional

import torch


class Packing:
    """
    Where each real token of a padded batch stands among packed rows (see `lstm.py`).

    # Parameters

    num_tokens : `torch.Tensor`
        Int64, shape `(batch_size,)`: tokens of each sentence without boundaries.
    padded_length : `int`
        Positions of the padded batch with boundaries, `num_tokens + 2`.

    # Attributes

    lengths : `torch.Tensor`
        Shape `(batch_size,)`: tokens with boundaries; at least 2.
    mask : `torch.Tensor`
        Bool, shape `(batch_size, num_tokens + 2)`.
    batch_sizes : `list[int]`
        Rows of each step, falling.
    order, unsorted : `torch.Tensor`
        Sentences by falling length, and the way back.
    forward_rows, backward_rows : `torch.Tensor`
        For each packed row its place in the flattened padded batch, reading from the start or from
        the end of each sentence.
    """

    def __init__(self, num_tokens: torch.Tensor, padded_length: int) -> None:
        device = num_tokens.device
        self.lengths = num_tokens + 2
        self.padded_length = padded_length
        steps = torch.arange(padded_length, device=device)
        self.mask = steps < self.lengths.unsqueeze(1)
        sorted_lengths, self.order = self.lengths.sort(descending=True, stable=True)
        self.unsorted = self.order.argsort()
        # Shape: (num_tokens + 2, batch_size); row-major order is the packed order.
        alive = steps.unsqueeze(1) < sorted_lengths
        self.batch_sizes = [size for size in alive.sum(dim=1).tolist() if size > 0]
        step, rank = alive.nonzero(as_tuple=True)
        first = self.order[rank] * padded_length
        self.forward_rows = first + step
        self.backward_rows = first + sorted_lengths[rank] - 1 - step

    def pad(self, packed: torch.Tensor, rows: Optional[torch.Tensor] = None) -> torch.Tensor:
        """
        # Parameters

        packed : `torch.Tensor`
            Shape `(num_rows, dim)`.
        rows : `Optional[torch.Tensor]`
            `forward_rows` (the default) or `backward_rows`.

        # Returns

        `torch.Tensor`
            Shape `(batch_size, num_tokens + 2, dim)`, zero at padding.
        """
        batch_size = len(self.lengths)
        flat = packed.new_zeros(batch_size * self.padded_length, packed.shape[-1])
        flat = flat.index_copy(0, self.forward_rows if rows is None else rows, packed)
        return flat.view(batch_size, self.padded_length, packed.shape[-1])
