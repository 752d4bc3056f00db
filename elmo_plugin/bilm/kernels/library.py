"""
Loads the C++ kernels: one shared library, built with the package (`setup.py`). The library contains
the same code compiled for several instruction sets; each copy of the code is called a variant.

The library is loaded only from this folder, and only if its checksum is the one that the build
recorded. A variant must then pass a self-test. Otherwise PyTorch's operators run.
"""

import ctypes
import functools
import hashlib
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from elmo_plugin.bilm.kernels import machine

# Environment variable that sets the variant: one of `VARIANTS`, or `none` for PyTorch's operators.
VARIABLE = "ELMO_PLUGIN_ISA"
NONE = "none"
# Variants of the code, the fastest first.
VARIANTS = (
    "x86-64-v4-amx", "x86-64-v4-bf16", "x86-64-v4-vnni", "x86-64-v4", "x86-64-v3-vnni",
    "x86-64-v3", "aarch64-bf16", "aarch64-dotprod", "portable",
)  # fmt: skip
# Number formats of frozen layers, see `formats.h`; only `_BFLOAT16` variants have the last one.
FORMATS = ("float32", "int16", "int8", "bfloat16")
_BFLOAT16 = ("x86-64-v4-amx", "aarch64-bf16")
PATH = Path(__file__).with_name("libelmo_kernels.so.1")
MANIFEST = PATH.with_name("libelmo_kernels.json")

# Version of entry points and memory layouts, which `setup.py` compiles into the library.
ABI = 4

# Results of an entry point, besides 0: `Status` of `library.h`.
_NO_MEMORY, _HAS_NAN = 1, 2

# PyTorch's own number of threads. Kernels import PyTorch before this file.
_DEFAULT_THREADS = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
_override: ContextVar[str | None] = ContextVar("variant", default=None)
# Variant under self-test, which must run although it has not passed yet.
_tested: ContextVar[str | None] = ContextVar("tested variant", default=None)


def variant() -> str | None:
    """
    Return the name of the library's variant that runs here; `None` if PyTorch's operators run.
    Raise a `ValueError` if `ELMO_PLUGIN_ISA` names no variant that this processor can run.
    """
    return _tested.get() or _variant(_override.get() or os.environ.get(VARIABLE))


@contextmanager
def use_variant(name: str) -> Iterator[None]:
    """
    Context manager: within the block, this thread uses one of `runnable_variants()`, or with
    `"none"` PyTorch. LSTM layers and convolutions that were built earlier keep their variant.
    """
    token = _override.set(name)
    try:
        variant()
        yield
    finally:
        _override.reset(token)


def runnable_variants() -> list[str]:
    """Return the variants that were built and that this processor can run, the fastest first."""
    library = _library()
    if library is None:
        return []
    known = json.loads(MANIFEST.read_text(encoding="utf-8"))["variants"]
    return [name for name in VARIANTS if name in known and library.elmo_supports(name.encode())]


def formats() -> tuple[str, ...]:
    """Return the names of the number formats that the variant in use supports (`formats.h`)."""
    name = variant()
    if name is None:
        return ()
    return FORMATS if name in _BFLOAT16 else FORMATS[:-1]


def trained_formats() -> tuple[str, ...]:
    """Return the names of the number formats in which the variant in use trains layers."""
    name = variant()
    if name is None:
        return ()
    return ("float32", "bfloat16") if name.endswith(("amx", "bf16")) else ("float32",)


def description() -> str:
    """Return a one-line description of the kernels that are built for this processor."""
    name = _built(_override.get() or os.environ.get(VARIABLE))
    if name is not None:
        return f"kernels for {name}, if they pass a self-test at first use"
    if not MANIFEST.is_file():
        return f"PyTorch's operators ({PATH.parent} has no compiled kernels)"
    return "PyTorch's operators"


def function(*name: str) -> Callable[..., bool]:
    """
    Return a C function of the current variant (`kernels.cpp`), given the parts of its name. The
    function returns whether a frozen LSTM layer gave NaN.
    """
    found = variant()
    assert found is not None
    return _function(found, "_".join(name))


def limit(clip: float | None) -> float:
    """Return a clip for the C++ kernels, which expect infinity instead of `None`."""
    return math.inf if clip is None else float(clip)


def num_threads() -> int:
    """
    Return the number of threads for a kernel: PyTorch's number of threads. The container's CPU
    quota limits it, unless the user has chosen the number.
    """
    found = sys.modules["torch"].get_num_threads()
    return machine.within_quota(found) if found == _DEFAULT_THREADS else found


@functools.cache
def _variant(wanted: str | None) -> str | None:
    found = _built(wanted)
    return found if found and _passes_self_test(found) else None


def _built(wanted: str | None) -> str | None:
    """Return the variant to use, if it passes its self-test."""
    if wanted == NONE:
        return None
    if wanted and wanted not in VARIANTS:
        raise ValueError(f"{VARIABLE} is {wanted!r}, expected one of {(*VARIANTS, NONE)}")
    runnable = runnable_variants()
    if wanted and runnable and wanted not in runnable:
        raise ValueError(
            f"{VARIABLE} is {wanted!r}, which this processor or this build does not have; expected "
            f"one of {(*runnable, NONE)}"
        )
    return next(iter([wanted] if wanted and runnable else runnable), None)


@functools.cache
def _passes_self_test(name: str) -> bool:
    import torch

    from elmo_plugin.bilm.kernels.self_test import wrong_results

    token = _tested.set(name)
    try:
        # Shield the self-test from a caller's hooks: gradient checkpointing counts saved tensors.
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved):
            wrong = wrong_results(formats())
    finally:
        _tested.reset(token)
    if wrong:
        _warn(f"{PATH} is not used, since its variant {name} gives wrong {', '.join(wrong)}")
    return not wrong


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Load the library; return `None` if it is missing or not the file that the build wrote."""
    if not MANIFEST.is_file():
        return None
    try:
        built = json.loads(MANIFEST.read_text(encoding="utf-8"))
        # Checked before loading, because a truncated library would crash the process.
        if hashlib.sha256(PATH.read_bytes()).hexdigest() != built["sha256"]:
            raise OSError("it is not the file that the build wrote")
        library = ctypes.CDLL(str(PATH))
        if library.elmo_abi() != ABI:
            raise OSError(f"its version is {library.elmo_abi()}, expected {ABI}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _warn(f"{PATH} is not used: {error}; install the package again")
        return None
    return library


@functools.cache
def _function(variant: str, name: str) -> Callable[..., bool]:
    library = _library()
    assert library is not None
    find = library[f"elmo_entry_{variant.replace('-', '_')}"]
    find.restype = ctypes.c_void_p
    address = find(name.encode())
    assert address is not None, name  # a call of a null pointer would end the process
    entry = ctypes.CFUNCTYPE(ctypes.c_int)(address)

    def call(*arguments: Any) -> bool:
        words = (ctypes.c_int64(one) if isinstance(one, int) else one for one in arguments)
        status = entry(*words)
        if status == _NO_MEMORY:
            raise MemoryError("no memory for the scratch space of a kernel of the biLM")
        return status == _HAS_NAN

    return call


def _warn(text: str) -> None:
    warnings.warn(f"{text}. PyTorch's operators run in its place, which is slower", stacklevel=4)
