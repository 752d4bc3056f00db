"""Numbers of as many bytes as they need, as LevelDB, snappy and protocol buffers write them."""


def varint(data: bytes, position: int) -> tuple[int, int]:
    """
    A number of 7 bits a byte, the lowest first.

    # Parameters

    data : `bytes`
        Where it stands.
    position : `int`
        Its first byte.

    # Returns

    `tuple[int, int]`
        The number, less than 2**64, and the position behind it.

    # Raises

    `ValueError`
        If it has no end.
    """
    number = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        octet = data[position]
        position += 1
        number |= (octet & 0x7F) << shift
        if octet < 0x80:
            return number & (2**64 - 1), position
    raise ValueError("a number without an end")
