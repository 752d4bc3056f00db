"""What becomes of memory that a tensor leaves free."""

import ctypes

from elmo_plugin.bilm.kernels import tuning

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_NEVER = 2**31 - 1


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
