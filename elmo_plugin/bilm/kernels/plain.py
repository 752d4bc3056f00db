"""
Plain layers: those that compute what their class defines, from their weights alone. The kernels
read weights instead of calling layers, so they run over plain layers only.
"""

import functools
import gc
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from operator import attrgetter, call, is_, itemgetter
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import ParametrizationList
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from elmo_plugin.bilm.kernels import torch_private
from elmo_plugin.bilm.kernels.derived import WatchedParameter
from elmo_plugin.bilm.kernels.interface import Affine

logger = logging.getLogger(__name__)

# Forward pre-hooks that do no more than compute the weight from other parameters.
_REWEIGHT = (BasePruningMethod, SpectralNorm, WeightNorm)
VERIFICATION = "allennlp.confidence_checks.normalization_bias_verification"
# Classes of plain weights. Others, such as quantized ones, may multiply in a way of their own.
TENSORS = {torch.nn.Parameter, WatchedParameter, torch.Tensor}
_PARAMETERS = TENSORS | {type(None)}
_WEIGHTS = {"weight", "bias", "_char_embedding_weights"}  # of plain layers parameters
_hooks = itemgetter(*torch_private.HOOKS)
_methods = attrgetter("forward", "__call__")
# Classes of plain modules, with their methods as they are defined.
_defined_methods: dict[Any, tuple[Any, ...]] = {
    kind: _methods(kind)
    for kind in (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Embedding, torch.nn.ModuleList)
}
_contents = itemgetter(0, 1)  # of what a `_reader` reads
CONV_SETTINGS = "stride", "padding", "dilation", "groups", "padding_mode"
_settings = itemgetter(*CONV_SETTINGS)
_USUAL_SETTINGS = (1,), (0,), (1,), 1, "zeros"
# Attribute of a module with the last result of `while_unchanged`, and its `_Look`.
CHECK = "_plain_check"
Result = TypeVar("Result")
P = ParamSpec("P")
Returned = TypeVar("Returned")
Kind = TypeVar("Kind", bound=type[Any])
# Layer, its expected class, and whether it has a bias.
Layer = tuple[torch.nn.Module, Any, bool]


def plain_class(kind: Kind) -> Kind:
    """
    Decorate a class whose modules may be plain. Its `forward` and `__call__` are noted, so that a
    later replacement of them is noticed.
    """
    _defined_methods[kind] = _methods(kind)
    return kind


def plain_affines(layers: Iterable[Layer]) -> list[Affine] | None:
    """
    Return the current weight and bias of each linear or convolution layer. Where one is not plain,
    log why, and return `None`: the caller must then call the layers.

    Layers that PyTorch prunes, normalizes or parametrizes are plain here, if their weight is the
    same at each use: it is computed as a call of the layer would compute it.
    """
    found = []
    for layer, kind, has_bias in layers:
        affine = _affine(layer, kind, has_bias)
        if affine is None:
            return None
        found.append(affine)
    return found


def _affine(layer: Any, kind: type[Any], has_bias: bool) -> Affine | None:
    """Return weight and bias as a call of the layer would compute them; or log why not."""
    # An export replaces weights and calls; `export_onnx` has checked the layers.
    reason = None if torch.compiler.is_exporting() else _of_all_modules() or _not_plain(layer, kind)
    if reason is None:
        for hook in layer._forward_pre_hooks.values():
            hook(layer, ())
        weight, bias = layer.weight, layer.bias
        if torch.compiler.is_exporting() or (
            _is_dense(weight)
            and (type(bias) in TENSORS if has_bias else bias is None)
            and (kind is not torch.nn.Conv1d or _settings(layer.__dict__) == _USUAL_SETTINGS)
        ):
            return Affine(weight, bias)
        reason = f"a {kind.__name__} has other weights or settings than it was made with"
    say_slower(reason)
    return None


def _is_dense(weight: Any) -> bool:
    return type(weight) in TENSORS and weight.layout is torch.strided


def is_plain(layer: torch.nn.Module, kind: type[Any]) -> bool:
    """Return whether a layer without weights of its own is plain; log it if it is not."""
    if _of_all_modules() is None and _is_plain(layer, kind):
        return True
    if torch.compiler.is_exporting():
        return True
    say_slower(f"a {kind.__name__} was replaced or hooked")
    return False


def depends_on_parameters_alone(module: torch.nn.Module) -> bool:
    """Return whether a module's output depends on nothing but its parameters and settings."""
    if _of_all_modules() is not None:
        return False
    for one in all_modules(module):
        own, kind = one.__dict__, cast(Any, type(one))
        if not _is_plain(one, kind) or own["_buffers"]:
            return False
        if any(type(weight) not in _PARAMETERS for weight in own["_parameters"].values()):
            return False
        if kind is torch.nn.Conv1d and _settings(own) != _USUAL_SETTINGS:
            return False
    return True


