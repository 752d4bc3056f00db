"""
Snappy blocks, decompressed (format_description.txt of https://github.com/google/snappy).
"""

from elmo_plugin.bilm.files.tensorflow.varint import varint

# An index is some kilobytes.
MOST_BYTES = 1 << 28


def decompress(data: bytes) -> bytes:
    """
    # Parameters

    data : `bytes`
        One block.

    # Returns

    `bytes`

    # Raises

    `ValueError`
        If it is none.
    """
    length, position = varint(data, 0)
    if length > MOST_BYTES:
        raise ValueError(f"a snappy block of {length} bytes, expected at most {MOST_BYTES}")
    out = bytearray()
    while position < len(data):
        tag = data[position]
        position += 1
        kind, size = tag & 3, tag >> 2
        if kind == 0:  # literal
            extra = max(0, size - 59)
            if extra:
                size = _little_endian(data, position, extra)
                position += extra
            end = position + size + 1
            if end > len(data):
                raise ValueError("a snappy block without its end")
            out += data[position:end]
            position = end
        else:  # copy of what came before
            width = {1: 1, 2: 2, 3: 4}[kind]
            offset = _little_endian(data, position, width)
            position += width
            if kind == 1:
                offset, size = offset | (tag >> 5) << 8, 4 + ((tag >> 2) & 7)
            else:
                size += 1
            if not 0 < offset <= len(out):
                raise ValueError("a snappy block that copies from before its beginning")
            pattern = out[-offset:][:size]
            out += (pattern * (size // len(pattern) + 1))[:size]
        if len(out) > length:
            break
    if len(out) != length:
        raise ValueError(f"a snappy block of {len(out)} bytes that says it has {length}")
    return bytes(out)


def _little_endian(data: bytes, position: int, width: int) -> int:
    found = data[position : position + width]
    if len(found) < width:
        raise ValueError("a snappy block without its end")
    return int.from_bytes(found, "little")
