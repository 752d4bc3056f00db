"""Measurements in processes of their own, and their memory."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def in_process(module: str, *arguments: Any, threads: int | None = None) -> Any:
    """Return the JSON that `python -m benchmarks.MODULE ARGUMENTS` prints last."""
    variables = {"PYTHONPATH": str(ROOT), **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **variables}
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def status(key: str, process: int | str = "self") -> float:
    """Return `VmRSS` or `VmHWM` of a process, in MB (2^20 bytes)."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"/proc/{process}/status has no {key}")


def memory_before() -> float:
    """Return the memory in use, in MB; from here on VmHWM leaves out what came before."""
    import torch

    # The first optimizer step imports PyTorch modules. Do it now, to leave out their memory.
    torch.optim.Adam([torch.zeros(1, requires_grad=True)]).step()
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    return before
