"""
Plain layers: those that compute what their class defines, from their weights alone. The kernels
read weights instead of calling layers, so they run over plain layers only.
"""

import functools
import logging
from collections.abc import Iterable
from typing import Any, cast

import torch
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
# Attributes of an instance that replace a method.
_METHODS = (
    "forward", "_conv_forward", "_call_impl", "_wrapped_call_impl", "_compiled_call_impl",
    "_slow_forward",
)  # fmt: skip
# The same, and attributes that are no parameters if they hold a tensor.
_ASSIGNED = *_METHODS, "weight", "bias", "_char_embedding_weights"
_CALLS = [(one, one.forward, one.__call__) for one in (torch.nn.Linear, torch.nn.Conv1d)]
# Classes of plain weights. Others, such as quantized ones, may multiply in a way of their own.
TENSORS = {torch.nn.Parameter, WatchedParameter, torch.Tensor}
# Layer, its expected class, and whether it has a bias.
Layer = tuple[torch.nn.Module, type[torch.nn.Module], bool]


def plain_affines(layers: Iterable[Layer]) -> list[Affine] | None:
    """
    Return the current weight and bias of each linear or convolution layer. Where one is not plain,
    log why, and return `None`: the caller must then call the layers.

    Pruned, weight-normed, spectral-normed and parametrized layers are plain here: their weight is
    computed as a call of the layer would compute it.
    """
    if torch.compiler.is_exporting():  # it replaces weights and calls; `export_onnx` has checked
        return [Affine(cast(Any, one).weight, cast(Any, one).bias) for one, _, _ in layers]
    reason = _of_all_modules()
    affines = []
    for layer, kind, has_bias in layers:
        own = layer.__dict__
        if reason is None and not _is_plain(layer, kind, own):
            reason = _not_plain(layer, kind)
        if reason is None:
            for hook in own["_forward_pre_hooks"].values():
                hook(layer, ())
            parameters = own["_parameters"]
            weight, bias = (
                parameters[name] if name in parameters else getattr(layer, name)
                for name in ("weight", "bias")
            )
            is_usual = type(weight) in TENSORS and (
                type(bias) in TENSORS if has_bias else bias is None
            )
            if is_usual and (kind is not torch.nn.Conv1d or _has_usual_settings(layer)):
                affines.append(Affine(weight, bias))
                continue
            reason = f"a {kind.__name__} has other weights or settings than it was made with"
        say_slower(reason)
        return None
    return affines


def is_plain(layer: torch.nn.Module, kind: type[torch.nn.Module]) -> bool:
    """Return whether a layer without weights of its own is plain; log it if it is not."""
    if torch.compiler.is_exporting() or (
        _of_all_modules() is None and _is_plain(layer, kind, layer.__dict__)
    ):
        return True
    say_slower(f"a {kind.__name__} was replaced or hooked")
    return False


def depends_on_parameters_alone(module: torch.nn.Module) -> bool:
    """Return whether a module's output depends on nothing but its parameters and settings."""
    if _of_all_modules() is not None:
        return False
    modules = [module]
    for one in modules:  # grows
        own, kind = one.__dict__, cast(Any, type(one))
        if not _is_known(kind) or not _is_plain(one, kind, own):
            return False
        if kind is torch.nn.Conv1d and not _has_usual_settings(one):
            return False
        modules += one.children()
    return True


def _is_plain(layer: torch.nn.Module, kind: type[Any], own: dict[str, Any]) -> bool:
    """Return whether a layer is plain, except that its weight may be a computed one."""
    return (
        type(layer) is kind
        and (not own["_forward_hooks"] or _only_verify(own["_forward_hooks"]))
        and not own["_forward_pre_hooks"]
        and not own["_backward_hooks"]
        and not own["_backward_pre_hooks"]
        and own.keys().isdisjoint(_ASSIGNED)
    )


def _not_plain(layer: torch.nn.Module, kind: type[Any]) -> str | None:
    """Return why a layer is not plain; `None` if it is, except that its weight is computed."""
    cls, own = type(layer), layer.__dict__
    is_parametrized = (
        "parametrizations" in own.get("_modules", ())
        and cls.__bases__ == (kind,)
        and cls.__module__ == "torch.nn.utils.parametrize"
    )
    if cls is not kind and not is_parametrized:
        return f"a {cls.__module__}.{cls.__qualname__} takes the place of a {kind.__name__}"
    hooks = [own[f"_{name}_hooks"] for name in ("backward", "backward_pre")]
    pre_hooks = own["_forward_pre_hooks"].values()
    hooked = any(hooks) or not _only_verify(own["_forward_hooks"])
    if hooked or not all(map(_only_reweights, pre_hooks)):
        return f"a {kind.__name__} has hooks"
    if not own.keys().isdisjoint(_METHODS):
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


def _of_all_modules() -> str | None:
    """Return what changes the calls of all modules: global hooks, or a replaced method."""
    if torch_private.may_have_global_hooks():
        return "hooks are registered for all modules"
    for kind, forward, call in _CALLS:
        if kind.forward is not forward or kind.__call__ is not call:
            return f"a method of {kind.__name__} was replaced"
    return None


def _has_usual_settings(layer: Any) -> bool:
    return (
        layer.stride == (1,)
        and layer.padding == (0,)
        and layer.dilation == (1,)
        and layer.groups == 1
        and layer.padding_mode == "zeros"
    )


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
