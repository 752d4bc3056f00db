"""
Private names of PyTorch: all that this package uses. Each is looked up at import, and has a
fallback where a version of PyTorch does not have it: slower, or without a check, which one warning
says.
"""

import hashlib
import warnings
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.nn.modules import module as torch_module

# Where `torch.nn.Module` stores hooks, parameters and children.
HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
_PLACES = *HOOKS, "_parameters", "_modules"


def _private(owner: Any, name: str, fallback: Any, loss: str) -> Any:
    """Return `owner`'s private `name`; without it, warn of the `loss` and return `fallback`."""
    if hasattr(owner, name):
        return getattr(owner, name)
    warnings.warn(
        f"PyTorch {torch.__version__} has no {getattr(owner, '__name__', owner)}.{name}: {loss}",
        stacklevel=3,
    )
    return fallback


_functorch_is_active: Callable[[], bool] = _private(
    torch._C,
    "_are_functorch_transforms_active",
    lambda: False,
    "torch.func needs elmo_plugin.bilm.kernels.backend.use_backend('reference')",
)
_graph_task: Callable[[], int] = _private(
    torch._C,
    "_current_graph_task_id",
    lambda: -1,
    "gradient checkpointing in state 'carry' is wrong and no error",
)
_private(
    forward_ad,
    "_current_level",
    None,
    "forward-mode AD needs elmo_plugin.bilm.kernels.backend.use_backend('reference')",
)
_functorch: Any = _private(
    torch._C, "_functorch", None, "torch.vmap in state 'carry' leaves a state that cannot be used"
)
# Return whether a tensor has values of its own: those of a batch of gradients are elsewhere.
has_storage: Callable[[torch.Tensor], bool] = _private(
    torch._C, "_has_storage", lambda _: True, "is_grads_batched=True is an error"
)
_has_global_hook: Callable[[], bool] = _private(
    torch_module, "_has_any_global_hook", lambda: True, "layers are called, which is slower"
)
_num_function_modes, _num_dispatch_modes = (
    _private(torch._C, name, lambda: 0, "modes of functions do not see the biLM's operations")
    for name in ("_len_torch_function_stack", "_len_torch_dispatch_stack")
)
_function_modes: Callable[[], Any] = _private(
    torch.overrides, "_get_current_function_mode_stack", list, "function modes see no layers"
)
_missing = [one for one in _PLACES if not hasattr(torch.nn.Module(), one)]
if _missing:
    warnings.warn(
        f"PyTorch {torch.__version__} has no torch.nn.Module.{_missing[0]}: layers are called, "
        "which is slower",
        stacklevel=2,
    )


def _content(tensor: torch.Tensor) -> int:
    octets = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
    return int.from_bytes(hashlib.blake2b(octets, digest_size=8).digest(), "little")


# Return a number that changes with every in-place operation on a tensor.
version_of: Callable[[torch.Tensor], int] = (
    attrgetter("_version") if hasattr(torch.Tensor, "_version") else _content
)


def transforms_are_active() -> bool:
    """Return whether a `torch.func` transform or forward-mode AD is running."""
    return _functorch_is_active() or getattr(forward_ad, "_current_level", -1) >= 0


def is_batched(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is one of many that `torch.vmap` computes at once."""
    if _functorch is None or not _functorch_is_active():
        return False
    while _functorch.is_functorch_wrapped_tensor(tensor):
        if _functorch.is_batchedtensor(tensor):
            return True
        tensor = _functorch.get_unwrapped(tensor)
    return False


def modes_are_active() -> bool:
    """Return whether a `TorchFunctionMode` or `TorchDispatchMode`, no default device, is active."""
    if _num_dispatch_modes():
        return True
    modes = _function_modes() if _num_function_modes() else ()
    return any(type(one).__name__ != "DeviceContext" for one in modes)


def layer_calls() -> tuple[Any, Any]:
    """Return what `torch.nn.Module.__call__` and `torch.nn.Conv1d.forward` call, or `None`s."""
    return (
        getattr(torch.nn.Module, "_call_impl", None),
        getattr(torch.nn.Conv1d, "_conv_forward", None),
    )


def is_in_backward() -> bool:
    """Return whether autograd is computing gradients in this thread."""
    return _graph_task() != -1


def may_have_global_hooks() -> bool:
    """Return whether hooks are registered for all modules, or it is not known where hooks are."""
    return bool(_missing) or _has_global_hook()


def not_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make `torch.compile` run a function eagerly, as `torch.compiler.disable` does."""
    # Set by hand: the decorator would import the compiler, which takes two seconds. Without this
    # name the function is only traced needlessly.
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function


def scan(step: Callable[..., Any], carry: Any, inputs: Any) -> tuple[Any, Any]:
    """
    Run `step(carry, inputs[t])`, which returns the next carry and an output, for every `t`. Return
    the last carry and the stacked outputs. An ONNX graph has a loop in its place.
    """
    try:
        from torch._higher_order_ops.scan import scan as of_torch
    except ImportError:
        outputs = []
        for now in zip(*inputs):
            carry, output = step(carry, now)
            outputs.append(output)
        return carry, torch.stack(outputs)
    return of_torch(step, carry, inputs)
