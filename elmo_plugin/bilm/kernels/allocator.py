"""Where tensors lie, and what becomes of memory that one leaves free."""

import contextlib
import ctypes
import math
import mmap
from collections.abc import Sequence

import torch

from elmo_plugin.bilm.kernels import tuning

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_NEVER = 2**31 - 1
# Bytes of a large page.
_LARGE_PAGE = 2 << 20


def on_large_pages(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """
    Zeros on the CPU; what is large lies on pages of 2 MB for 4 KB, where Linux gives some when it
    is asked: a weight that goes by at every step is then read faster, as processors look up fewer
    addresses and fetch ahead within a page only.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < _LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(tuple(shape), dtype=dtype)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # of a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    # The tensor holds the memory.
    return torch.frombuffer(memory, dtype=dtype).view(tuple(shape))


def keep_freed_memory() -> None:
    """
    The process keeps what is freed, for the next tensor of that size. glibc gives large pieces
    back and asks for them again at every product, and each page of 4 KB that comes anew costs some
    2 microseconds: a tenth of the time of 256 sentences. Products are taken of more rows at a time,
    too, since large pieces are as good as small ones then. For programs, not for a library: the
    whole process is meant, and stays as large as it once was. Without glibc nothing happens.
    """
    mallopt = getattr(ctypes.pythonapi, "mallopt", None)  # Windows has no CDLL(None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
        mallopt(_M_TOP_PAD, 64 << 20)
        tuning.INPUT_PRODUCT_ELEMENTS = tuning.INPUT_PRODUCT_ELEMENTS_KEPT
        tuning.TOKENS_AT_ONCE = tuning.TOKENS_AT_ONCE_KEPT
