"""
What is derived from weights: prepacked copies, vectors of tokens, the state after the warm-up text.

The one owner of the question whether a weight has changed. Nothing derived is part of a module, of
its `state_dict` or of a copy of it; it goes when the weight goes.
"""

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

Derived = TypeVar("Derived")


class _Entry(NamedTuple):
    parameters: list["weakref.ref[torch.Tensor]"]
    # Shares each parameter's memory: while it is held, no other tensor can come to lie there.
    aliases: list[torch.Tensor]
    places: list[int]
    versions: list[int]
    value: Any

    def is_of(self, parameters: Sequence[torch.Tensor]) -> bool:
        # Asked at every call of every layer, so without calls of its own.
        for known, place, version, one in zip(
            self.parameters, self.places, self.versions, parameters
        ):
            if known() is not one or one.data_ptr() != place:
                return False
            if version != NO_VERSION and one._version != version:
                return False
        return len(self.parameters) == len(parameters)


# Of tensors made in inference mode, of whose changes PyTorch keeps no record.
NO_VERSION = -1


def _version(tensor: torch.Tensor) -> int:
    return NO_VERSION if tensor.is_inference() else tensor._version


# By the first parameter's id, then by what is derived.
_known: dict[int, dict[tuple[Hashable, ...], _Entry]] = {}


def derived(
    parameters: Sequence[torch.Tensor], what: tuple[Hashable, ...], make: Callable[[], Derived]
) -> Derived:
    """
    What `make` gives, made again only when a parameter has changed.

    Seen are changes in place (optimizers, `load_state_dict`, `torch.no_grad()`), another tensor
    assigned to `.data`, another parameter, another device or type. Not seen is what is written
    through `p.data` or `p.detach()` in place, or into a tensor made in `inference_mode`: PyTorch
    keeps no record of it. `forget` helps there; modules call it from `train()` and `eval()`.

    Safe in several threads: at worst two make the same.

    # Parameters

    parameters : `Sequence[torch.Tensor]`
        All that it depends on. Of none, as a replica of `DataParallel`'s has, nothing is kept.
    what : `tuple[Hashable, ...]`
        Its name, and every setting that it depends on.
    make : `Callable[[], Derived]`
        Makes it, without arguments.
    """
    if not parameters:
        return make()
    first = parameters[0]
    entries = _known.get(id(first))
    entry = None if entries is None else entries.get(what)
    if entry is None or not entry.is_of(parameters):
        versions = [_version(one) for one in parameters]
        aliases = [one.detach() for one in parameters]
        # When the first parameter goes, so does all that was derived of it.
        number = id(first)
        references = [
            weakref.ref(first, lambda _: _known.pop(number, None)),
            *(weakref.ref(one) for one in parameters[1:]),
        ]
        places = [one.data_ptr() for one in parameters]
        entry = _Entry(references, aliases, places, versions, make())
        _known.setdefault(number, {})[what] = entry
    return entry.value


def forget(parameters: Sequence[torch.Tensor], name: str | None = None) -> None:
    """
    Frees what was derived of any of these, or only what has this name, the first part of `what`; it
    is made again when it is needed.
    """
    ids = {id(one) for one in parameters}
    for first, entries in list(_known.items()):
        for what, entry in list(entries.items()):
            if name is not None and what[0] != name:
                continue
            if first in ids or any(id(one()) in ids for one in entry.parameters):
                entries.pop(what, None)
        if not entries:
            _known.pop(first, None)


def kept(parameters: Sequence[torch.Tensor]) -> list[tuple[Hashable, ...]]:
    """Names of what is kept of these now."""
    ids = {id(one) for one in parameters}
    return [what for first, entries in list(_known.items()) if first in ids for what in entries]


def signs(parameters: Sequence[torch.Tensor]) -> Hashable:
    """What shows on the outside of a change, as `derived` sees it; costs nothing."""
    return tuple((id(one), _version(one), one.data_ptr()) for one in parameters)
