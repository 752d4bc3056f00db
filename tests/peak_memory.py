"""
Peak memory, measured in a process of its own. Not by `ru_maxrss`, which a process inherits: a large
parent hides what a small child takes.
"""

import ctypes
from pathlib import Path

import pytest

from tests.fresh_process import python

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


def _status(key):
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith(key + ":"))
    return int(line.split()[1]) / 1024


class Growth:
    """`with Growth() as growth: ...`; then `growth.megabytes`, the most that was added within."""

    def __enter__(self):
        # What the allocator kept of earlier work would hide as much of this.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
        CLEAR.write_text("5")  # the high-water mark starts again here
        self._before = _status("VmRSS")
        return self

    def __exit__(self, *_):
        self.megabytes = _status("VmHWM") - self._before


def run(script, *arguments):
    """The numbers that a script prints last, run in the repository's root."""
    if not CLEAR.exists():
        pytest.skip("this system has no /proc/self/clear_refs")
    child = python("-c", script, *arguments, folder=Path(__file__).parents[1])
    return [float(number) for number in child.stdout.split()]
