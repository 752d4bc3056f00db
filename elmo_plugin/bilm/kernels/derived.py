"""
Cache of values computed from weights: prepacked copies, token vectors, the state after the warm-up
text.

A value is computed again after its weights have changed. Modules do not store the values, which are
therefore in no `state_dict` and in no copy of a module. They are freed with the weights.
"""

import functools
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

Derived = TypeVar("Derived")

# About this many elements of each weight are compared at every use, to notice a change.
NUM_SAMPLES = 8
# Stands for the version of an inference tensor, whose changes PyTorch does not count.
NO_VERSION = -1


class _Entry(NamedTuple):
    parameters: list["weakref.ref[torch.Tensor]"]
    # Views of the parameters: while they hold the memory, no other tensor can get its address.
    aliases: list[torch.Tensor]
    pointers: list[int]
    versions: list[int]
    samples: list[torch.Tensor]
    sampled: torch.Tensor | None
    value: Any

    def is_current(self, parameters: Sequence[torch.Tensor]) -> bool:
        # A single loop for speed: this runs at every call of every layer.
        for known, pointer, version, one in zip(
            self.parameters, self.pointers, self.versions, parameters
        ):
            if known() is not one or one.data_ptr() != pointer:
                return False
            if version != NO_VERSION and one._version != version:
                return False
        return len(self.parameters) == len(parameters) and (
            self.sampled is None or torch.equal(torch.cat(self.samples), self.sampled)
        )


# Cached entries: id of the first parameter -> (name, settings) -> entry.
_entries: dict[int, dict[tuple[Hashable, ...], _Entry]] = {}


def derived(
    parameters: Sequence[torch.Tensor], what: tuple[Hashable, ...], make: Callable[[], Derived]
) -> Derived:
    """
    Return the cached result of `make`; call `make` again when a parameter has changed.

    These changes are noticed: a step of any `torch.optim.Optimizer`, in-place operations that
    PyTorch's version counter counts, a new tensor in `.data`, another parameter, device or dtype.

    The version counter misses writes through `p.data`, `torch.distributed` collectives or a NumPy
    view. On a CPU, a few elements of each weight are therefore compared as well. This detects a
    write to a whole tensor. After a write to a few elements, call `train` or `forget`.

    Thread-safe; at worst, two threads compute the same value.

    # Parameters

    parameters : `Sequence[torch.Tensor]`
        All tensors that the value depends on. If there are none, as in a replica made by
        `DataParallel`, nothing is cached.
    what : `tuple[Hashable, ...]`
        Name of the value, followed by every setting that it depends on.
    make : `Callable[[], Derived]`
        Function that computes the value.
    """
    if not parameters:
        return make()
    first = parameters[0]
    entries = _entries.get(id(first))
    entry = None if entries is None else entries.get(what)
    if entry is None or not entry.is_current(parameters):
        entry = _new_entry(parameters, make)
        _entries.setdefault(id(first), {})[what] = entry
    return entry.value


def _new_entry(parameters: Sequence[torch.Tensor], make: Callable[[], Any]) -> _Entry:
    number = id(parameters[0])
    references = [
        # `_entries` is an argument, because globals may be cleared first at the interpreter's exit.
        weakref.ref(parameters[0], functools.partial(_remove, _entries, number)),
        *(weakref.ref(one) for one in parameters[1:]),
    ]
    aliases = [one.detach() for one in parameters]
    # Only on a CPU: on a GPU the comparison would wait for all queued kernels.
    samples = [_sample(one) for one in aliases if one.device.type == "cpu" and one.numel()]
    # Read before `make` runs, so that a change by another thread meanwhile is noticed.
    versions = [_version(one) for one in parameters]
    sampled = torch.cat(samples) if samples else None
    pointers = [one.data_ptr() for one in parameters]
    return _Entry(references, aliases, pointers, versions, samples, sampled, make())


def _remove(entries: dict[int, Any], number: int, _: Any) -> None:
    entries.pop(number, None)


def _sample(weight: torch.Tensor) -> torch.Tensor:
    """Return a few elements, reinterpreted as integers because NaN is unequal to itself."""
    if weight.is_contiguous():
        flat = weight.view(-1)
    else:  # `view(-1)` may fail for other strides: take the first column
        flat = weight
        while flat.dim() > 1:
            flat = flat.select(-1, 0)
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    spread = flat[:: max(1, len(flat) // NUM_SAMPLES)]
    return spread.view(integers[weight.element_size()])


def _version(tensor: torch.Tensor) -> int:
    return NO_VERSION if tensor.is_inference() else tensor._version


def forget(parameters: Sequence[torch.Tensor], name: str | None = None) -> None:
    """
    Free the values derived from any of these parameters. With `name`, free only the values whose
    key (`what`) begins with it.
    """
    ids = {id(one) for one in parameters}
    for first, entries in list(_entries.items()):
        for what, entry in list(entries.items()):
            if name is not None and what[0] != name:
                continue
            if first in ids or any(id(one()) in ids for one in entry.parameters):
                entries.pop(what, None)
        if not entries:
            _entries.pop(first, None)


def _forget_after_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Free values of an optimizer's parameters; version counters miss fused and `.data` steps."""
    if _entries:
        groups = optimizer.param_groups
        forget([one for group in groups for one in group["params"] if one.requires_grad])


register_optimizer_step_post_hook(_forget_after_step)


def cached_names(parameters: Sequence[torch.Tensor]) -> list[tuple[Hashable, ...]]:
    """Return name and settings of each cached value whose first parameter is in `parameters`."""
    ids = {id(one) for one in parameters}
    return [what for first, entries in list(_entries.items()) if first in ids for what in entries]


def version_counters(parameters: Sequence[torch.Tensor]) -> Hashable:
    """Return `(id, version, address)` of each parameter; comparing these reveals most changes."""
    return tuple((id(one), _version(one), one.data_ptr()) for one in parameters)
