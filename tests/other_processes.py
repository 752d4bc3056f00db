"""Waiting for what other processes do."""

import time
from pathlib import Path

# Seconds after which a process hangs, on however busy a machine. It is less than pytest's limit
# (`pyproject.toml`), so that a test that waits in vain ends its processes.
LIMIT = 240


def wait_until(condition):
    """Return once `condition()` is true; it may raise where it cannot become true any more."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, f"still waiting after {LIMIT} s"
        time.sleep(0.01)


def is_alive(pid):
    """Return whether a process runs, by Linux's /proc; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
