"""Which rows of an integer matrix are the same."""

import functools

import torch


def distinct_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """
    The distinct rows of an integer matrix, and where each row went.

    Rows are told apart by a 64-bit hash, and the result is checked, so it is exact; sorting hashes
    is many times cheaper than `torch.unique(dim=0)`, the fallback for a collision.

    # Parameters

    rows : `torch.Tensor`
        Int64, shape `(num_rows, num_characters)`.

    # Returns

    `tuple[torch.Tensor, torch.Tensor]`
        `distinct`, shape `(num_distinct, num_characters)`, and `inverse`, shape `(num_rows,)`, with
        `distinct[inverse] == rows`.
    """
    hashes, inverse = torch.unique(row_hashes(rows), return_inverse=True)
    representative = torch.empty(len(hashes), dtype=torch.long, device=rows.device)
    representative[inverse] = torch.arange(len(rows), device=rows.device)
    distinct = rows[representative]
    if not torch.equal(distinct[inverse], rows):
        distinct, inverse = torch.unique(rows, dim=0, return_inverse=True)
    return distinct, inverse


def row_hashes(rows: torch.Tensor) -> torch.Tensor:
    """64-bit hashes of an int64 matrix's rows, shape `(num_rows,)`."""
    return (rows * _odd_numbers(rows.shape[1]).to(rows.device)).sum(dim=1)


@functools.cache
def _odd_numbers(count: int) -> torch.Tensor:
    with torch.inference_mode(False):  # they are kept, and multiplied elsewhere too
        generator = torch.Generator().manual_seed(20180215)
        drawn = torch.randint(-(2**62), 2**62, (count,), generator=generator, device="cpu")
        return drawn * 2 + 1
