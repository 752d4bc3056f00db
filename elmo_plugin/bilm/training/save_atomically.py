"""`torch.save` to a file that is never half written."""

import os
from pathlib import Path
from typing import Any

import torch

from elmo_plugin.bilm.files.whole_file import whole_file


def save_atomically(state: Any, path: str | os.PathLike) -> None:
    """
    `torch.save` that leaves either the whole new file or what was there before.

    # Parameters

    state : `Any`
        What `torch.save` takes.
    path : `Union[str, os.PathLike]`
        The file to write.

    # Raises

    `OSError`
        If the file cannot be written; nothing at `path` has changed then.
    """
    path = Path(path)
    try:
        with whole_file(path) as aside, aside.open("wb") as file:
            torch.save(state, file)
    except OSError as error:
        raise OSError(
            error.errno,
            f"could not write {path} ({os.strerror(error.errno or 0)}); files written before it "
            "are intact, and --recover continues from them",
        ) from error
