"""Standard error, which a service, `pythonw` or `2>&-` lacks."""

import io
import sys
from typing import TextIO


def stderr() -> TextIO:
    """
    Return `sys.stderr`. If it is missing or closed, return a stream that nobody reads, since
    `print(file=None)` writes to stdout, and `tqdm` fails.
    """
    usable = sys.stderr is not None and not getattr(sys.stderr, "closed", False)
    return sys.stderr if usable else io.StringIO()
