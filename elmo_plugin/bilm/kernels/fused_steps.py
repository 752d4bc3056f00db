"""
A step of the LSTM on a GPU: what is elementwise in it, and in its gradient, as one kernel.

A GPU takes microseconds to start each operator, about as long as a step's products run. So a step
is four of them and not eleven (in bfloat16 fifteen), in training six and not nineteen, its gradient
seven and not twenty-two. The kernels are Triton's, compiled when first used; where they cannot
be, or err in a small trial, the plain operators run.
"""

import functools
import math
import warnings
from typing import Any, NamedTuple, Optional

import torch

from elmo_plugin.bilm.kernels.prepacked_linear import Product
from elmo_plugin.bilm.kernels.training_linear import product

# Columns of a program: 128 threads with 16 bytes of float32 each.
BLOCK = 512

# As in the trial: the largest error there that is rounding.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


class FusedStep:
    """
    As `lstm_cell.PlainStep`; neither weights nor cell are doubled.

    # Parameters

    cell_clip : `Optional[float]`
        See `LstmCellWithProjection`.
    kind : `torch.dtype`
        Type in which products are taken.
    """

    cell_scale = 1

    def __init__(self, cell_clip: Optional[float], kind: torch.dtype) -> None:
        self._cell_clip = cell_clip
        self._kind = kind

    def of_gates(self, parameter: torch.Tensor) -> torch.Tensor:
        """The parameter as it is."""
        return parameter.detach()

    def of_input_products(self, products: torch.Tensor) -> torch.Tensor:
        """The products as they are."""
        return products

    def of_projection(self, parameter: torch.Tensor) -> torch.Tensor:
        """The parameter as it is."""
        return parameter.detach()

    def __call__(
        self, state_product: Product, gates: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
    ) -> torch.Tensor:
        """See `lstm_cell.PlainStep`; what is multiplied next has its type already."""
        gated = torch.empty_like(cell, dtype=self._kind)
        products = state_product(hidden.to(self._kind))
        _forward_step(products, gates, cell, gated, None, None, self._cell_clip)
        return gated


class Kept(NamedTuple):
    """What a training step leaves for its gradient."""

    activations: torch.Tensor
    cell: torch.Tensor


