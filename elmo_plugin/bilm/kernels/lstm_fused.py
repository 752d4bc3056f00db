"""
LSTM steps on a GPU, whose elementwise part is one fused Triton kernel.

Separate operators are slow: the launch of one takes about as long as a step's matrix products. If
a kernel is missing or fails its self-test, PyTorch's operators run.
"""

import functools
import math
import warnings
from typing import Any

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import library, tuning
from elmo_plugin.bilm.kernels.interface import LstmWeights
from elmo_plugin.bilm.kernels.lstm_inference import Prepack, SteppedLstm
from elmo_plugin.bilm.kernels.reference import lstm_gates

# Largest error that the self-test accepts.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


class FusedLstm(SteppedLstm):
    """Frozen LSTM layer that runs a fused kernel in each step; arguments as in `SteppedLstm`."""

    def __init__(self, weights: LstmWeights, prepack: Prepack, *sizes: int) -> None:
        super().__init__(weights, prepack, *sizes)
        self._state_linear = prepack(weights.state.detach())
        self._projection = prepack(weights.projection.detach())

    def _step(self, gates: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor) -> torch.Tensor:
        # The kernel writes `gated` in the dtype in which the projection multiplies.
        gated = torch.empty_like(cell, dtype=self._projection.weight.dtype)
        products = self._state_linear(hidden.to(self._state_linear.weight.dtype))
        _forward_step(products, gates, cell, gated, None, None, self._cell_clip)
        return self._projection(gated)


def usable(like: torch.Tensor, product_dtype: torch.dtype, training: bool) -> bool:
    """
    Return whether fused kernels exist and work, with products in `product_dtype`, where weights
    and cell states have the device and dtype of `like`. `training` says if gradients are needed.
    """
    return (
        like.is_cuda
        and covers(like.dtype, product_dtype, training)
        and works(like.device, like.dtype, product_dtype, training)
    )


def covers(dtype: torch.dtype, product_dtype: torch.dtype, training: bool) -> bool:
    """
    Return whether fused kernels exist for these dtypes; none support float64. Training needs
    float32 cell states. In training with half precision, rounding may move a clipped cell
    state off the clip, and it would wrongly get a gradient.
    """
    known = {dtype, product_dtype} <= TOLERANCE.keys()
    return known and (dtype == torch.float32 or not training)


@functools.cache
def works(
    device: torch.device, dtype: torch.dtype, product_dtype: torch.dtype, training: bool
) -> bool:
    """Return whether the kernels pass their self-test, which runs once, and warn if they fail."""
    try:
        # Shield the self-test from a caller's hooks: gradient checkpointing counts saved tensors.
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved):
            wrong = _wrong_results(device, dtype, product_dtype, training)
        problem = f"wrong {', '.join(wrong)}" if wrong else ""
    except Exception as error:  # from a compiler, Triton or the driver
        problem = repr(error)
    if problem:
        warnings.warn(
            f"the LSTM's fused steps are not used on {device} in {dtype} with products in "
            f"{product_dtype}: {problem}",
            stacklevel=2,
        )
    return not problem


def _wrong_results(
    device: torch.device, dtype: torch.dtype, product_dtype: torch.dtype, training: bool
) -> list[str]:
    """Run the self-test: return the names of results that differ from the reference."""
    generator = torch.Generator().manual_seed(0)
    size, cell_size, clip = 3, tuning.BLOCK + 16, 0.8

    def random(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cpu").to(device, dtype)

    # The self-test computes gradients, which tensors made in inference mode cannot have.
    with torch.inference_mode(False), torch.no_grad():
        hidden = random(size, 8, dtype=product_dtype)
        weight = random(4 * cell_size, 8, dtype=product_dtype)
        grad_gated = random(size, cell_size, dtype=product_dtype)
        cell, grad_cell = random(size, cell_size), random(size, cell_size)
        addend = random(4 * cell_size) if training else random(size, 4 * cell_size)
        products = functional.linear(hidden, weight)
        sums, previous = (products + addend).float(), cell.clone()
        expected = _by_autograd(sums, cell.float(), clip, grad_gated.float(), grad_cell.float())
        # Filled with NaN, which reveals elements that a kernel does not write.
        gated = torch.full_like(grad_gated, math.nan)
        if training:
            activations, grad_sums = torch.full((2, *sums.shape), math.nan, device=device)
            cell = torch.full_like(previous, math.nan)
            _forward_step(products, addend, previous, gated, activations, cell, clip)
            _launch(
                "backward_step", grad_cell, grad_gated, activations, cell, previous, grad_cell,
                grad_sums, clip,
            )  # fmt: skip
            found = {"outputs": gated, "cells": cell}
            found.update({"gradients of gates": grad_sums, "gradients of cells": grad_cell})
        else:
            _forward_step(products, addend, cell, gated, None, None, clip)
            found = {"outputs": gated, "cells": cell}
    error = max(TOLERANCE[dtype], TOLERANCE[product_dtype])
    return [
        name
        for name, value in found.items()
        if not torch.allclose(value.float(), expected[name], rtol=error, atol=error)
    ]


@torch.enable_grad()
def _by_autograd(
    sums: torch.Tensor,
    previous: torch.Tensor,
    clip: float,
    grad_gated: torch.Tensor,
    grad_cell: torch.Tensor,
) -> dict[str, torch.Tensor]:
    """Return a step's results from the reference, and their gradients from autograd."""
    sums, previous = (one.clone().requires_grad_() for one in (sums, previous))
    gated, cell = lstm_gates(sums, previous, clip)
    weighed = (gated * grad_gated).sum() + (cell * grad_cell).sum()
    grad_sums, grad_previous = torch.autograd.grad(weighed, [sums, previous])
    return {
        "outputs": gated,
        "cells": cell,
        "gradients of gates": grad_sums,
        "gradients of cells": grad_previous,
    }


def _forward_step(
    products: torch.Tensor,
    addend: torch.Tensor,
    cell: torch.Tensor,
    gated: torch.Tensor,
    activations: torch.Tensor | None,
    new_cell: torch.Tensor | None,
    cell_clip: float | None,
) -> None:
    stride = addend.stride(0) if addend.dim() == 2 else 0
    _launch(
        "forward_step", cell, products, addend, cell, gated, activations, new_cell,
        library.limit(cell_clip), stride, KEEP=activations is not None,
    )  # fmt: skip


def _launch(name: str, like: torch.Tensor, *arguments: Any, **constants: Any) -> None:
    """Launch the kernel `name` for all elements of `like`."""
    if not len(like):
        return
    size, cell_size = like.shape
    grid = size, -(-cell_size // tuning.BLOCK)
    with torch.cuda.device_of(like):
        kernel(name)[grid](*arguments, cell_size, BLOCK=tuning.BLOCK, **constants)


@functools.cache
def kernel(name: str) -> Any:
    """Return the Triton kernel `name`; raise an `ImportError` if Triton is not installed."""
    # Imported here, because Triton is slow to import.
    from elmo_plugin.bilm.kernels import triton_kernels

    if triton_kernels.jit is None:
        raise ImportError("Triton is not installed")
    return triton_kernels.jit(getattr(triton_kernels, name))
