"""The lines of a text file: one reader for everything that is read line by line."""

from collections.abc import Iterable, Iterator
from pathlib import Path

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Characters of a line that a message quotes.
QUOTED = 80


def read_lines(
    path: str | Path, name: str | None = None, *, keep_bad_bytes: bool = False
) -> Iterator[tuple[int, str]]:
    """
    The lines of a UTF-8 text file, read as they are needed.

    # Parameters

    path : `Union[str, Path]`
        The file.
    name : `Optional[str]`, optional (default = `None`)
        What errors call it; its path if not given.
    keep_bad_bytes : `bool`, optional (default = `False`)
        See `decode_lines`.

    # Returns

    `Iterator[tuple[int, str]]`
        See `decode_lines`.

    # Raises

    `ValueError`
        See `decode_lines`.
    """
    with Path(path).open("rb") as file:
        yield from decode_lines(file, str(path) if name is None else name, keep_bad_bytes)


def decode_lines(
    lines: Iterable[bytes], name: str, keep_bad_bytes: bool = False
) -> Iterator[tuple[int, str]]:
    """
    Lines end with a line feed, before which a carriage return may stand; a carriage return alone
    ends one only in a file that has no line feed at all, so that numbers are those of an editor. A
    byte order mark is left out.

    # Parameters

    lines : `Iterable[bytes]`
        A file opened to read bytes.
    name : `str`
        What errors call it.
    keep_bad_bytes : `bool`, optional (default = `False`)
        Whether bytes that are not UTF-8 come as lone surrogates (`surrogateescape`), in place of an
        error.

    # Returns

    `Iterator[tuple[int, str]]`
        Line numbers from 1, and the lines with their ends.

    # Raises

    `ValueError`
        If a line is not UTF-8; the text begins with file and line.
    """
    for number, line in enumerate(_without_mark(lines), start=1):
        try:
            text = line.decode("utf-8", "surrogateescape" if keep_bad_bytes else "strict")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}:{number}: not UTF-8 ({error.reason}): {quoted(line.strip())}; expected "
                "UTF-8"
            ) from error
        yield number, text


def _without_mark(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Without a byte order mark; of a file without line feeds, what its carriage returns divide."""
    lines = iter(lines)
    first = next(lines, b"").removeprefix(BYTE_ORDER_MARK)
    if not first.endswith(b"\n") and b"\r" in first:
        yield from first.splitlines(keepends=True)
    elif first:
        yield first
    yield from lines


def quoted(found: object) -> str:
    """
    # Parameters

    found : `object`
        What was found: text, bytes, or any value.

    # Returns

    `str`
        Its beginning, as a message quotes it: what cannot be printed is escaped.
    """
    whole = found if isinstance(found, (str, bytes)) else repr(found)
    beginning = whole[:QUOTED]
    shown = repr(beginning) if whole is found else str(beginning)
    return shown if len(whole) <= QUOTED else f"{shown}..."


def is_unicode(text: str) -> bool:
    """
    # Parameters

    text : `str`
        Any.

    # Returns

    `bool`
        Whether it has a UTF-8 form: no lone surrogates, which JSON can write and no file can hold.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
