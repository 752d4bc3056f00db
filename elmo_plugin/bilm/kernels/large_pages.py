"""Tensors on pages of 2 MB, where Linux has them."""

import contextlib
import math
import mmap

import torch

# Bytes.
_LARGE_PAGE = 2 << 20


def on_large_pages(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """
    Zeros on the CPU; what is large lies on pages of 2 MB for 4 KB, where Linux gives some when it
    is asked: a weight that goes by at every step is then read faster, as processors look up fewer
    addresses.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < _LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(shape, dtype=dtype, device="cpu")
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # of a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    # The tensor holds the memory.
    return torch.frombuffer(memory, dtype=dtype).view(shape)
