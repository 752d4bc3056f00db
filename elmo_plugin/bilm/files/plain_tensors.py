"""Read files of `torch.save` without running code in them, and check the tensors."""

import errno
import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from elmo_plugin.bilm.files.text import quoted

# Exceptions that h5py, `torch.load` and `zipfile` raise for damaged, unsafe or unusable files.
UNREADABLE = (
    RuntimeError,
    OSError,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    pickle.UnpicklingError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


@contextmanager
def whole_file(path: str | Path, kind: str, file_format: str) -> Iterator[None]:
    """
    Context manager around code that reads a file; `kind` describes it, such as "weight file".

    Raise a `FileNotFoundError` if there is no file. Errors of the block become a `ValueError` that
    names it if they are in `UNREADABLE`, and a `MemoryError` if memory runs out.
    """
    if not Path(path).is_file():  # opening a FIFO would block
        raise FileNotFoundError(f"there is no {kind} {path}")
    try:
        yield
    except PermissionError as error:
        raise PermissionError(error.errno, "cannot be read", str(path)) from error
    except (MemoryError, *UNREADABLE) as error:
        text = str(error)
        if isinstance(error, (ValueError, MemoryError)) and text.startswith(str(path)):
            raise
        is_memory = isinstance(error, MemoryError) or getattr(error, "errno", 0) == errno.ENOMEM
        if is_memory or "allocate memory" in text:
            raise MemoryError(f"{path}: there is not enough memory to read it: {text}") from error
        raise ValueError(
            f"{path} is not a whole {file_format}, expected a {kind}: {text[:300]}"
        ) from error


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its type if the message is empty."""
    return (str(error) or repr(error)).splitlines()[0]


def load_checked(path: str | os.PathLike, mmap: bool = False) -> Any:
    """
    Load a file of `torch.save` on the CPU without running code, after its checksums: `torch.load`
    ignores them, so a flipped bit would become a wrong weight. With `mmap`, tensors are mapped.

    Raise an exception in `UNREADABLE` if the file is damaged, or holds objects that could run code.
    """
    with zipfile.ZipFile(path) as file:
        damaged = file.testzip()
    if damaged is not None:
        raise ValueError(f"{path} is damaged: the checksum of {damaged} is wrong")
    return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)


def plain_tensors(path: Path, kind: str) -> dict[str, Any]:
    """
    Read a `state_dict` that `torch.save` wrote, without running code in the file, and with its
    checksums if it has them (the ZIP format of PyTorch 1.6 and later). Check each entry with
    `plain_tensor`. Raise the errors of `whole_file`, and a `ValueError` if the file could run code.
    """
    with whole_file(path, kind, "file of tensors"):
        try:
            if zipfile.is_zipfile(path):
                found = load_checked(path)
            else:  # the format before PyTorch 1.6, without checksums
                found = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise ValueError(
                f"{path} is damaged, or a pickle of more than tensors, which could run code and "
                f"was not read; expected a {kind}: {str(error)[:300]}"
            ) from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}, expected a {kind}")
    return found


def plain_tensor(
    tensors: dict[str, Any],
    key: str,
    shape: tuple[int, ...],
    path: str | Path,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """
    Check the tensor `key` of a file, `path`, and return it, in `dtype` if that is given.

    Raise a `ValueError` if it is missing, does not have `shape`, is not a plain floating point
    tensor, or holds NaN or infinity.
    """
    if key not in tensors:
        raise ValueError(f"{path}: the key {key} is missing, expected shape {shape}")
    found = tensors[key]
    if not isinstance(found, torch.Tensor):
        raise ValueError(f"{path}: {key} is {quoted(found)}, expected a tensor")
    if found.layout != torch.strided or found.device.type != "cpu":
        raise ValueError(
            f"{path}: {key} is a {found.layout} tensor of the device {found.device}, expected a "
            "plain one"
        )
    if not found.is_floating_point():
        raise ValueError(f"{path}: {key} has type {found.dtype}, expected floating point")
    if tuple(found.shape) != shape:
        raise ValueError(
            f"{path}: {key} has shape {tuple(found.shape)}, the options require {shape}"
        )
    return converted(found, dtype or found.dtype, key, path)


def converted(values: torch.Tensor, dtype: torch.dtype, key: str, path: str | Path) -> torch.Tensor:
    """Convert values of the file's tensor `key` to another dtype; they must be finite."""
    new = values.to(dtype)
    if new.numel() and not torch.stack(new.aminmax()).isfinite().all():
        raise ValueError(
            f"{path}: {key} holds NaN or infinity, or more than {new.dtype} can hold, expected "
            "finite numbers"
        )
    return new


def check_state_dict(
    tensors: dict[str, Any], expected: Mapping[str, torch.Tensor], path: Path
) -> None:
    """
    Raise a `ValueError` for the first floating point tensor of the file `path` that does not fit a
    module, whose `state_dict()` is `expected`.
    """
    for key, tensor in expected.items():
        if tensor.is_floating_point():
            plain_tensor(tensors, key, tuple(tensor.shape), path)
