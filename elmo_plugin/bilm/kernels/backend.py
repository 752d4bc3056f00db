"""
Entry point to the kernels, and the only module of this package that `bilm/model` imports. Models
call `backend()` and subclass `WeightsModule`.

To compute with the reference implementation instead of the fast kernels:

    with use_backend("reference"):
        ...
"""
# ruff: noqa: F401

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from operator import itemgetter
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import torch

from elmo_plugin.bilm.kernels import fast, reference, torch_private
from elmo_plugin.bilm.kernels.derived import derived, in_doubt
from elmo_plugin.bilm.kernels.derived import forget as forget_derived
from elmo_plugin.bilm.kernels.fast import auto_training_dtype, frozen_bilstm, wants_gradient
from elmo_plugin.bilm.kernels.interface import (
    DTYPES,
    TRAINING_DTYPES,
    BiLstmState,
    LstmModules,
    LstmState,
    LstmWeights,
    Precision,
    TokenModules,
    TokenWeights,
)
from elmo_plugin.bilm.kernels.machine import single_thread_after_fork
from elmo_plugin.bilm.kernels.plain import (
    CHECK,
    all_modules,
    all_parameters,
    check_no_hooks,
    checked_once,
    depends_on_parameters_alone,
    is_plain,
    plain_affines,
    plain_class,
    plain_weights,
    runs_as_defined,
    say_slower,
    while_unchanged,
)
from elmo_plugin.bilm.kernels.reference import highways, lstm_steps
from elmo_plugin.bilm.kernels.reference import lstm_layer as call_lstm_modules
from elmo_plugin.bilm.kernels.reference import token_layer as call_token_modules
from elmo_plugin.bilm.kernels.torch_private import is_batched, is_in_backward

NOT_PLAIN = (
    "a layer of the biLM was replaced, hooked, parametrized or given other settings, expected the "
    "biLM as it was made, because its weights alone are read here; adapters can be merged into the "
    "weights, hooks and pruning removed (torch.nn.utils.prune.remove)"
)
# Modules with the same functions; `reference.py` defines their results.
BACKENDS = {"fast": fast, "reference": reference}

_name: ContextVar[str] = ContextVar("backend", default="fast")

Weights = TypeVar("Weights")
P = ParamSpec("P")
Result = TypeVar("Result")


def backend() -> ModuleType:
    """
    Return the backend that `use_backend` chose, by default the fast one. `torch.func` transforms
    and forward-mode AD always get the reference, because the fast backend does not support them.
    """
    if torch_private.transforms_are_active():
        return reference
    return BACKENDS[_name.get()]


def run_eagerly(function: Callable[P, Result]) -> Callable[P, Result]:
    """
    Decorate a function so that `torch.compile` runs it eagerly, and `torch.jit.trace` and
    `torch.export` raise a `RuntimeError`.
    """

    @functools.wraps(function)
    def run(*arguments: P.args, **named: P.kwargs) -> Result:
        # This comes first, because during compilation the two conditions below are true as well.
        if torch.compiler.is_dynamo_compiling():
            return _not_compiled(function)(*arguments, **named)
        if torch.compiler.is_exporting() or torch.jit.is_tracing():
            raise RuntimeError(
                "torch.jit.trace and torch.export cannot record a biLM, whose loops depend on "
                "sentence lengths; `python -m elmo_plugin export-onnx` writes one that runs "
                "without Python"
            )
        return function(*arguments, **named)

    return run


@torch_private.not_compiled
def _not_compiled(function: Callable[P, Result]) -> Callable[P, Result]:
    return _disabled(function)


# Cached, as a new function at every call makes `torch.compile` recompile the caller.
_disabled = functools.cache(torch.compiler.disable)


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """
    Context manager: within the block, all biLMs in this thread compute with the backend `name`.

    # Parameters

    name : `str`
        `"reference"` or `"fast"`.

    # Raises

    `ValueError`
        If there is no backend of this name.
    """
    if name not in BACKENDS:
        raise ValueError(f"backend is {name!r}, expected one of {tuple(BACKENDS)}")
    token = _name.set(name)
    try:
        yield
    finally:
        _name.reset(token)


