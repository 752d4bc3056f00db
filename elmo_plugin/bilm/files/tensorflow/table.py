"""
LevelDB's sorted tables, in which TensorFlow keeps a checkpoint's index
(https://github.com/google/leveldb/blob/main/doc/table_format.md).
"""

from collections.abc import Iterator

from elmo_plugin.bilm.files.tensorflow.crc32c import crc32c
from elmo_plugin.bilm.files.tensorflow.snappy import decompress
from elmo_plugin.bilm.files.tensorflow.varint import varint

MAGIC = 0xDB4775248B80FB57
FOOTER_BYTES = 48
# Behind each block: how it is compressed, and its checksum.
TRAILER_BYTES = 5


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """
    # Parameters

    data : `bytes`
        A whole file.

    # Returns

    `Iterator[tuple[bytes, bytes]]`
        Keys and values, in the order of the keys.

    # Raises

    `ValueError`
        If it is no such table, or damaged: every block has a checksum.
    """
    footer = data[-FOOTER_BYTES:]
    if len(footer) < FOOTER_BYTES or int.from_bytes(footer[-8:], "little") != MAGIC:
        raise ValueError("it does not end with the mark of a table")
    _, position = _handle(footer, 0)  # the index of what is about the blocks
    index, _ = _handle(footer, position)
    for _, value in _entries(_block(data, index)):
        handle, _ = _handle(value, 0)
        yield from _entries(_block(data, handle))


def unmasked(checksum: int) -> int:
    """
    LevelDB turns and shifts a checksum before it is stored beside what it is of.

    # Parameters

    checksum : `int`
        As stored.

    # Returns

    `int`
        What `crc32c` gives.
    """
    turned = (checksum - 0xA282EAD8) & 0xFFFFFFFF
    return (turned >> 17 | turned << 15) & 0xFFFFFFFF


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = varint(data, position)
    size, position = varint(data, position)
    return (offset, size), position


def _block(data: bytes, handle: tuple[int, int]) -> bytes:
    offset, size = handle
    block = data[offset : offset + size + TRAILER_BYTES]
    if len(block) < size + TRAILER_BYTES:
        raise ValueError(f"it has no {size} bytes from byte {offset} on")
    stored = int.from_bytes(block[-4:], "little")
    if crc32c(block[:-4]) != unmasked(stored):
        raise ValueError(f"the checksum of the {size} bytes from byte {offset} on is wrong")
    compression = block[size]
    if compression not in (0, 1):
        raise ValueError(f"compression {compression}, expected none or snappy")
    return decompress(block[:size]) if compression else block[:size]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    num_restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (num_restarts + 1)
    position, key = 0, b""
    while position < end:
        # A key's beginning is that of the key before.
        shared, position = varint(block, position)
        own, position = varint(block, position)
        length, position = varint(block, position)
        if shared > len(key) or position + own + length > end:
            raise ValueError("a block has an entry that does not fit in it")
        key = key[:shared] + block[position : position + own]
        yield key, block[position + own : position + own + length]
        position += own + length
