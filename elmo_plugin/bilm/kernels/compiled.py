"""
The C++ of this folder, compiled for the processor at hand when it is first needed, and kept in the
user's cache. Where there is no C++ compiler, PyTorch's own operators run in its place.
"""

import contextlib
import ctypes
import functools
import hashlib
import math
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from elmo_plugin.bilm.kernels import processors

# Names the compiler; `none` for PyTorch's operators.
VARIABLE = "ELMO_PLUGIN_CXX"
# Where the sources and what they include are.
FOLDER = Path(__file__).parent
# What is computed is what is written, to the bit, on every processor: products and sums are put
# together where the source says so.
FLAGS = (
    "-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno",
    "-fno-trapping-math", "-fopenmp", "-shared", "-fPIC",
)  # fmt: skip
# Seconds; it takes four.
TIME_LIMIT = 120
# Compilers do not use the widest vectors unless they are told to.
WIDE = "-mprefer-vector-width=512"

_POINTER, _FLOAT, _COUNT, _INT = ctypes.c_void_p, ctypes.c_float, ctypes.c_int64, ctypes.c_int
_ARGUMENTS: dict[str, list[Any]] = {
    "forward_step": [*[_POINTER] * 6, _FLOAT, _COUNT, _COUNT, _COUNT, _INT],
    "backward_step": [*[_POINTER] * 6, _FLOAT, _COUNT, _COUNT, _INT],
    "lay_out": [_POINTER, _POINTER, _COUNT, _COUNT, _INT],
    "input_products": [*[_POINTER] * 4, *[_COUNT] * 3, _INT],
    "frozen_layer": [_POINTER, _COUNT, *[_POINTER] * 6, *[_COUNT] * 3, _FLOAT, _FLOAT, _INT],
}


def compiler() -> str | None:
    """
    The path of a C++ compiler: what `ELMO_PLUGIN_CXX` or `CXX` names, or the first that is found.

    # Raises

    `ValueError`
        If `ELMO_PLUGIN_CXX` names none.
    """
    return _compiler(os.environ.get(VARIABLE), os.environ.get("CXX"))


@functools.cache  # asked for at every step of training
def _compiler(asked: str | None, usual: str | None) -> str | None:
    if asked == "none":
        return None
    if asked:
        found = shutil.which(asked)
        if found is None:
            raise ValueError(f"{VARIABLE} is {asked!r}, expected a C++ compiler, or 'none'")
        return found
    names = (usual, "c++", "g++", "clang++")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def launch(name: str, like: torch.Tensor, *arguments: torch.Tensor | float | None) -> None:
    """
    One of the kernels, over rows and columns of `like`. What follows is as `triton_kernels.py` has
    it; tensors are on the CPU, but for products and what is projected in float32.

    # Raises

    `ValueError`
        If a tensor is not contiguous.
    """
    typed = (arguments[0], arguments[3]) if name == "forward_step" else (arguments[0],)
    types = (one.dtype for one in typed if torch.is_tensor(one))
    pointers = (_pointer(one) if torch.is_tensor(one) else one for one in arguments)
    _function(name, *types)(*pointers, *like.shape, torch.get_num_threads())


def lay_out(weight: torch.Tensor, panels: torch.Tensor) -> None:
    """
    A weight of float32 to panels of 32 of its rows, see `lstm_layer.cpp`.

    # Parameters

    weight : `torch.Tensor`
        Shape `(output_dim, input_dim)`, both multiples of 32.
    panels : `torch.Tensor`
        To be filled, shape `(output_dim / 32, input_dim, 32)`.

    # Raises

    `ValueError`
        If a tensor is not contiguous.
    """
    _function("lay_out", weight.dtype)(
        _pointer(weight), _pointer(panels), *weight.shape, torch.get_num_threads()
    )


def input_products(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, products: torch.Tensor
) -> None:
    """
    `inputs W^T + bias`, see `lstm_layer.cpp`.

    # Parameters

    inputs, weight, bias : `torch.Tensor`
        Shapes `(num_rows, input_dim)`, `(output_dim, input_dim)`, `(output_dim,)`; a weight of
        other types than float32 as `lstm_compiled.in_panels` makes it.
    products : `torch.Tensor`
        To be filled, shape `(output_dim / 32, num_rows, 32)`.

    # Raises

    `ValueError`
        If a tensor is not contiguous.
    """
    _function("input_products", weight.dtype)(
        *map(_pointer, (inputs, weight, bias, products)),
        *inputs.shape, len(bias), torch.get_num_threads(),
    )  # fmt: skip


