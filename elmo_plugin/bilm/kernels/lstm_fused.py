"""
An LSTM layer whose step, and its gradient, has all that is elementwise in one kernel: by Triton on
a GPU, in C++ on a CPU.

A GPU takes microseconds to start each operator, about as long as a step's products run. So a step
is four of them and not eleven (in bfloat16 fifteen), in training six and not eighteen, its gradient
seven and not twenty-five. On a CPU each operator is a pass over memory. The kernels are compiled
when first used; where they cannot be, or err in a small trial, the plain operators run.
"""

import functools
import math
from typing import Any

import torch

from elmo_plugin.bilm.kernels import compiled, tuning
from elmo_plugin.bilm.kernels.interface import LstmWeights
from elmo_plugin.bilm.kernels.lstm_inference import Prepack, SteppedLstm
from elmo_plugin.bilm.kernels.lstm_training import Saved, TrainingSteps
from elmo_plugin.bilm.kernels.reference import lstm_gates
from elmo_plugin.bilm.kernels.training_linear import plain_matmul
from elmo_plugin.bilm.kernels.trial import passes

# As in the trial: the largest error there that is rounding.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


class FusedLstm(SteppedLstm):
    """
    `SteppedLstm` by the kernels; weights and cell are as they are.

    # Parameters

    weights : `LstmWeights`
    prepack : `Prepack`
        As in `FrozenLstm`, its two sizes behind them.
    """

    def __init__(self, weights: LstmWeights, prepack: Prepack, *sizes: int) -> None:
        super().__init__(weights, prepack, *sizes)
        self._state_linear = prepack(weights.state.detach(), False)
        self._projection = prepack(weights.projection.detach(), False)

    def _step(self, gates: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor) -> torch.Tensor:
        # What is multiplied has the products' type already.
        gated = torch.empty_like(cell, dtype=self._projection.product_dtype)
        products = self._state_linear(hidden.to(self._state_linear.product_dtype))
        _forward_step(products, gates, cell, gated, None, None, self._cell_clip)
        return self._projection(gated)


class FusedTrainingSteps(TrainingSteps):
    """By the kernels; the cell's tanh is computed again, not saved."""

    def forward_step(
        self,
        sources: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        cell: torch.Tensor,
        gated: torch.Tensor,
        saved: Saved,
    ) -> None:
        """As `TrainingSteps.forward_step`."""
        products = self._matmul(sources, weight, None)
        _forward_step(products, bias, cell, gated, *saved, self._cell_clip)

    def backward_step(
        self,
        saved: Saved,
        previous_cell: torch.Tensor,
        grad_gated: torch.Tensor,
        grad_cell: torch.Tensor,
        grad_gates: torch.Tensor,
    ) -> None:
        """As `TrainingSteps.backward_step`."""
        _launch(
            "backward_step", grad_cell, grad_gated, *saved, previous_cell, grad_cell, grad_gates,
            compiled.limit(self._cell_clip),
        )  # fmt: skip

    def grad_bias(self, grad_gates: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """One sum over all steps; in lower precision of what was rounded for the products."""
        return grad_gates.sum(dim=0, dtype=dtype)


def usable(like: torch.Tensor, product_dtype: torch.dtype, training: bool) -> bool:
    """
    # Parameters

    like : `torch.Tensor`
        Has the device and the type of weights and cells.
    product_dtype : `torch.dtype`
        Type in which products are taken.
    training : `bool`
        Whether gradients are wanted.

    # Returns

    `bool`
        Whether the fused steps are to run: in these types, where they work.
    """
    on_cpu = like.device.type == "cpu"
    return (
        (like.is_cuda or (on_cpu and compiled.compiler() is not None))
        and covers(like.dtype, product_dtype, training, on_cpu)
        and works(like.device, like.dtype, product_dtype, training)
    )


def covers(
    dtype: torch.dtype, product_dtype: torch.dtype, training: bool, on_cpu: bool = False
) -> bool:
    """
    Not float64, which is for checks; nor training with cells in half precision, whose clipped
    values may be rounded off the clip, where the gradient finds them; the C++ has none of either.
    """
    types = {torch.float32, torch.bfloat16} if on_cpu else TOLERANCE.keys()
    half_cells = not training and not on_cpu
    return {dtype, product_dtype} <= types and (dtype == torch.float32 or half_cells)


@functools.cache
def works(
    device: torch.device, dtype: torch.dtype, product_dtype: torch.dtype, training: bool
) -> bool:
    """Whether the kernels can be compiled and give the right numbers; tried once, see `usable`."""
    return passes(
        lambda: _trial(device, dtype, product_dtype, training),
        f"the LSTM's fused steps are not used on {device} in {dtype} with products in "
        f"{product_dtype}",
    )


def _trial(
    device: torch.device, dtype: torch.dtype, product_dtype: torch.dtype, training: bool
) -> list[str]:
    """Names of what differs from the definition's."""
    generator = torch.Generator().manual_seed(0)
    size, cell_size, clip = 3, tuning.BLOCK + 16, 0.8

    def random(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cpu").to(device, dtype)

    # Tensors made in inference mode could not have gradients.
    with torch.inference_mode(False), torch.no_grad():
        hidden = random(size, 8, dtype=product_dtype)
        weight = random(4 * cell_size, 8, dtype=product_dtype)
        grad_gated = random(size, cell_size, dtype=product_dtype)
        cell, grad_cell = random(size, cell_size), random(size, cell_size)
        addend = random(4 * cell_size) if training else random(size, 4 * cell_size)
        products = plain_matmul(hidden, weight, None)
        sums, previous = (products + addend).float(), cell.clone()
        expected = _by_autograd(sums, cell.float(), clip, grad_gated.float(), grad_cell.float())
        # What a kernel leaves out must not lie there from an earlier trial.
        gated = torch.full_like(grad_gated, math.nan)
        if training:
            steps = FusedTrainingSteps(clip, plain_matmul)
            grad_sums = torch.full_like(sums, math.nan, dtype=product_dtype)
            saved = Saved(torch.full_like(sums, math.nan), torch.full_like(cell, math.nan))
            steps.forward_step(hidden, weight, addend, cell, gated, saved)
            steps.backward_step(saved, previous, grad_gated, grad_cell, grad_sums)
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
    """The definition of a step, from the gates' sums and the cell before."""
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
        compiled.limit(cell_clip), stride, KEEP=activations is not None,
    )  # fmt: skip


def _launch(name: str, like: torch.Tensor, *arguments: Any, **constants: Any) -> None:
    """A kernel over the rows and columns of `like`, whose width is its last argument."""
    if not len(like):
        return
    if like.device.type == "cpu":
        compiled.launch(name, like, *arguments)
    else:
        _launch_triton(name, like, *arguments, **constants)


def _launch_triton(name: str, like: torch.Tensor, *arguments: Any, **constants: Any) -> None:
    size, cell_size = like.shape
    grid = size, -(-cell_size // tuning.BLOCK)
    with torch.cuda.device_of(like):
        _kernel(name)[grid](*arguments, cell_size, BLOCK=tuning.BLOCK, **constants)


@functools.cache
def _kernel(name: str) -> Any:
    # Only here: it imports Triton, which takes a while.
    from elmo_plugin.bilm.kernels import triton_kernels

    if triton_kernels.jit is None:
        raise ImportError("Triton is not installed")
    return triton_kernels.jit(getattr(triton_kernels, name))
