"""
A stand-in for the part of TensorFlow that reads checkpoints, for environments without it.

It gives the values of `checkpoint/values.npz`, which TensorFlow wrote; `make libraries` runs the
same tests with TensorFlow itself.
"""

from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy

VALUES = Path(__file__).parent / "checkpoint" / "values.npz"


class OpError(Exception):
    """TensorFlow's base class of errors."""


class Reader:
    """Variables of the fixture; `prefix` must have its data file, of the fixture's bytes."""

    def __init__(self, prefix):
        self._data = Path(f"{prefix}.data-00000-of-00001")
        with numpy.load(VALUES) as file:
            self.values = {
                name: file[name] for name in file if not name.startswith(("gradient/", "after/"))
            }

    def get_variable_to_shape_map(self):
        return {name: list(value.shape) for name, value in self.values.items()}

    def get_tensor(self, name):
        if not self._data.is_file():
            raise OpError(f"{self._data}; No such file or directory")
        if self._data.read_bytes() != (VALUES.parent / self._data.name).read_bytes():
            raise OpError(f"TensorBundle at {self._data}: Checksum does not match")
        value = self.values[name]
        return value if value.shape else value[()]


def module():
    """Return a module with the names that are used of TensorFlow."""
    found = ModuleType("tensorflow")
    found.__spec__ = ModuleSpec("tensorflow", None)  # other libraries look for it
    found.train = SimpleNamespace(load_checkpoint=Reader)
    found.errors = SimpleNamespace(OpError=OpError)
    return found
