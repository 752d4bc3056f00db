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
from operator import attrgetter, is_, itemgetter
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
_settings = itemgetter("stride", "padding", "dilation", "groups", "padding_mode")
_USUAL_SETTINGS = (1,), (0,), (1,), 1, "zeros"
# Dictionaries of a module whose content decides whether it is plain. Programs that were written for
# AllenNLP's token layer set its activation in the last one.
_PLACES = *torch_private.HOOKS, "_parameters", "_modules", "_options"
# Attribute of a module with the `_Look` and the result of the last `while_unchanged`.
CHECK = "_plain_check"
Result = TypeVar("Result")
P = ParamSpec("P")
Returned = TypeVar("Returned")
Kind = TypeVar("Kind", bound=type[Any])
# Layer, its expected class, and whether it has a bias.
Layer = tuple[Any, Any, bool]


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
    found, exports = [], torch.compiler.is_exporting()
    for layer, kind, has_bias in layers:
        # An export replaces weights and calls; `export_onnx` has checked the layers.
        reason = None if exports else _of_all_modules() or _not_plain(layer, kind)
        if reason is None:
            for hook in layer._forward_pre_hooks.values():
                hook(layer, ())
            weight, bias = layer.weight, layer.bias
            if not exports and not (
                type(weight) in TENSORS
                and weight.layout is torch.strided
                and (type(bias) in TENSORS if has_bias else bias is None)
                and (kind is not torch.nn.Conv1d or _settings(vars(layer)) == _USUAL_SETTINGS)
            ):
                reason = f"a {kind.__name__} has other weights or settings than it was made with"
        if reason is not None:
            say_slower(reason)
            return None
        found.append(Affine(weight, bias))
    return found


def is_plain(layer: torch.nn.Module, kind: type[Any]) -> bool:
    """Return whether a layer without weights of its own is plain; log it if it is not."""
    if torch.compiler.is_exporting() or (_of_all_modules() is None and _is_plain(layer, kind)):
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
    Snapshot of all that decides whether a module and those within it stay plain: their classes and
    attributes, and what is in the dictionaries of `_PLACES`. It is compared before every call, when
    none of it is in the processor's caches, so it is read in few steps.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        modules = list(all_modules(module))
        self._within = modules[1:]  # without the first, which would make a reference cycle
        self._classes: list[Any] = list(dict.fromkeys(map(type, modules)))
        places = [one[name] for one in map(vars, modules) for name in _PLACES if name in one]
        inner = [one for place in places for one in place.values() if isinstance(one, dict)]
        self._places = [*places, *inner]
        self._identical = self._now(module)
        self._attributes = list(map(dict, self._attributes_now(module)))

    def _now(self, module: torch.nn.Module) -> list[Any]:
        methods = chain.from_iterable(map(_methods, self._classes))
        values = gc.get_referents(*self._places)  # the fastest way to get them all
        return [type(module), *map(type, self._within), *methods, *values]

    def _attributes_now(self, module: torch.nn.Module) -> list[dict[str, Any]]:
        return [{**vars(module), CHECK: None}, *map(vars, self._within)]

    def is_same(self, module: torch.nn.Module) -> bool:
        """Return whether nothing has changed."""
        now = self._now(module)
        if len(now) != len(self._identical) or not all(map(is_, now, self._identical)):
            return False
        try:
            return self._attributes_now(module) == self._attributes
        except (RuntimeError, ValueError):  # another tensor or array, which has no truth value
            return False


def while_unchanged(module: torch.nn.Module, check: Callable[[], Result | None]) -> Result | None:
    """
    Return the result of `check`, and keep it with the module, for one check each. It is called
    again when the module, or one within it, has another class, attribute, child, parameter (as an
    object, whatever its numbers) or hook, and where it returned `None`: not plain.
    """
    known = vars(module).get(CHECK)
    if known and _of_all_modules() is None and known[0].is_same(module):
        return known[1]
    look = _Look(module)  # first: another thread may change a module meanwhile
    result = check()
    # A list: tuples are settings, of which digests are made.
    vars(module)[CHECK] = [] if result is None else [look, result]
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


def runs_as_defined(module: torch.nn.Module, kind: Any) -> bool:
    """
    Return whether a call of the module runs the `forward` that `kind`, or a subclass of it in this
    package, was defined with, and nothing else: no hook, and no `forward` that was set.
    """
    if module in _call.weights:
        return True
    cls: Any = type(module)
    own, (forward_hooks, *others) = vars(module), _hooks(vars(module))
    defined = (_defined_methods[one] for one in cls.__mro__ if one in _defined_methods)
    return (
        isinstance(module, kind)
        and _methods(cls) == next(defined, None)
        and "forward" not in own
        and not any(others)
        and _only_verify(forward_hooks)
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
    if _defined_methods.get(kind) != _methods(kind):
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


@functools.cache
def say_slower(reason: str) -> None:
    """Log why layers are called, once in each process for each reason."""
    logger.warning("Layers are called one by one, which is slower than the kernels: %s", reason)
