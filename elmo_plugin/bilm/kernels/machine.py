"""Properties and settings of the machine: processor, CPU quota, OpenMP threads, freed memory."""

import ctypes
import functools
import os
import platform
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from elmo_plugin.bilm.kernels import tuning

# Environment variables by which users choose a number of threads.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Environment variables by which users choose what glibc keeps.
MALLOC_VARIABLES = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}
CGROUP = Path("/sys/fs/cgroup")
# Parameters of glibc's `mallopt`, from malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -2, -3, -4
_NEVER = 2**31 - 1
_process = os.getpid()


def model_name() -> str:
    """Return the processor's name, or its architecture if the name is not known."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


@functools.cache
def is_fast_in_bfloat16() -> bool:
    """
    Return whether PyTorch multiplies bfloat16 faster than float32 on this CPU. It does with AMX,
    and on AMD CPUs with AVX-512 BF16, but not on Intel CPUs without AMX.
    """
    # These variables restrict PyTorch's instruction set. bfloat16 may then be slow, so use float32,
    # which is fast on every instruction set.
    if os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("ATEN_CPU_CAPABILITY"):
        return False
    instructions = _cpuinfo("flags").split()
    on_amd = _cpuinfo("vendor_id") == "AuthenticAMD"
    return "amx_bf16" in instructions or (on_amd and "avx512_bf16" in instructions)


def keep_to_cpu_quota() -> None:
    """
    Limit PyTorch's threads to the container's CPU quota, unless the environment sets their number.
    If torch is not imported yet, processes that start later inherit the limit.
    """
    quota = cpu_quota()
    if quota is None or _threads_are_chosen() or quota >= (os.cpu_count() or 1):
        return
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(quota)
    else:
        os.environ["OMP_NUM_THREADS"] = str(quota)


def within_quota(num_threads: int) -> int:
    """Return `num_threads`, limited to the CPU quota unless the environment sets a number."""
    quota = None if _threads_are_chosen() else cpu_quota()
    return num_threads if quota is None else min(num_threads, quota)


def single_thread_after_fork() -> None:
    """
    Set PyTorch to one thread in a forked child process, as workers of its `DataLoader` do.

    The parent's threads do not exist in the child process, which would wait for them forever.
    """
    global _process
    if os.getpid() != _process:
        sys.modules["torch"].set_num_threads(1)
        _process = os.getpid()


@functools.cache
def let_waiting_threads_sleep() -> None:
    """
    Make waiting OpenMP threads sleep after microseconds, even if PyTorch is already loaded and no
    longer reads `GOMP_SPINCOUNT`. If the environment sets how threads wait, nothing changes.

    GCC's OpenMP runtime spins briefly if a process has more OpenMP threads than processors (its
    manual says so under `GOMP_SPINCOUNT`). So this starts more threads, which sleep until the
    process ends. Nothing changes if PyTorch uses one thread, or fewer than half of the CPUs.
    """
    if {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys() or sys.platform != "linux":
        return
    import torch

    threads, processors = torch.get_num_threads(), len(os.sched_getaffinity(0))
    if threads == 1 or processors > 2 * threads:
        return
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    for path in {line.split(maxsplit=5)[5] for line in maps if "/libgomp" in line}:
        ready = threading.Event()
        count = max(2, processors + 2 - threads)
        # A team of OpenMP threads ends with the thread that started it: keep that thread.
        threading.Thread(target=_hold_team, args=(path, count, ready), daemon=True).start()
        ready.wait()


def _hold_team(path: str, num_threads: int, ready: threading.Event) -> None:
    """Start a team of OpenMP threads, and keep it."""
    try:
        runtime = ctypes.CDLL(path)
        nothing = ctypes.cast(runtime.omp_get_level, ctypes.c_void_p)  # harmless work for the team
        runtime.GOMP_parallel(nothing, None, num_threads, 0)
    except (OSError, AttributeError):  # not GCC's runtime
        return
    finally:
        ready.set()
    threading.Event().wait()


@functools.cache
def cpu_quota(root: Path = CGROUP) -> int | None:
    """
    Return the container's CPU quota as a number of CPUs, rounded up; `None` for no quota. `root` is
    the mount point of its control group.
    """
    try:
        if (root / "cpu.max").is_file():
            quota, period = (root / "cpu.max").read_text(encoding="utf-8").split()
        else:
            names = "cpu.cfs_quota_us", "cpu.cfs_period_us"
            quota, period = ((root / "cpu" / one).read_text(encoding="utf-8") for one in names)
        if quota == "max" or int(quota) <= 0:
            return None
        return max(1, -(-int(quota) // int(period)))
    except (OSError, ValueError, ZeroDivisionError):
        return None


def keep_freed_memory() -> None:
    """
    Make glibc keep freed memory for later tensors.

    By default glibc returns large blocks to the system at once, and new memory is slow at first.
    Only programs should call this, not libraries: the process will never return memory to the
    system. Without glibc nothing happens.
    """
    reuse_freed_memory()  # a later call would undo what follows
    mallopt = _mallopt()
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
        mallopt(_M_TOP_PAD, 64 << 20)


@functools.cache
def reuse_freed_memory() -> None:
    """
    Make glibc keep up to 256 MB of freed memory for later tensors of up to 32 MB: a training step
    gets the last step's memory. If the environment sets what glibc keeps, nothing changes.
    """
    mallopt = _mallopt()
    if mallopt is not None and not MALLOC_VARIABLES & os.environ.keys():
        mallopt(_M_TRIM_THRESHOLD, 256 << 20)
        mallopt(_M_MMAP_THRESHOLD, tuning.MOST_REUSED)


def _mallopt() -> Callable[[int, int], int] | None:
    return getattr(ctypes.pythonapi, "mallopt", None)  # `CDLL(None)` fails on Windows


def _threads_are_chosen() -> bool:
    return any(os.environ.get(name) for name in THREAD_VARIABLES)


def _cpuinfo(key: str) -> str:
    """Return the first value of `key` in /proc/cpuinfo; empty if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")
