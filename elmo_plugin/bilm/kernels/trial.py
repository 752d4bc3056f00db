"""Whether a kernel that was compiled for this machine gives the right numbers."""

import warnings
from collections.abc import Callable

import torch


def passes(trial: Callable[[], list[str]], kernel: str) -> bool:
    """
    Without a warning, or with one that says what is wrong.

    # Parameters

    trial : `Callable[[], list[str]]`
        Gives the names of what differs from the definition's; a failure to compile or to run may be
        any exception.
    kernel : `str`
        What is not used, and where, as the warning begins.

    # Returns

    `bool`
    """
    try:
        # Not by the hooks of a caller, such as gradient checkpointing's, which count what is saved.
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved):
            wrong = trial()
        problem = f"wrong {', '.join(wrong)}" if wrong else ""
    except Exception as error:  # of a compiler, Triton or the driver
        problem = repr(error)
    if problem:
        warnings.warn(f"{kernel}: {problem}", stacklevel=3)
    return not problem
