"""Standard error, which a service, `pythonw` or `2>&-` lacks."""

import io
import sys
from typing import TextIO


class _Nowhere(io.TextIOBase):
    def write(self, text: str) -> int:
        return len(text)


def stderr() -> TextIO:
    """
    Return `sys.stderr`. If it is missing or closed, return a stream that discards everything, since
    `print(file=None)` writes to stdout, and `tqdm` fails.
    """
    usable = sys.stderr is not None and not getattr(sys.stderr, "closed", False)
    return sys.stderr if usable else _Nowhere()  # type: ignore[return-value]
