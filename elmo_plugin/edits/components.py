"""Walk through a config along the signatures of the classes that it names."""

import copy
import inspect
import operator
from collections.abc import Iterator, Mapping
from functools import reduce
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

from allennlp.common import Lazy
from allennlp.common.from_params import infer_method_params, is_base_registrable
from allennlp.common.registrable import Registrable

Path = tuple[str | int, ...]


class Argument(NamedTuple):
    """
    An argument of a constructor that a config reaches.

    `path` leads to it in the config, and `annotation` is its type. `value` is the config's value,
    or the default if the config leaves it out (`given` is false). `cls` is the class that a value
    of a registered type builds, else `None`.
    """

    path: Path
    annotation: Any
    value: Any
    given: bool
    cls: type | None

    def builds(self, *classes: type) -> bool:
        """Return whether the config builds an object of one of these classes here."""
        return self.given and self.cls is not None and issubclass(self.cls, classes)

    def is_dict_of(self, cls: type) -> bool:
        """Return whether the argument is a dictionary from names to objects of a class."""
        types = get_args(self.annotation)
        return len(types) == 2 and inspect.isclass(types[1]) and issubclass(types[1], cls)


def walk(annotation: Any, value: Any, path: Path = (), given: bool = True) -> Iterator[Argument]:
    """
    Yield an argument and, below it, the arguments of everything that it builds, as AllenNLP's
    `FromParams` reads them. A module that is taken from an archive has none.

    # Raises

    `ConfigurationError`
        If a class is not registered under the name that the config gives.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType, Lazy):
        for choice in arguments:
            if choice is not type(None):
                yield from walk(choice, value, path, given)
        return
    if hasattr(annotation, "from_params") and isinstance(value, str) and given:
        value = {"type": value}
    built = isinstance(value, Mapping) and hasattr(annotation, "from_params")
    cls, parameters = _constructor(annotation, value) if built else (None, {})
    yield Argument(path, annotation, value, given, cls)
    if built and "_pretrained" not in value:
        for name, parameter in parameters.items():
            inside = name in value
            default = None if parameter.default is parameter.empty else parameter.default
            below = value[name] if inside else default
            yield from walk(parameter.annotation, below, (*path, name), inside)
    elif isinstance(value, Mapping) and len(arguments) == 2:
        for name, one in value.items():
            yield from walk(arguments[1], one, (*path, name), given)
    elif isinstance(value, (list, tuple)) and arguments:
        types = arguments if origin is tuple else arguments[:1] * len(value)
        for index, (choice, one) in enumerate(zip(types, value)):
            yield from walk(choice, one, (*path, index), given)


def _constructor(annotation: Any, value: Mapping) -> tuple[Any, Mapping[str, Any]]:
    """Return the class that `value` builds, and the parameters of its constructor."""
    cls, constructor = annotation, None
    if issubclass(annotation, Registrable) and is_base_registrable(annotation):
        name = value.get("type") or annotation.default_implementation
        if name is None:
            return None, {}
        cls, constructor = annotation.resolve_class_name(name)
    if not inspect.isclass(cls):  # such as an activation
        return None, {}
    method = getattr(cls, constructor) if constructor else cls.__init__
    if method is object.__init__ or not hasattr(cls, "from_params"):
        return cls, {}
    parameters = infer_method_params(cls, method)  # type: ignore[type-var]
    return cls, {name: one for name, one in parameters.items() if name != "self"}


def get(config: Any, path: Path) -> Any:
    """Return the value at a path, or `None` if there is none."""
    try:
        return reduce(operator.getitem, path, config)
    except (KeyError, TypeError, IndexError):
        return None


def replaced(config: Any, path: Path, value: Any) -> Any:
    """Return a copy of a config with another value at a path, whose parents are made if needed."""
    if not path:
        return value
    config = (
        {"type": config} if isinstance(config, str) else copy.copy({} if config is None else config)
    )
    config[path[0]] = replaced(get(config, path[:1]), path[1:], value)
    return config


def shown(path: Path) -> str:
    """Return a path as text: `model.encoder.input_size`."""
    return ".".join(map(str, path))
