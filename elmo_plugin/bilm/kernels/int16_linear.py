"""
Products with whole numbers of 16 bits, each row with a scale of its own, as `int16_panels.h` has
them: added up whole within blocks of 128 numbers, in 32 bits, for which the scales leave room.
"""

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.prepacked_linear import LinearKernel

BLOCK = 128
LARGEST = 32767.0
# Norms of a weight's block and of a row's, before they are rounded.
WEIGHT_NORM, ROW_NORM = 65532.0, 32750.0


class Int16Linear(LinearKernel):
    """
    By its definition, in float64.

    # Parameters

    weight : `torch.Tensor`
        Shape `(output_dim, input_dim)`.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__(weight[:0])
        integers, scales = in_int16(weight)
        self._integers, self._scales = integers.double(), scales.double()

    def __call__(self, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """As `LinearKernel`."""
        norm = _largest_norm(rows)
        integers = (rows * (ROW_NORM / norm)).round_().double()
        product = functional.linear(integers, self._integers) * self._scales * norm
        return (product if bias is None else product + bias).to(rows.dtype)

    def add_to(self, sums: torch.Tensor, rows: torch.Tensor) -> None:
        """As `LinearKernel`."""
        sums.add_(self(rows))


def in_int16(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Whole numbers, and what a product with those of a row is worth, shape `(output_dim,)`, but for
    the row's largest norm.
    """
    largest = weight.abs().amax(dim=1, keepdim=True)
    scale = torch.maximum(largest / LARGEST, _largest_norm(weight) / WEIGHT_NORM)
    return (weight / scale).round_().to(torch.int16), scale.squeeze(1) / ROW_NORM


def _largest_norm(rows: torch.Tensor) -> torch.Tensor:
    """Of each row's blocks, shape `(num_rows, 1)`; above zero for a row of zeros too."""
    padded = functional.pad(rows, (0, -rows.shape[1] % BLOCK))
    norms = padded.unflatten(1, (-1, BLOCK)).norm(dim=2)
    return norms.amax(dim=1, keepdim=True).clamp_min_(1e-15)
