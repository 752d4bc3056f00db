"""Pickles of others: PyTorch reads tensors from them, and nothing that they hold is run."""

import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import torch

from elmo_plugin.bilm.files.text import quoted


def plain_tensors(path: Path, kind: str) -> dict[str, Any]:
    """
    # Parameters

    path : `Path`
        What `torch.save` wrote of a `state_dict`, in its present container or that of PyTorch 1.5
        and before.
    kind : `str`
        What it should be, for errors: a "file of weights".

    # Returns

    `dict[str, Any]`
        What it holds, by name; `plain_tensor` checks each.

    # Raises

    `FileNotFoundError`
        If there is no such file.
    `ValueError`
        If it is not whole, or holds anything that could run code.
    `MemoryError`
        If memory runs out; the text names the file.
    """
    if not path.is_file():  # a FIFO would wait for ever
        raise FileNotFoundError(f"there is no file {path}, expected an {kind}")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} is damaged, or a pickle of more than tensors, which could run code and was "
            f"not read; expected an {kind}: {str(error)[:300]}"
        ) from error
    except PermissionError as error:
        raise PermissionError(error.errno, "cannot be read", str(path)) from error
    # PyTorch's, by where in the file something is wrong.
    except (
        RuntimeError,
        OSError,
        EOFError,
        LookupError,
        TypeError,
        ValueError,
        ArithmeticError,
        AttributeError,
        AssertionError,
        struct.error,
        zipfile.BadZipFile,
    ) as error:
        if "allocate memory" in str(error):
            raise MemoryError(f"{path}: there is not enough memory to read it: {error}") from error
        raise ValueError(
            f"{path} is not a whole file of tensors, expected an {kind}: {str(error)[:300]}"
        ) from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}, expected an {kind}")
    return found


def plain_tensor(
    tensors: dict[str, Any], key: str, shape: tuple[int, ...], path: Path
) -> torch.Tensor:
    """
    # Parameters

    tensors : `dict[str, Any]`
        From `plain_tensors`.
    key : `str`
        Which of them.
    shape : `tuple[int, ...]`
        The shape it is to have.
    path : `Path`
        Where they come from, for errors.

    # Returns

    `torch.Tensor`

    # Raises

    `ValueError`
        If it is missing, of another shape, or no plain tensor of floating point.
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
        raise ValueError(f"{path}: {key} has shape {tuple(found.shape)}, the options want {shape}")
    return found
