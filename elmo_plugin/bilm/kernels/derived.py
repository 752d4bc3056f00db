"""
Cache of values computed from weights: prepacked copies, token vectors, the state after the warm-up
text.

A value is stored with the first weight that it depends on, and freed with it. It is in no
`state_dict` and in no copy of a module. It is computed again after its weights have changed.
"""

import functools
import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from elmo_plugin.bilm.kernels import torch_private

Derived = TypeVar("Derived")

# About this many elements of each weight are compared at every use, to notice a change.
NUM_SAMPLES = 8
# Stands for the version of an inference tensor, whose changes PyTorch does not count.
NO_VERSION = -1
# Columns in which `checksum` sums 8-byte words. The number is prime, so that swapping two rows of a
# weight changes the sums.
NUM_COLUMNS = 1021

_DATA: Any = torch.Tensor.data
# Attribute of a weight with its `_Record`.
_RECORD = "_derived_record"
# `busy` is set while this module or `make` reads weights: these accesses write nothing.
_own_access = threading.local()


class _Entry(NamedTuple):
    # Records of all weights but the first, which would make a reference cycle.
    others: list["_Record"]
    samples: list[torch.Tensor]
    sampled: torch.Tensor | None
    value: Any


class _Record:
    """Content of a weight when values were derived from it, and these values."""

    def __init__(self, weight: torch.Tensor) -> None:
        # While this view holds the memory, no other tensor can get its address.
        self.alias = torch.Tensor.detach(weight)
        # Address of the values; `None` once they have changed.
        self.pointer: int | None = weight.data_ptr()
        self.version = _version(weight)
        self.checked = True
        self.checksum = checksum(self.alias)
        # Maps name and settings of a value to the value.
        self.entries: dict[tuple[Hashable, ...], _Entry] = {}

    def is_current(self, weight: torch.Tensor) -> bool:
        """Return whether the weight has not changed; compare its content if this is in doubt."""
        if weight.data_ptr() != self.pointer:
            return False
        if self.version != NO_VERSION and torch_private.version_of(weight) != self.version:
            return False
        if not self.checked:
            self.checked = True  # first: another thread may write meanwhile
            try:
                if not torch.equal(checksum(self.alias), self.checksum):
                    self.pointer = None
                    return False
            except BaseException:  # interrupted
                self.checked = False
                raise
        return True


