"""
CRC-32C (Castagnoli; RFC 3720, appendix B.4), by numpy: Python's own `zlib.crc32` has another
polynomial.

The checksum is linear: a word's share in it is the word moved by as many zero bytes as follow. So
words are joined two by two, then the pairs, and so on, each time by twice as many zero bytes.
"""

from functools import cache
from typing import Any

import numpy

POLYNOMIAL = 0x82F63B78  # bits reversed
ALL_ONES = 0xFFFFFFFF
# Words joined at once; numpy's temporaries then stay in the cache.
WORDS = 1 << 16


def crc32c(data: Any) -> int:
    """
    # Parameters

    data : `Any`
        Bytes, or anything with a buffer of them.

    # Returns

    `int`
        32 bits.
    """
    octets = numpy.frombuffer(data, dtype=numpy.uint8)
    num_words = len(octets) // 4
    checksum = ALL_ONES
    words = octets[: 4 * num_words].view("<u4")
    for start in range(0, num_words, WORDS):
        chunk = words[start : start + WORDS].copy()
        chunk[0] ^= numpy.uint32(checksum)
        checksum = _joined(chunk)
    for octet in octets[4 * num_words :].tolist():
        checksum = int(_table()[(checksum ^ octet) & 0xFF]) ^ (checksum >> 8)
    return checksum ^ ALL_ONES


def _joined(words: numpy.ndarray) -> int:
    level = 2
    words = _moved(words, level)
    while len(words) > 1:
        if len(words) % 2:  # leading zeros do not count
            words = numpy.concatenate([numpy.zeros(1, numpy.uint32), words])
        words = _moved(words[0::2], level) ^ words[1::2]
        level += 1
    return int(words[0])


def _moved(checksums: numpy.ndarray, level: int) -> numpy.ndarray:
    """Each after `2 ** level` zero bytes more."""
    low, high = _halves(level)
    return low[checksums & 0xFFFF] ^ high[checksums >> 16]


@cache
def _halves(level: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """What becomes of any low and of any high 16 bits."""
    values = numpy.arange(1 << 16, dtype=numpy.uint32)
    if level > 0:
        low, high = (_moved(_moved(half, level - 1), level - 1) for half in (values, values << 16))
    else:
        table = _table()
        low, high = (table[half & 0xFF] ^ (half >> 8) for half in (values, values << 16))
    return low, high


@cache
def _table() -> numpy.ndarray:
    """Of the 256 bytes."""
    values: numpy.ndarray = numpy.arange(256, dtype=numpy.uint32)
    for _ in range(8):
        values = (values >> 1) ^ (numpy.uint32(POLYNOMIAL) * (values & 1))
    return values
