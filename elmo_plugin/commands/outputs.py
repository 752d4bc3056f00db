"""Refuse to overwrite files that exist, or that the command reads."""

from pathlib import Path
from typing import Iterable, Union

from elmo_plugin.bilm.files.atomic_write import check_output_path


def check_output(output: Union[str, Path], inputs: Iterable[Union[str, Path]], force: bool) -> None:
    """
    Raise a `ValueError` if the file `output` exists and `force` is false. With `force`, raise it if
    the file is one of the command's `inputs`, or is in a folder among them. URLs are ignored. Raise
    an error too if `output` is `-`, a folder or a device, or its folder is missing.
    """
    output = Path(output)
    if str(output) == "-":
        raise ValueError("the output is -, expected a file's name: it is not written to stdout")
    check_output_path(output)
    if not output.exists():
        return
    if not force:
        raise ValueError(f"{output} exists, expected a new file; --force replaces it")
    for path in map(Path, inputs):
        if path.exists() and (output.samefile(path) or path.resolve() in output.resolve().parents):
            raise ValueError(f"{output} is an input too, expected another file to write to")


def check_output_folder(
    folder: Union[str, Path], names: Iterable[str], inputs: Iterable[Union[str, Path]], force: bool
) -> None:
    """Call `check_output` for the files `names` in a folder; raise a `ValueError` for a file."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, expected a folder")
    for name in names if folder.is_dir() else ():
        check_output(folder / name, inputs, force)
