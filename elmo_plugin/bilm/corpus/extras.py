"""Packages that an extra of setup.py installs, imported when they are used."""

from importlib import import_module
from typing import Any


def needed(name: str, extra: str) -> Any:
    """
    # Parameters

    name : `str`
        A module's.
    extra : `str`
        Which of setup.py's extras has its package.

    # Returns

    `Any`
        The module.

    # Raises

    `ModuleNotFoundError`
        If the package is not installed; the text says how it is had.
    """
    package = name.partition(".")[0]
    try:
        return import_module(name)
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{package} is not installed; pip install 'elmo_plugin[{extra}]'", name=package
        ) from error
