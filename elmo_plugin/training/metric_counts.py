"""Counts in a model's `Metric` objects, as numbers, tensors and containers of them."""

from itertools import repeat
from typing import Any, Dict, Iterator, Tuple

import numpy
import torch
from allennlp.models import Model
from allennlp.training.metrics import Metric

ARRAY = "elmo_plugin_array"  # key of the tensor that holds a NumPy array


def counts_of(model: Model) -> Dict[str, Any]:
    """
    Return the attributes of all metrics of a model by their path, copied to types that `torch.load`
    reads by default; leave out those of other types.
    """
    counts = {}
    for path, metric in _metrics_of(model):
        for name, value in vars(metric).items():
            try:
                counts[f"{path}.{name}"] = _copied(value)
            except TypeError:
                continue
    return counts


def set_counts(model: Model, counts: Dict[str, Any]) -> None:
    """Set attributes of a model's metrics from a result of `counts_of`, where they fit."""
    device = next(model.parameters()).device
    metrics = dict(_metrics_of(model))
    for name, value in counts.items():
        path, _, attribute = name.rpartition(".")
        own = getattr(metrics.get(path), attribute, None)
        # An earlier version may have counted in a tensor, which has no names.
        if path in metrics and not (isinstance(own, dict) and not isinstance(value, dict)):
            setattr(metrics[path], attribute, _restored(value, own, device))


def same(one: Any, other: Any) -> bool:
    """Return whether two values in results of `counts_of` are equal."""
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return type(one) is type(other) and torch.equal(one, other)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def plain(metrics: Dict[str, Any]) -> Dict[str, Any]:
    """Keep the metrics that `torch.load` reads by default: numbers, strings and `None`."""
    kept = (bool, int, float, str, type(None), numpy.number, numpy.bool_)
    return {name: _copied(one) for name, one in metrics.items() if isinstance(one, kept)}


def _metrics_of(model: Model) -> Iterator[Tuple[str, Metric]]:
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            yield from _metrics_in(value, f"{path}.{name}")


def _metrics_in(value: Any, path: str) -> Iterator[Tuple[str, Metric]]:
    inner: Any = ()
    if isinstance(value, Metric):
        yield path, value
        inner = vars(value).items()
    elif type(value) is dict:
        inner = value.items()
    elif type(value) in (list, tuple):
        inner = enumerate(value)
    for key, one in inner:
        yield from _metrics_in(one, f"{path}.{key}")


def _copied(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (numpy.number, numpy.bool_)):
        return value.item()
    if isinstance(value, (int, float)):
        return +value  # a plain number, also of an enumeration
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, numpy.ndarray):
        return {ARRAY: torch.from_numpy(value.astype(value.dtype.newbyteorder("=")))}
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {_copied(key): _copied(one) for key, one in value.items()}
    for kind in (list, tuple, set):
        if isinstance(value, kind):
            return kind(map(_copied, value))
    raise TypeError(f"found a {type(value).__name__}, expected numbers, strings or tensors")


def _restored(value: Any, like: Any, device: torch.device) -> Any:
    """Return a copy of a saved `value` as the type of `like`, the value that the metric has now."""
    if isinstance(value, torch.Tensor):
        return value.to(like.device if torch.is_tensor(like) else device, copy=True)
    if isinstance(value, dict):
        if ARRAY in value:
            return value[ARRAY].numpy().copy()
        own, former = (like, dict(like)) if isinstance(like, dict) else ({}, {})
        make = getattr(like, "default_factory", None) or (lambda: None)
        own.clear()
        for key, one in value.items():
            own[key] = _restored(one, former[key] if key in former else make(), device)
        return own
    if isinstance(value, (list, tuple)):
        likes = like if isinstance(like, type(value)) and len(like) == len(value) else repeat(None)
        items = [_restored(one, other, device) for one, other in zip(value, likes)]
        return type(like)(*items) if hasattr(like, "_fields") else type(value)(items)
    return value