def frozen_layer(
    products: torch.Tensor,
    state: torch.Tensor,
    projection: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    outputs: torch.Tensor,
    batch_sizes: Sequence[int],
    cell_clip: float | None,
    projection_clip: float | None,
) -> None:
    """
    Steps of a frozen LSTM layer whose weights lie in panels, see `lstm_layer.cpp`.

    # Parameters

    products : `torch.Tensor`
        Of all steps' inputs, shape `(num_rows, 4 * cell_size / 32, 32)`: `input_products` with the
        first two the other way round.
    state, projection : `torch.Tensor`
        In one type, shapes `(4 * cell_size / 32, projection_dim, 32)` and
        `(projection_dim / 32, cell_size, 32)`, or as that has them.
    hidden, cell : `torch.Tensor`
        Before the first step, shapes `(batch_sizes[0], projection_dim)`,
        `(batch_sizes[0], cell_size)`; become those after each row's last.
    outputs : `torch.Tensor`
        To be filled, shape `(num_rows, projection_dim)`.
    batch_sizes : `Sequence[int]`
        Rows of each step, never more than of the one before.
    cell_clip, projection_clip : `float | None`
        Largest absolute value of `cell` and of outputs; `None` for no limit.

    # Raises

    `ValueError`
        If a tensor is not contiguous.
    """
    sizes = (ctypes.c_int64 * len(batch_sizes))(*batch_sizes)
    _function("frozen_layer", state.dtype)(
        products.data_ptr(), products.stride(1),
        *map(_pointer, (state, projection, hidden, cell, outputs)),
        sizes, len(batch_sizes), cell.shape[1], hidden.shape[1],
        limit(cell_clip), limit(projection_clip), torch.get_num_threads(),
    )  # fmt: skip


def limit(clip: float | None) -> float:
    """As kernels have it."""
    return math.inf if clip is None else float(clip)


def _pointer(tensor: torch.Tensor) -> int:
    if not tensor.is_contiguous():
        shape, stride = tuple(tensor.shape), tensor.stride()
        raise ValueError(f"a tensor of shape {shape} has strides {stride}, expected contiguous")
    return tensor.data_ptr()


@functools.cache
def _function(name: str, *types: torch.dtype) -> Callable[..., None]:
    endings = (str(one).removeprefix("torch.") for one in types)
    function = _library()["_".join((name, *endings))]
    function.argtypes, function.restype = _ARGUMENTS[name], None
    return function


@functools.cache
def _library() -> ctypes.CDLL:
    """
    # Raises

    `OSError`
        If there is no compiler, or it fails.
    """
    found = compiler()
    if found is None:
        raise OSError("no C++ compiler was found")
    for runtime in Path(torch.__file__).parent.glob("lib/libgomp*"):
        # The threads are PyTorch's own, not some of another copy of the same library.
        ctypes.CDLL(str(runtime), ctypes.RTLD_GLOBAL)
    flags = (*FLAGS, WIDE) if platform.machine() in ("x86_64", "AMD64") else FLAGS
    name = f"lstm-{_digest(found, flags)}.so"
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "elmo_plugin")
    with contextlib.suppress(OSError):  # not there, or cut off by a crash: it is made
        return ctypes.CDLL(str(folder / name))
    with _workplace(folder) as aside:
        made = Path(aside, name)
        _compile(found, flags, made)
        with made.open("rb") as file:
            os.fsync(file.fileno())
        library = ctypes.CDLL(str(made))  # it stays when its file goes
        # Renamed when it is whole: another process may be doing the same.
        with contextlib.suppress(OSError):
            made.replace(folder / name)
    return library


def _workplace(folder: Path) -> "tempfile.TemporaryDirectory[str]":
    """In the cache, or where that cannot be written to in another place."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return tempfile.TemporaryDirectory(dir=folder)
    except OSError:
        return tempfile.TemporaryDirectory()


def _digest(found: str, flags: tuple[str, ...]) -> str:
    """Of the sources, the compiler and the processor: a home may be on many machines."""
    program = Path(found).stat()
    about = (
        *flags, found, program.st_size, program.st_mtime_ns,
        platform.machine(), processors.model_name(), processors.instructions(),
    )  # fmt: skip
    texts = [path.read_text(encoding="utf-8") for path in (*_sources(), *FOLDER.glob("*.h"))]
    return hashlib.sha256(repr((sorted(texts), about)).encode()).hexdigest()[:16]


def _sources() -> list[Path]:
    return sorted(FOLDER.glob("*.cpp"))


def _compile(found: str, flags: tuple[str, ...], to: Path) -> None:
    command = [found, *flags, "-o", str(to), *map(str, _sources())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT)
    if done.returncode:
        raise OSError(f"{' '.join(command)} failed with status {done.returncode}: {done.stderr}")
