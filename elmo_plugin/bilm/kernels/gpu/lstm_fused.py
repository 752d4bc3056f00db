"""
LSTM steps on a GPU, whose elementwise part is one fused Triton kernel.

Separate operators are slow: the launch of one takes about as long as a step's matrix products. If
a kernel is missing or fails its self-test, PyTorch's operators run.
"""

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import library, reference, tuning
from elmo_plugin.bilm.kernels.interface import LstmWeights
from elmo_plugin.bilm.kernels.reference import lstm_gates

# Largest error that the self-test accepts.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def run_layer(
    weights: LstmWeights,
    inputs: torch.Tensor,
    outputs: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    left: torch.Tensor,
) -> None:
    """
    Run a frozen layer of both directions for a few steps, and overwrite its outputs and states.

    `weights`: those of both directions, stacked.
    `inputs`, `outputs`: shape `(2, num_steps, batch_size, dim)`, as each direction reads.
    `hidden`, `cell`: states, shape `(2, batch_size, dim)`; `hidden` in the products' dtype.
    `left`: number of steps that each sentence has from each step on, int32, shape `(num_steps,
    batch_size)`. One that has none keeps its states, and its outputs are 0.
    """
    _, num_steps, size, _ = inputs.shape
    dim, cell_size = hidden.shape[2], cell.shape[2]
    rows = inputs.to(hidden.dtype).flatten(1, 2)
    addends = torch.bmm(rows, weights.input.transpose(1, 2)).view(2, num_steps, size, -1)
    products = hidden.new_empty(2, size, 4 * cell_size)
    gated, projected = hidden.new_empty(2, size, cell_size), torch.empty_like(hidden)
    cell_clip, projection_clip = map(library.limit, (weights.cell_clip, weights.projection_clip))
    cell_grid, cell_block = grid(size, cell_size, 2)
    output_grid, output_block = grid(size, dim, 2)
    for step in range(num_steps):
        torch.bmm(hidden, weights.state.transpose(1, 2), out=products)
        kernel("forward_step")[cell_grid](
            products, addends[:, step], weights.bias, cell, gated, left[step], None, None,
            cell_clip, cell_size, TRAINS=False, BLOCK=cell_block, addends_stride=addends.stride(0),
            gated_stride=gated.stride(0), cell_stride=cell.stride(0),
        )  # fmt: skip
        torch.bmm(gated, weights.projection.transpose(1, 2), out=projected)
        kernel("output_step")[output_grid](
            projected, hidden, outputs[:, step], left[step], projection_clip, dim,
            outputs.stride(0), BLOCK=output_block,
        )  # fmt: skip


