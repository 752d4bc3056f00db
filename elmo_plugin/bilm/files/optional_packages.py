"""Import optional packages, which the extras in setup.py install."""

from importlib import import_module
from typing import Any


def import_optional(name: str, extra: str) -> Any:
    """
    Import and return the module `name`, which the extra `extra` of this package installs.

    Raise a `ModuleNotFoundError` with the `pip install` command if the module is missing.
    """
    package = name.partition(".")[0]
    try:
        return import_module(name)
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{package} is not installed; pip install 'elmo_plugin[{extra}]'", name=package
        ) from error
