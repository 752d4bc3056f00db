"""Read text files line by line: UTF-8, plain or compressed with gzip."""

import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"  # no UTF-8 text begins like this
# Largest number of characters that an error message quotes from a text.
QUOTED = 80


@contextmanager
def open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    """
    Context manager that opens a file to read bytes, decompressed if its content is gzip. A seek in
    a gzip file reads everything before. Raise a `ValueError` if it is damaged or cut off.
    """
    with Path(path).open("rb") as raw:
        is_gzip = raw.seekable() and raw.read(2) == GZIP_MAGIC
        if not is_gzip:
            if raw.seekable():
                raw.seek(0)
            yield raw
            return
        raw.seek(0)
        with gzip.GzipFile(fileobj=raw) as file:
            try:
                yield cast(BinaryIO, io.BufferedReader(file))
            except (gzip.BadGzipFile, zlib.error, EOFError) as error:
                raise ValueError(f"{path} is not a whole gzip file: {error}") from error


def read_lines(
    path: str | Path, name: str | None = None, *, keep_bad_bytes: bool = False
) -> Iterator[tuple[int, str]]:
    """Yield the `decode_lines` of a file from `open_bytes`; `name` is by default its path."""
    with open_bytes(path) as file:
        yield from decode_lines(file, str(path) if name is None else name, keep_bad_bytes)


def decode_lines(
    lines: Iterable[bytes], name: str, keep_bad_bytes: bool = False
) -> Iterator[tuple[int, str]]:
    r"""
    Decode UTF-8 lines of the file `name`; yield each line's number, from 1 as in an editor, and
    text.

    Lines end with `\n` or `\r\n`, which are kept. A lone `\r` ends a line only in a file without
    any `\n`. A byte order mark at the beginning is dropped. Raise a `ValueError` that begins with
    file and line if a line is not UTF-8; with `keep_bad_bytes`, such bytes become lone surrogates
    instead.
    """
    for number, line in enumerate(_split_first(lines), start=1):
        try:
            text = line.decode("utf-8", "surrogateescape" if keep_bad_bytes else "strict")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}:{number}: not UTF-8 ({error.reason}): {quoted(line.strip())}; expected "
                "UTF-8"
            ) from error
        yield number, text


def _split_first(lines: Iterable[bytes]) -> Iterator[bytes]:
    r"""Drop a byte order mark; split the first line at `\r` if the file has no `\n`."""
    lines = iter(lines)
    first = next(lines, b"").removeprefix(BYTE_ORDER_MARK)
    if not first.endswith(b"\n") and b"\r" in first:
        yield from first.splitlines(keepends=True)
    elif first:
        yield first
    yield from lines


def quoted(found: object) -> str:
    """Return the beginning of a string, bytes, or another value's `repr`, for an error message."""
    whole = found if isinstance(found, (str, bytes)) else repr(found)
    beginning = whole[:QUOTED]
    shown = repr(beginning) if whole is found else str(beginning)
    return shown if len(whole) <= QUOTED else f"{shown}..."


def counted(count: int, noun: str) -> str:
    """Return a number and its noun, with a plural s unless the number is 1: `2 sentences`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def described(error: Exception) -> str:
    """Return an error's message; that of an `OSError` about a file without number and quotes."""
    if not isinstance(error, OSError) or error.filename is None:
        return str(error)
    name = os.fsdecode(error.filename)
    if isinstance(error, FileNotFoundError):
        return f"there is no file or folder {name}"
    if isinstance(error, IsADirectoryError):
        return f"{name} is a folder, expected a file"
    return f"{name}: {error.strerror}"


def is_unicode(text: str) -> bool:
    """Return whether a text can be encoded as UTF-8, that is, has no lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