class _Look:
    """
    Snapshot of all that decides whether a module and those within it stay plain: their classes,
    attributes, parameters, hooks and settings. It is compared before every call, when none of it is
    in the processor's caches, so it is read in few steps.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        modules: list[Any] = list(all_modules(module))
        self._within = modules[1:]  # without the first, which would make a reference cycle
        self._attributes = list(map(vars, self._within))
        classes: list[Any] = list(map(type, modules))
        self._readers = list(map(_reader, classes))
        self._classes = list(dict.fromkeys(classes))
        self._num_handles = torch_private.num_hook_handles()
        self._hooks = list(chain.from_iterable(map(_hooks, map(vars, modules))))
        self._identical, self._equal = self._now(module)

    def _now(self, module: torch.nn.Module) -> tuple[list[Any], list[Any]]:
        """Return what must stay identical, and what must stay equal, which is faster to compare."""
        attributes = [vars(module), *self._attributes]
        read = list(map(call, self._readers, attributes))
        contents = gc.get_referents(*chain.from_iterable(map(_contents, read)))
        # The referents of a module are its class and its dictionary of attributes.
        identical = [type(module), *gc.get_referents(*self._within), *contents]
        # A method that is set is one more attribute.
        return identical, [read, list(map(tuple, attributes)), list(map(_methods, self._classes))]

    def is_same(self, module: torch.nn.Module) -> bool:
        """Return whether nothing has changed, and no module has hooks."""
        if any(self._hooks):
            return False
        identical, equal = self._now(module)
        if len(identical) != len(self._identical) or not all(map(is_, identical, self._identical)):
            return False
        handles = torch_private.num_hook_handles()
        if handles != self._num_handles:  # a dictionary of hooks may be a new one
            hooks = chain.from_iterable(map(_hooks, [vars(module), *self._attributes]))
            if not all(map(is_, hooks, self._hooks)):
                return False
            self._num_handles = handles
        return equal == self._equal


@functools.cache
def _reader(kind: Any) -> Any:
    """Return a function that reads parameters, children, hooks and settings from attributes."""
    settings = CONV_SETTINGS if kind is torch.nn.Conv1d else getattr(kind, "SETTINGS", ())
    functions = [one for one in settings if callable(one)]
    names = [one for one in settings if not callable(one)]
    read = itemgetter("_parameters", "_modules", *torch_private.HOOKS, *names)
    return (lambda own: (*read(own), *(one(own) for one in functions))) if functions else read


def while_unchanged(module: torch.nn.Module, check: Callable[[], Result | None]) -> Result | None:
    """
    Return the result of `check`, which is not called again while the module and those within it
    have the same children, parameters and settings, and no hooks.

    `None` stands for a module that is not plain, and is not remembered. A class names the settings
    that `check` reads in `SETTINGS`; a function there reads one from the attributes.
    """
    look, result = vars(module).setdefault(CHECK, [None, None])
    if look is not None and _of_all_modules() is None and look.is_same(module):
        return result
    try:
        look = _Look(module)  # first: another thread may change a module meanwhile
    except KeyError:  # a setting became a parameter
        look = None
    result = check()
    # A list: tuples are settings, of which digests are made.
    vars(module)[CHECK] = [None if result is None else look, result]
    return result


class _Call(threading.local):
    """Modules that are known to be plain in the current call, and their weights."""

    weights: Mapping[Any, Any] = {}


_call = _Call()


def checked_once(method: Callable[P, Returned]) -> Callable[P, Returned]:
    """Decorate a method, so that each call checks once whether the module's layers are plain."""

    @functools.wraps(method)
    def checked(*arguments: P.args, **named: P.kwargs) -> Returned:
        module: Any = arguments[0]
        before = _call.weights
        if module not in before and (weights := module.plain_weights) is not None:
            _call.weights = {**weights, module: weights}
        try:
            return method(*arguments, **named)
        finally:
            _call.weights = before

    return checked


def plain_weights(find: Callable[[Any], Any]) -> Any:
    """Make a property of a method that finds weights; see `checked_once`."""

    def get(module: Any) -> Any:
        known = _call.weights.get(module)
        return find(module) if known is None else known

    return property(functools.wraps(find)(get))


def has_hooks(module: torch.nn.Module) -> bool:
    """Return whether a module has hooks or a `forward` that was assigned."""
    forward_hooks, *others = _hooks(module.__dict__)
    return "forward" in module.__dict__ or any(others) or not _only_verify(forward_hooks)


def runs_as_defined(module: torch.nn.Module, kind: Any) -> bool:
    """
    Return whether a call of the module runs the `forward` that `kind`, or a subclass of it in this
    package, was defined with, and nothing else: no hook, and no `forward` that was set.
    """
    if module in _call.weights:
        return True
    cls: Any = type(module)
    defined = (_defined_methods[one] for one in cls.__mro__ if one in _defined_methods)
    return (
        isinstance(module, kind) and _methods(cls) == next(defined, None) and not has_hooks(module)
    )


