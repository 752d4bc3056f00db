"""Runs a test's function in the processes of one group, on this machine's CPU."""

import importlib
import tempfile
import traceback

import torch
import torch.distributed
import torch.multiprocessing


def _member(rank, size, meeting, function, arguments):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
    torch.distributed.barrier()  # none ends while another still connects
    try:
        function(rank, size, *arguments)
    except Exception:
        traceback.print_exc()
        raise
    finally:
        torch.distributed.destroy_process_group()


def in_processes(size, function, *arguments):
    """Calls `function(rank, size, *arguments)` in each of `size` processes; raises what one raised.

    They meet at a file: a port could be taken by another test that runs at the same time. They are
    forked, so nothing is imported again, not even what an optimizer's first step imports.
    """
    importlib.import_module("torch._dynamo")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(
            _member,
            (size, f"file://{folder}/meeting", function, arguments),
            nprocs=size,
            start_method="fork",
        )
