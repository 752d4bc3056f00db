"""Files that a command is about to write."""

from pathlib import Path
from typing import Iterable, Union


def check_output(output: Union[str, Path], inputs: Iterable[Union[str, Path]], force: bool) -> None:
    """
    # Parameters

    output : `Union[str, Path]`
        What is to be written.
    inputs : `Iterable[Union[str, Path]]`
        What is read.
    force : `bool`
        Whether an output that exists may be replaced.

    # Raises

    `ValueError`
        If the output exists and may not be replaced, or is one of the inputs.
    """
    output = Path(output)
    if not output.exists():
        return
    if not force:
        raise ValueError(f"{output} exists, expected a new file; --force replaces it")
    for path in inputs:
        if Path(path).exists() and output.samefile(path):
            raise ValueError(f"{output} is an input too, expected another file to write to")
