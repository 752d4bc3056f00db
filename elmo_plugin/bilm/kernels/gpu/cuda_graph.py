"""CUDA graphs: work of a GPU that is recorded once, and repeated without waiting for Python."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from elmo_plugin.bilm.kernels.fork_safe_lock import fork_safe_lock

# A process may record one graph at a time.
_lock = fork_safe_lock()


def record(
    run: Callable[[], None], warm_up: Callable[[], None] | None = None, pool: Any = None
) -> Callable[[], None]:
    """
    Record what `run` does on the current GPU as a CUDA graph; return the function that repeats it.
    `warm_up` is called first (default: `run`).

    Graphs that share a `pool`, from `torch.cuda.graph_pool_handle`, share their temporary memory,
    and must not run at the same time. Raise a `RuntimeError` if CUDA or a kernel fails.
    """
    with _lock:
        before, stream = torch.cuda.current_stream(), _stream(torch.cuda.current_device())
        stream.wait_stream(before)
        with torch.cuda.stream(stream):
            (warm_up or run)()  # compiles kernels, and lets libraries allocate what they keep
        before.wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads, such as NCCL's, may ask the GPU for something meanwhile.
            with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
                run()
        finally:
            torch.cuda.set_stream(before)  # PyTorch leaves the other one after a failure
        return graph.replay


@functools.cache
def _stream(device: int) -> torch.cuda.Stream:
    """Return the stream on which graphs are recorded: libraries keep memory for each stream."""
    return torch.cuda.Stream(device)