def usable(like: torch.Tensor, dtype: str | None, training: bool) -> bool:
    """
    Return whether fused kernels exist and work where weights and cell states have the device and
    dtype of `like`. `dtype` is that of products, see `Precision`; `training` says if gradients are
    needed.
    """
    product_dtype = like.dtype if dtype is None else getattr(torch, dtype)
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

    def random(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cpu").to(device, dtype)

    # The self-test computes gradients, which tensors made in inference mode cannot have.
    with torch.inference_mode(False), torch.no_grad():
        results = (_trained_step if training else _frozen_steps)(random, product_dtype)
    error = max(TOLERANCE[dtype], TOLERANCE[product_dtype])
    return [
        name
        for name, (value, expected) in results.items()
        if not torch.allclose(value.float(), expected.float(), rtol=error, atol=error)
    ]


# Results of the self-test, and what they should be, by name.
Results = dict[str, tuple[torch.Tensor, torch.Tensor]]


def _frozen_steps(random: Callable[..., torch.Tensor], product_dtype: torch.dtype) -> Results:
    """Two steps of both directions, for sentences of two steps, of one and of none."""
    dim, cell_size, clips = 8, 2 * tuning.BLOCK + 16, (0.8, 0.4)
    shapes = (4 * cell_size, dim), (4 * cell_size, dim), (cell_size, dim)
    first, state, by_cell = (random(2, *one, dtype=product_dtype) / 3 for one in shapes)
    projection, bias = by_cell.transpose(1, 2).contiguous(), random(2, 4 * cell_size)
    inputs, hidden, cell = random(2, 2, 3, dim), random(2, 3, dim), random(2, 3, cell_size)
    weights = LstmWeights(first, state, bias, projection, *clips)
    outputs = torch.full_like(inputs, math.nan)  # reveals elements that a kernel does not write
    states = hidden.to(product_dtype, copy=True), cell.clone()
    left = torch.tensor([[2, 1, 0], [1, 0, -1]], dtype=torch.int32, device=cell.device)
    run_layer(weights, inputs, outputs, *states, left)
    expected = []
    for rows, start, first_cell, *tensors in zip(inputs, hidden, cell, *weights.tensors):
        packed, begin = torch.cat([rows[0, :2], rows[1, :1]]), start.to(product_dtype)
        given = (one.float() for one in (packed, begin, first_cell, *tensors))
        packed, begin, first_cell, *own = given
        one_direction = LstmWeights(own[0], own[1], own[2], own[3], *clips)
        packed, *ends = reference.lstm_layer(packed, [2, 1], begin, first_cell, one_direction)
        padded = torch.zeros_like(rows, dtype=torch.float32)
        padded[0, :2], padded[1, 0] = packed[:2], packed[2]
        expected.append((padded, *ends))
    results = zip((outputs, *states), map(torch.stack, zip(*expected)))
    return dict(zip(("outputs", "hidden states", "cells"), results))


def _trained_step(random: Callable[..., torch.Tensor], product_dtype: torch.dtype) -> Results:
    size, cell_size, clip = 3, 2 * tuning.BLOCK + 16, 0.8
    hidden = random(size, 8, dtype=product_dtype)
    weight = random(4 * cell_size, 8, dtype=product_dtype)
    grad_gated = random(size, cell_size, dtype=product_dtype)
    previous, grad_cell = random(size, cell_size), random(size, cell_size)
    addends, bias = random(size, 4 * cell_size, dtype=product_dtype), random(4 * cell_size)
    products = functional.linear(hidden, weight)
    sums = products.float() + addends.float() + bias
    with torch.enable_grad():
        z, c = (one.clone().requires_grad_() for one in (sums, previous))
        results = lstm_gates(z, c, clip)
        weights = grad_gated.float(), grad_cell.clone()
        expected = *results, *torch.autograd.grad(results, (z, c), weights)
    # Filled with NaN, which reveals elements that a kernel does not write.
    activations, grad_sums = torch.full((2, *sums.shape), math.nan, device=sums.device)
    gated, cell = (torch.full_like(one, math.nan) for one in (grad_gated, previous))
    launched, block = grid(size, cell_size, 1)
    with torch.cuda.device_of(cell):
        kernel("forward_step")[launched](
            products, addends, bias, previous, gated, None, activations, cell, clip, cell_size,
            TRAINS=True, BLOCK=block,
        )  # fmt: skip
        kernel("backward_step")[launched](
            grad_gated, activations, cell, previous, grad_cell, grad_sums, clip, cell_size,
            BLOCK=block,
        )  # fmt: skip
    names = "outputs", "cells", "gradients of gates", "gradients of cells"
    return dict(zip(names, zip((gated, cell, grad_sums, grad_cell), expected)))


def grid(size: int, width: int, directions: int) -> tuple[tuple[int, int, int], int]:
    """Return the grid of a kernel over rows of `width`, and the number of columns of a program."""
    block = min(2 * tuning.BLOCK, 1 << (width - 1).bit_length())
    return (size, -(-width // block), directions), block


@functools.cache
def kernel(name: str) -> Any:
    """Return the Triton kernel `name`; raise an `ImportError` if Triton is not installed."""
    # Imported here, because Triton is slow to import.
    from elmo_plugin.bilm.kernels.gpu import triton_kernels

    if triton_kernels.jit is None:
        raise ImportError("Triton is not installed")
    return triton_kernels.jit(getattr(triton_kernels, name))