class WatchedParameter(torch.nn.Parameter):
    """
    Parameter from which a value was derived. Writes through `data`, a NumPy view and the like leave
    PyTorch's version counter unchanged. So each access to these puts the content in doubt.
    """

    @property
    def data(self) -> torch.Tensor:
        """The values, without gradient and with a version counter of their own."""
        _doubt(self)
        return _DATA.__get__(self)

    @data.setter
    def data(self, values: torch.Tensor) -> None:
        _DATA.__set__(self, values)
        record = _record_of(self)
        if record is not None and self.data_ptr() != record.pointer:  # as in `.to()`: free memory
            forget([self])

    def detach(self) -> torch.Tensor:
        """The values without gradient."""
        _doubt(self)
        values = torch.Tensor.detach(self)
        # `torch.nn.Parameter(weight)` refuses to make a parameter of another class.
        by_parameter = sys._getframe(1).f_code is torch.nn.Parameter.__new__.__code__
        return values.as_subclass(WatchedParameter) if by_parameter else values

    def __repr__(self) -> str:  # type: ignore[override]
        values = torch.Tensor.detach(self).requires_grad_(self.requires_grad)
        return f"Parameter containing:\n{values!r}"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as a `torch.nn.Parameter`, without what was derived."""
        record = vars(self).pop(_RECORD, None)
        try:
            return super().__reduce_ex__(protocol)
        finally:
            if record is not None:
                vars(self)[_RECORD] = record
                record.checked = False  # what `copy.copy` returns is a view


def _doubt(weight: torch.Tensor) -> None:
    record = _record_of(weight)
    if record is not None and not getattr(_own_access, "busy", False):
        record.checked = False


def _watched(member: Any) -> Any:
    """Return a method or property of `torch.Tensor` that puts the weight's content in doubt."""
    get = member if callable(member) else member.__get__

    def access(weight: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        _doubt(weight)
        return get(weight, *arguments, **named)

    return functools.wraps(member)(access) if callable(member) else property(access)


# `data` and `numpy()` of a view, as in `weight[5].data`, write to the weight as its own do. The
# version counter misses what the last three write.
for _name in (
    "numpy", "untyped_storage", "__dlpack__", "__getitem__", "__iter__", "view", "view_as",
    "reshape", "reshape_as", "resize_as", "flatten", "unflatten", "ravel", "t", "transpose",
    "swapaxes", "swapdims", "movedim", "moveaxis", "permute", "adjoint", "T", "H", "mT", "mH",
    "narrow", "select", "unbind", "split", "split_with_sizes", "tensor_split", "hsplit", "vsplit",
    "chunk", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "squeeze", "unsqueeze",
    "expand", "expand_as", "broadcast_to", "diagonal", "unfold", "as_strided", "as_subclass",
    "rename", "refine_names", "resize", "slice_inverse", "apply_", "map_", "map2_",
):  # fmt: skip
    if hasattr(torch.Tensor, _name):  # PyTorch 2.14 has no names of dimensions
        setattr(WatchedParameter, _name, _watched(getattr(torch.Tensor, _name)))


def derived(
    parameters: Sequence[torch.Tensor], what: tuple[Hashable, ...], make: Callable[[], Derived]
) -> Derived:
    """
    Return the cached result of `make`; call `make` again when a parameter has changed.

    These changes are noticed:

    * a step of any `torch.optim.Optimizer`;
    * in-place operations that PyTorch's version counter counts;
    * writes after an access of `data`, `detach()`, `numpy()` or a view, by a method: a view by a
      function, as `torch.narrow(weight, ...)`, is not seen;
    * a new tensor in `.data`, another parameter, device or dtype.

    Not counted are writes through a view that was taken before the last use, through an address
    (`data_ptr()`), by another process, and by `torch.distributed` to the parameter itself. On a
    CPU, a few elements of each weight are therefore compared as well, which detects a write to a
    whole tensor; `in_doubt` has the whole content compared.

    Thread-safe; at worst, two threads compute the same value.

    # Parameters

    parameters : `Sequence[torch.Tensor]`
        All tensors that the value depends on. Nothing is cached if there are none, as in a replica
        made by `DataParallel`, or if one is no dense `torch.nn.Parameter`, such as a pruned weight.
    what : `tuple[Hashable, ...]`
        Name of the value, followed by every setting that it depends on.
    make : `Callable[[], Derived]`
        Function that computes the value.
    """
    record = _record_of(parameters[0]) if parameters else None
    entry = None if record is None else record.entries.get(what)
    if record is None or entry is None or not _is_current(record, entry, parameters):
        return _make(parameters, what, make)
    return entry.value


def _is_current(record: _Record, entry: _Entry, parameters: Sequence[torch.Tensor]) -> bool:
    if len(entry.others) + 1 != len(parameters) or not record.is_current(parameters[0]):
        return False
    for known, one in zip(entry.others, parameters[1:]):
        if _record_of(one) is not known or not known.is_current(one):
            return False
    if entry.sampled is None or torch.equal(torch.cat(entry.samples), entry.sampled):
        return True
    for known in (record, *entry.others):
        known.checked = False
    return _is_current(record, entry._replace(sampled=None), parameters)


def _make(
    parameters: Sequence[torch.Tensor], what: tuple[Hashable, ...], make: Callable[[], Any]
) -> Any:
    if not parameters or not all(
        isinstance(one, torch.nn.Parameter) and one.layout is torch.strided for one in parameters
    ):
        return make()
    before = getattr(_own_access, "busy", False)
    _own_access.busy = True
    try:
        # Recorded before `make` runs, so that a change by another thread meanwhile is noticed.
        first, *others = [_current_record(one) for one in parameters]
        # Only on a CPU: on a GPU the comparison would wait for all queued kernels.
        aliases = [one.alias for one in (first, *others)]
        samples = [_sample(one) for one in aliases if one.device.type == "cpu" and one.numel()]
        entry = _Entry(others, samples, torch.cat(samples) if samples else None, make())
    finally:
        _own_access.busy = before
    first.entries[what] = entry
    return entry.value


def _record_of(weight: torch.Tensor) -> _Record | None:
    return vars(weight).get(_RECORD)


def _current_record(weight: torch.Tensor) -> _Record:
    record = _record_of(weight)
    if record is None or not record.is_current(weight):
        record = _Record(weight)
        if type(weight) is torch.nn.Parameter:
            weight.__class__ = WatchedParameter
        vars(weight)[_RECORD] = record
    return record


def checksum(weight: torch.Tensor) -> torch.Tensor:
    """
    Return a checksum of a weight's bytes, int64, that detects accidental changes.

    It holds sums of 8-byte words, of columns and of rows: a swap changes one of them.
    """
    octets = torch.Tensor.detach(weight).contiguous().flatten().view(torch.uint8)
    if octets.storage_offset() % 8:
        octets = octets.clone()
    whole = octets.numel() // (8 * NUM_COLUMNS) * (8 * NUM_COLUMNS)
    words = octets[:whole].view(torch.int64).view(-1, NUM_COLUMNS)
    return torch.cat([words.sum(dim=0), words.sum(dim=1), octets[whole:].long()])


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
    return NO_VERSION if tensor.is_inference() else torch_private.version_of(tensor)


def in_doubt(parameters: Sequence[torch.Tensor]) -> None:
    """Have the content of these parameters compared before a derived value is used again."""
    for one in parameters:
        if (record := _record_of(one)) is not None:
            record.checked = False


def forget(parameters: Sequence[torch.Tensor], name: str | None = None) -> None:
    """
    Free the values derived from any of these parameters. With `name`, free only the values whose
    key (`what`) begins with it, and whose first parameter is one of these.
    """
    for one in parameters:
        record = _record_of(one)
        if record is not None and name is None:
            vars(one).pop(_RECORD, None)
        elif record is not None:
            for what in [what for what in record.entries if what[0] == name]:
                record.entries.pop(what, None)


def _forget_after_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Free values of an optimizer's parameters; version counters miss fused steps."""
    groups = optimizer.param_groups
    forget([one for group in groups for one in group["params"] if one.requires_grad])


register_optimizer_step_post_hook(_forget_after_step)
