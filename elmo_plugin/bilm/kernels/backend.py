"""
The door to the kernels, and the only one: the model calls `backend()`, and

    with use_backend("reference"):
        ...

runs the definition instead of what is fast here.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch

from elmo_plugin.bilm.kernels import derived as _derived
from elmo_plugin.bilm.kernels import fast, reference
from elmo_plugin.bilm.kernels.chooser import auto_training_dtype
from elmo_plugin.bilm.kernels.interface import (
    DTYPES,
    TRAINING_DTYPES,
    Affine,
    Backend,
    BiLstmState,
    LstmState,
    LstmWeights,
    Precision,
    TokenWeights,
)
from elmo_plugin.bilm.kernels.weights_module import WeightsModule

__all__ = [
    "DTYPES",
    "TRAINING_DTYPES",
    "Affine",
    "BiLstmState",
    "LstmState",
    "LstmWeights",
    "Precision",
    "TokenWeights",
    "WeightsModule",
    "auto_training_dtype",
    "backend",
    "derived",
    "forget_derived",
    "use_backend",
]
BACKENDS: dict[str, Backend] = {"fast": fast, "reference": reference}

_name: ContextVar[str] = ContextVar("backend", default="fast")

Derived = TypeVar("Derived")


def backend() -> Backend:
    """What computes here and now."""
    return BACKENDS[_name.get()]


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """
    In the block, and in this thread, biLMs are computed by this backend.

    # Parameters

    name : `str`
        `"reference"` or `"fast"`.

    # Raises

    `ValueError`
        If it is another.
    """
    if name not in BACKENDS:
        raise ValueError(f"backend is {name!r}, expected one of {tuple(BACKENDS)}")
    token = _name.set(name)
    try:
        yield
    finally:
        _name.reset(token)


def derived(
    parameters: Sequence[torch.Tensor], what: str, settings: Hashable, make: Callable[[], Derived]
) -> Derived:
    """
    What `make` computes of these parameters with these settings and by this backend; computed again
    when one has changed. See `derived.py` for which changes are seen.
    """
    return _derived.derived(parameters, (what, _name.get(), settings), make)


def forget_derived(parameters: Sequence[torch.Tensor], what: str | None = None) -> None:
    """
    Frees what was derived of these parameters (prepacked weights, vectors of tokens, the state
    after the warm-up text), or what of it has this name; it is made again when it is needed.
    """
    _derived.forget(parameters, what)