def check_no_hooks(module: torch.nn.Module, kind: type[Any]) -> None:
    """Raise a `ValueError` if a call of the module does more than its class defines."""
    if not runs_as_defined(module, kind):
        raise ValueError(
            f"the {kind.__name__} has hooks or a forward of its own, which are not called here, "
            f"where its layers run one by one; expected them on its layers alone"
        )


def all_modules(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yield a module and all modules within it; `torch.nn.Module.modules` is ten times slower."""
    found = [module]
    for one in found:  # grows
        found += [child for child in one.__dict__["_modules"].values() if child is not None]
        yield one


def all_parameters(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return the parameters of `all_modules`."""
    own = (one.__dict__["_parameters"].values() for one in all_modules(module))
    return [one for values in own for one in values if one is not None]


def _is_plain(layer: torch.nn.Module, kind: Any) -> bool:
    """Return whether a layer is plain, and computes no weight."""
    own = layer.__dict__
    return (
        type(layer) is kind
        and not own["_forward_pre_hooks"]
        and _WEIGHTS.isdisjoint(own)
        and _not_plain(layer, kind) is None
    )


@functools.cache
def _members(kind: Any) -> frozenset[str]:
    return frozenset(dir(kind))


def _not_plain(layer: Any, kind: Any) -> str | None:
    """Return why a layer is not plain; `None` if it is, except that its weight is computed."""
    cls, own = type(layer), layer.__dict__
    is_parametrized = (
        "parametrizations" in own.get("_modules", ())
        and cls.__bases__ == (kind,)
        and cls.__module__ == "torch.nn.utils.parametrize"
    )
    if cls is not kind and not is_parametrized:
        return f"a {cls.__module__}.{cls.__qualname__} takes the place of a {kind.__name__}"
    if not _is_as_defined(kind):
        return f"a method of {kind.__name__} was replaced"
    forward, pre, *others = _hooks(own)
    if any(others) or not _only_verify(forward) or not all(map(_only_reweights, pre.values())):
        return f"a {kind.__name__} has hooks"
    computing = [*pre.values(), *(layer.parametrizations.modules() if is_parametrized else ())]
    if any(_may_vary(one, layer.training) for one in computing):
        return f"a {kind.__name__} computes its weight anew at each use"
    if not _members(kind).isdisjoint(own):
        return f"a {kind.__name__} has a method of its own"
    return None


def _only_verify(hooks: dict[int, Any]) -> bool:
    """
    Return whether all hooks are of AllenNLP's confidence check, in a run's first batch. The check
    looks for a normalization after a bias, which no layer here has.
    """
    return all(getattr(one, "__module__", None) == VERIFICATION for one in hooks.values())


def _only_reweights(hook: Any) -> bool:
    calls = [kind.__call__ for kind in _REWEIGHT]
    return isinstance(hook, _REWEIGHT) and type(hook).__call__ in calls


def _may_vary(computing: Any, training: bool) -> bool:
    """
    Return whether a hook or parametrization that computes a weight may give another one at each use
    in a call: one that is not of PyTorch, and in training a spectral norm, which iterates.
    """
    kind = type(computing)
    if isinstance(computing, _REWEIGHT):
        return training and isinstance(computing, SpectralNorm)
    if kind in (ParametrizationList, torch.nn.ModuleDict):
        return False
    buffers = any(True for _ in computing.buffers())
    return kind.__module__ != parametrizations.__name__ or (computing.training and buffers)


def _of_all_modules() -> str | None:
    """Return what changes the calls of all modules: global hooks, modes, or a replaced method."""
    if torch_private.may_have_global_hooks():
        return "hooks are registered for all modules"
    if torch_private.modes_are_active():
        return "a mode sees each function or operation of PyTorch"
    if _functions() != _FUNCTIONS:
        return "a function of PyTorch was replaced"
    return None


def _functions() -> tuple[Any, ...]:
    """Return functions of PyTorch that layers call, which a program may have replaced."""
    return (
        functional.linear, functional.conv1d, functional.embedding, functional.relu, torch.relu,
        torch.sigmoid, torch.tanh, *torch_private.layer_calls(),
    )  # fmt: skip


_FUNCTIONS = _functions()


def _is_as_defined(kind: Any) -> bool:
    """Return whether a class is one of `plain_class`, and its methods were not replaced."""
    return _defined_methods.get(kind) == _methods(kind)


@functools.cache
def say_slower(reason: str) -> None:
    """Log why layers are called, once in each process for each reason."""
    logger.warning("Layers are called one by one, which is slower than the kernels: %s", reason)
