"""Files that are never half written."""

import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Union


@contextmanager
def whole_file(path: Union[str, Path]) -> Iterator[Path]:
    """
    Gives a name to write to, in the same directory; when the block ends well, what was written
    there is on disk and takes the place of `path`. When it fails, `path` is as it was.

    # Parameters

    path : `Union[str, Path]`
        The file to make or replace.
    """
    path = Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield aside
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
