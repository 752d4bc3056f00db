"""Standard error, which a service, `pythonw` or `2>&-` lacks, and a full disk does not take."""

import io
import sys
from contextlib import suppress
from typing import Any, TextIO


class _Lenient:
    """Stream that discards what another one does not take. A full log must not end the work."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # a `ValueError` if it is closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def stderr() -> TextIO:
    """
    Return `sys.stderr`, or a stream in its place if it is missing, since `print(file=None)` writes
    to stdout. Text that cannot be written is discarded without an error.
    """
    stream: Any = io.TextIOBase() if sys.stderr is None else sys.stderr  # the former takes nothing
    return stream if isinstance(stream, _Lenient) else _Lenient(stream)  # type: ignore[return-value]