def runs_whole_lstms(tokens: torch.Tensor) -> bool:
    """Return whether `frozen_bilstm` may run an LSTM over these token vectors."""
    return tokens.is_cuda and backend() is BACKENDS["fast"]


def check_ids(
    ids: Any,
    content: str = "character ids, shape (batch_size, num_tokens, 50); use batch_to_ids(sentences)",
) -> None:
    """Raise a `ValueError` if `ids` is not an integer tensor; the message asks for `content`."""
    if not isinstance(ids, torch.Tensor):
        found = f"{' '.join(repr(ids).split())[:60]} ({type(ids).__name__})"
        raise ValueError(f"found {found}, expected a tensor of {content}")
    if ids.dtype not in (torch.int16, torch.int32, torch.int64):
        raise ValueError(f"found ids of dtype {ids.dtype}, expected a torch.int64 tensor")


def plain(weights: Weights | None) -> Weights:
    """Return the weights of a plain layer; raise a `ValueError` for `None`, one that is not."""
    if weights is None:
        raise ValueError(NOT_PLAIN)
    return weights


def any_weight(module: torch.nn.Module) -> torch.Tensor:
    """
    Return one of a module's weights, whose device and dtype are those of its states; an empty
    tensor if it has none, as after `torch.ao.quantization.quantize_dynamic`.
    """
    # In a replica made by `DataParallel`, weights are attributes.
    for stored in (itemgetter("_parameters"), dict):
        for one in all_modules(module):
            for weight in stored(vars(one)).values():
                if isinstance(weight, torch.Tensor) and weight.is_floating_point():
                    return weight
    return torch.empty(0)


def trains(module: torch.nn.Module) -> bool:
    """Return whether a module has a parameter that gets a gradient."""
    return any(one.requires_grad for one in all_parameters(module))


class WeightsModule(torch.nn.Module):
    """
    Base class of modules whose weights the kernels use. The kernels cache values that they derive
    from the weights (`derived.py`). `state_dict` and copies of the module do not contain them.

    # Attributes

    dtype, training_dtype : `str | None`
        Dtype of matrix products when no gradient is needed, and when one is; see `Precision`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dtype: str | None = None
        self.training_dtype: str | None = None

    @property
    def precision(self) -> Precision:
        """Precision of this module's matrix products."""
        return Precision(self.dtype, self.training_dtype)

    def forget_derived(self) -> None:
        """
        Free the values derived from the weights. Call it after changing a few elements of a weight
        through a view that was taken before the last call, such as a NumPy array.
        """
        forget_derived(list(self.parameters()))

    def train(self, mode: bool = True) -> "WeightsModule":
        """
        Set training or evaluation mode. If that changes the mode, the next use of a value derived
        from the weights compares their content.
        """
        if mode != self.training:
            in_doubt(list(self.parameters()))
        return super().train(mode)

    def __prepare_scriptable__(self) -> None:
        """Raise a `TypeError`: `torch.jit.script` calls this hook, but cannot compile a biLM."""
        raise TypeError(
            "torch.jit.script cannot compile a biLM, whose loops depend on sentence lengths; "
            "`python -m elmo_plugin export-onnx` writes one that runs without Python"
        )


def warn_of_non_finite_weights(module: torch.nn.Module, _: Any = None) -> None:
    """Warn if a weight holds NaN or infinite values. `BiLm` calls it after `load_state_dict`."""
    for name, parameter in module.named_parameters():
        values = parameter.detach()
        # The sum is a quick first test. It can overflow, so a non-finite sum proves nothing yet.
        if not values.is_meta and not (values.sum().isfinite() or values.isfinite().all()):
            warnings.warn(
                f"the loaded weight {name} holds NaN or infinite values: so will the vectors",
                stacklevel=2,
            )
            return