class FusedTrainingSteps:
    """
    As `recurrence.PlainTrainingSteps`; the tanh of the cell is computed again, not kept.

    # Parameters

    cell_clip : `Optional[float]`
        See `LstmCellWithProjection`.
    """

    def __init__(self, cell_clip: Optional[float]) -> None:
        self._cell_clip = cell_clip

    def forward(
        self,
        sources: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        cell: torch.Tensor,
        gated: torch.Tensor,
    ) -> Kept:
        """
        # Parameters

        sources, weight, bias, cell, gated : `torch.Tensor`
            See there.

        # Returns

        `Kept`
        """
        products = product(sources, weight)
        in_place = products.dtype == cell.dtype
        activations = products if in_place else torch.empty_like(products, dtype=cell.dtype)
        kept = Kept(activations, torch.empty_like(cell))
        _forward_step(products, bias, cell, gated, *kept, self._cell_clip)
        return kept

    def backward(
        self,
        kept: Kept,
        previous_cell: torch.Tensor,
        for_gated: torch.Tensor,
        cell_gradient: torch.Tensor,
        gate_gradient: torch.Tensor,
    ) -> None:
        """
        # Parameters

        kept, previous_cell, for_gated, cell_gradient, gate_gradient
            See there.
        """
        _launch(
            "backward_step", cell_gradient, for_gated, *kept, previous_cell, cell_gradient,
            gate_gradient, _limit(self._cell_clip),
        )  # fmt: skip

    def bias_gradient(self, gate_gradient: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
        """One sum over all steps; in lower precision of what was rounded for the products."""
        return gate_gradient.sum(dim=0, dtype=kind)


def usable(like: torch.Tensor, kind: torch.dtype, training: bool) -> bool:
    """
    # Parameters

    like : `torch.Tensor`
        Has the device and the type of weights and cells.
    kind : `torch.dtype`
        Type in which products are taken.
    training : `bool`
        Whether gradients are wanted.

    # Returns

    `bool`
        Whether the fused steps are to run: on a GPU, in these types, where they work.
    """
    return (
        like.is_cuda
        and covers(like.dtype, kind, training)
        and works(like.device, like.dtype, kind, training)
    )


def covers(dtype: torch.dtype, kind: torch.dtype, training: bool) -> bool:
    """
    Not float64, which is for checks; nor training with cells in half precision, whose clipped
    values may be rounded off the clip, where the gradient finds them.
    """
    return {dtype, kind} <= TOLERANCE.keys() and (dtype == torch.float32 or not training)


@functools.cache
def works(device: torch.device, dtype: torch.dtype, kind: torch.dtype, training: bool) -> bool:
    """Whether the kernels can be compiled and give the right numbers; tried once, see `usable`."""
    try:
        wrong = _trial(device, dtype, kind, training)
        problem = f"wrong {', '.join(wrong)}" if wrong else ""
    except Exception as error:  # of Triton, its compiler or the driver
        problem = repr(error)
    if problem:
        warnings.warn(
            f"the LSTM's fused steps are not used on {device} in {dtype} with products in {kind}: "
            f"{problem}",
            stacklevel=2,
        )
    return not problem


def _trial(
    device: torch.device, dtype: torch.dtype, kind: torch.dtype, training: bool
) -> list[str]:
    """Names of what differs from autograd's."""
    generator = torch.Generator().manual_seed(0)
    size, cell_size, clip = 3, BLOCK + 16, 0.8

    def random(*shape: int, kind: torch.dtype = dtype) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cpu").to(device, kind)

    # Tensors made in inference mode could not have gradients.
    with torch.inference_mode(False), torch.no_grad():
        hidden, weight = random(size, 8, kind=kind), random(4 * cell_size, 8, kind=kind)
        for_gated = random(size, cell_size, kind=kind)
        cell, of_cell = random(size, cell_size), random(size, cell_size)
        addend = random(4 * cell_size) if training else random(size, 4 * cell_size)
        sums, previous = (product(hidden, weight) + addend).float(), cell.clone()
        expected = _by_autograd(sums, cell.float(), clip, for_gated.float(), of_cell.float())
        if training:
            steps, gated = FusedTrainingSteps(clip), torch.empty_like(for_gated)
            of_sums = torch.empty_like(sums, dtype=kind)
            kept = steps.forward(hidden, weight, addend, cell, gated)
            steps.backward(kept, previous, for_gated, of_cell, of_sums)
            found = {"outputs": gated, "cells": cell}
            found.update({"gradients of gates": of_sums, "gradients of cells": of_cell})
        else:
            gated = FusedStep(clip, kind)(Product(weight), addend, hidden, cell)
            found = {"outputs": gated, "cells": cell}
    error = max(TOLERANCE[dtype], TOLERANCE[kind])
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
    for_gated: torch.Tensor,
    of_cell: torch.Tensor,
) -> dict[str, torch.Tensor]:
    """The definition of a step, from the gates' sums and the cell before."""
    sums, previous = (one.clone().requires_grad_() for one in (sums, previous))
    i, f, g, o = sums.chunk(4, dim=1)
    cell = (torch.sigmoid(f) * previous + torch.sigmoid(i) * torch.tanh(g)).clamp(-clip, clip)
    gated = torch.sigmoid(o) * torch.tanh(cell)
    weighed = (gated * for_gated).sum() + (cell * of_cell).sum()
    of_sums, of_previous = torch.autograd.grad(weighed, [sums, previous])
    return {
        "outputs": gated,
        "cells": cell,
        "gradients of gates": of_sums,
        "gradients of cells": of_previous,
    }


def _forward_step(
    products: torch.Tensor,
    addend: torch.Tensor,
    cell: torch.Tensor,
    gated: torch.Tensor,
    activations: Optional[torch.Tensor],
    new_cell: Optional[torch.Tensor],
    cell_clip: Optional[float],
) -> None:
    stride = addend.stride(0) if addend.dim() == 2 else 0
    _launch(
        "forward_step", cell, products, addend, cell, gated, activations, new_cell,
        _limit(cell_clip), stride, KEEP=activations is not None,
    )  # fmt: skip


def _limit(clip: Optional[float]) -> float:
    return math.inf if clip is None else float(clip)


def _launch(name: str, like: torch.Tensor, *arguments: Any, **constants: Any) -> None:
    """A kernel over the rows and columns of `like`, whose width is its last argument."""
    size, cell_size = like.shape
    if size:
        grid = size, -(-cell_size // BLOCK)
        with torch.cuda.device_of(like):
            _kernel(name)[grid](*arguments, cell_size, BLOCK=BLOCK, **constants)


@functools.cache
def _kernel(name: str) -> Any:
    # Only here: it imports Triton, which takes a while.
    from elmo_plugin.bilm.kernels import triton_kernels as step_kernels

    if step_kernels.jit is None:
        raise ImportError("Triton is not installed")
    return step_kernels.jit(getattr(step_kernels, name))
