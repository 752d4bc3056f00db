"""
Plain layers: those that compute what their class defines, from their weights alone. The kernels
read weights instead of calling layers, so they run over plain layers only.
"""

import functools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, compress
from operator import call, is_, itemgetter
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
_CALLS = [(one, one.forward, one.__call__) for one in (torch.nn.Linear, torch.nn.Conv1d)]
_FUNCTIONS = functional.linear, functional.conv1d
# Classes of plain weights. Others, such as quantized ones, may multiply in a way of their own.
TENSORS = {torch.nn.Parameter, WatchedParameter, torch.Tensor}
_PARAMETERS = TENSORS | {type(None)}
_hooks = itemgetter(*torch_private.HOOKS)
LEAVES = torch.nn.Linear, torch.nn.Conv1d, torch.nn.Embedding
_children, _parameters = itemgetter("_modules"), itemgetter("_parameters")
_settings = itemgetter("stride", "padding", "dilation", "groups", "padding_mode")
_USUAL_SETTINGS = (1,), (0,), (1,), 1, "zeros"
# Attribute of a module with the last result of `while_unchanged`, and its `_Look`.
CHECK = "_plain_check"
Result = TypeVar("Result")
P = ParamSpec("P")
Returned = TypeVar("Returned")
# Layer, its expected class, and whether it has a bias.
Layer = tuple[torch.nn.Module, Any, bool]


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
    if _of_all_modules() is None and _is_plain(layer, kind, layer.__dict__):
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
        if not _is_known(kind) or not _is_plain(one, kind, own) or own["_buffers"]:
            return False
        if any(type(weight) not in _PARAMETERS for weight in own["_parameters"].values()):
            return False
        if kind is torch.nn.Conv1d and _settings(own) != _USUAL_SETTINGS:
            return False
    return True


class _Look:
    """
    All that decides whether a module and those within it stay plain, read in few steps: it is
    looked at before every call.

    # Parameters

    modules : `list[torch.nn.Module]`
        `all_modules` of a module.
    """

    def __init__(self, modules: list[Any]) -> None:
        kinds = list(map(type, modules))
        self._settled = list(map(_reader, kinds))
        self._readers = list(filter(None, self._settled))
        self._parents = [one not in LEAVES for one in kinds]
        own = list(map(vars, modules))
        self._owners = list(map(bool, map(_parameters, own)))
        self.within = modules[1:]  # without the first, which would make a reference cycle
        self.seen = list(self._now(modules, own))

    def _now(self, modules: list[Any], own: list[Any]) -> Iterator[Any]:
        return chain(
            map(type, modules),
            map(len, own),  # the number of attributes: methods may be set, settings deleted
            chain.from_iterable(map(dict.values, map(_children, compress(own, self._parents)))),
            chain.from_iterable(map(dict.values, map(_parameters, compress(own, self._owners)))),
            chain.from_iterable(map(call, self._readers, compress(own, self._settled))),
            (_Look,),  # a longer or shorter list differs here
        )

    def is_same(self, module: torch.nn.Module) -> bool:
        """Return whether nothing has changed, and no module has hooks."""
        modules = [module, *self.within]
        own: list[Any] = list(map(vars, modules))
        if any(chain.from_iterable(map(_hooks, own))):
            return False
        return all(map(is_, self._now(modules, own), self.seen))


@functools.cache
def _reader(kind: Any) -> Any:
    """Return a function that reads a class's `SETTINGS` from attributes; `None` without any."""
    if kind is torch.nn.Conv1d:
        return _settings
    names = getattr(kind, "SETTINGS", ())
    return itemgetter(*names) if names else None


def while_unchanged(module: torch.nn.Module, check: Callable[[], Result | None]) -> Result | None:
    """
    Return the result of `check`, which is not called again while the module and those within it
    have the same children, parameters and settings, and no hooks.

    `None` stands for a module that is not plain, and is not remembered. A class names the settings
    that `check` reads in `SETTINGS`, at least two of them.
    """
    look, result = vars(module).setdefault(CHECK, [None, None])
    if look is not None and _of_all_modules() is None and look.is_same(module):
        return result
    try:
        look = _Look(all_modules(module))  # first: another thread may change a module meanwhile
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


def check_no_hooks(module: torch.nn.Module, kind: type[Any]) -> None:
    """Raise a `ValueError` if a call of the module does more than `kind.forward`."""
    if has_hooks(module) or cast(Any, type(module)).forward is not kind.forward:
        raise ValueError(
            f"the {kind.__name__} has hooks or a forward of its own, which are not called here, "
            f"where its layers run one by one; expected them on its layers alone"
        )


def all_modules(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Return a module and all modules within it; `torch.nn.Module.modules` is ten times slower."""
    found = [module]
    for one in found:  # grows
        found += [child for child in one.__dict__["_modules"].values() if child is not None]
    return found


def all_parameters(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return the parameters of `all_modules`."""
    own = (one.__dict__["_parameters"].values() for one in all_modules(module))
    return [one for values in own for one in values if one is not None]


def _is_plain(layer: torch.nn.Module, kind: Any, own: dict[str, Any]) -> bool:
    """Return whether a layer is plain, except that its weight may be a computed one."""
    hooks, pre_hooks, backward_hooks, backward_pre_hooks = _hooks(own)
    return (
        _members(kind).isdisjoint(own)
        and type(layer) is kind
        and not (pre_hooks or backward_hooks or backward_pre_hooks)
        and (not hooks or _only_verify(hooks))
    )


@functools.cache
def _members(kind: Any) -> frozenset[str]:
    """
    Return the names that an instance must not have of its own: what its class defines, and names
    of weights, which are parameters.
    """
    return _defined(kind) | {"weight", "bias", "_char_embedding_weights"}


@functools.cache
def _defined(kind: Any) -> frozenset[str]:
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
    forward, pre, *others = _hooks(own)
    if any(others) or not _only_verify(forward) or not all(map(_only_reweights, pre.values())):
        return f"a {kind.__name__} has hooks"
    computing = [*pre.values(), *(layer.parametrizations.modules() if is_parametrized else ())]
    if any(_may_vary(one, layer.training) for one in computing):
        return f"a {kind.__name__} computes its weight anew at each use"
    if not _defined(kind).isdisjoint(own):
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
    if (functional.linear, functional.conv1d) != _FUNCTIONS:
        return "a function of torch.nn.functional was replaced"
    for kind, forward, dunder_call in _CALLS:
        if kind.forward is not forward or kind.__call__ is not dunder_call:
            return f"a method of {kind.__name__} was replaced"
    return None


@functools.cache
def _is_known(kind: Any) -> bool:
    """Return whether a class is one of this package's or a layer of PyTorch that these hold."""
    package = kind.__module__.split(".")[0]
    return package == __name__.split(".")[0] or kind in (
        torch.nn.Linear, torch.nn.Conv1d, torch.nn.Embedding, torch.nn.ModuleList,
    )  # fmt: skip


@functools.cache
def say_slower(reason: str) -> None:
    """Log why layers are called, once in each process for each reason."""
    logger.warning("Layers are called one by one, which is slower than the kernels: %s", reason)
