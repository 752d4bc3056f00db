"""Self-test of the C++ kernels: compares a small LSTM layer with its definition in PyTorch."""

import functools
from typing import Any

import torch

from elmo_plugin.bilm.kernels import library, reference
from elmo_plugin.bilm.kernels.compiled import CompiledLstm
from elmo_plugin.bilm.kernels.compiled_training import CompiledLstmTraining
from elmo_plugin.bilm.kernels.interface import LstmModules, LstmWeights
from elmo_plugin.bilm.kernels.quantized import (
    BFloat16Linear,
    ExactLinear,
    Int8Linear,
    Int16Linear,
    LinearKernel,
)

# Largest allowed error in each number format: float rounding, or one step of quantization.
TOLERANCE = {"float32": 1e-5, "int16": 1e-4, "int8": 2e-2, "bfloat16": 2e-2}
# Largest norm of a gradient's error over the gradient's. Rounding moves some values off a clip.
GRADIENT_TOLERANCE = {"float32": 1e-5, "bfloat16": 5e-2}
DEFINITIONS: dict[str, type[LinearKernel]] = {
    "float32": ExactLinear,
    "int16": Int16Linear,
    "int8": Int8Linear,
    "bfloat16": BFloat16Linear,
}


def wrong_results(formats: tuple[str, ...]) -> list[str]:
    """
    Run the self-test in these number formats. Return the names of the results that differ from the
    definition, such as `"outputs in int8"`.
    """
    # Weights must not be inference tensors, even if a caller is in inference mode.
    with torch.inference_mode(False), torch.no_grad():
        wrong = [
            f"{name} in {number_format}"
            for number_format in formats
            for name in _wrong_in_layer(number_format)
        ]
    trained = library.trained_formats()
    return [*wrong, *(f"gradients in {one}" for one in trained if _are_gradients_wrong(one))]


@torch.inference_mode(False)
@torch.enable_grad()
def _are_gradients_wrong(number_format: str) -> bool:
    weights, start = _operands()
    tensors = [one.requires_grad_() for one in (start[0], *weights.tensors)]
    inputs, sizes, hidden, cell = start
    clips = weights.cell_clip, weights.projection_clip
    passes = (
        CompiledLstmTraining.apply(*tensors, hidden, cell, sizes, *clips, number_format),
        reference.lstm_layer(inputs, sizes, hidden, cell, weights),
    )
    found, expected = (torch.autograd.grad(one[0].sin().sum(), tensors) for one in passes)
    error = GRADIENT_TOLERANCE[number_format]
    # Not `norm > error`, which is false for NaN.
    return not all((a - b).norm() <= error * b.norm() for a, b in zip(found, expected))


def _operands() -> tuple[LstmWeights, tuple[Any, ...]]:
    """Return a small layer, and the other arguments of `Backend.lstm_layer`."""
    generator = torch.Generator().manual_seed(0)
    # More columns than a block of int16 sums, and more rows than the kernels process at a time.
    batch_sizes, cell_size, dim = [14, 7, 3, 1], 9 * 32, 5 * 32

    def random(*shape: int, scale: float = 1.0) -> torch.Tensor:
        drawn = torch.randn(shape, generator=generator, device="cpu", dtype=torch.float32)
        return drawn.mul_(scale)

    shapes = (4 * cell_size, dim), (4 * cell_size, dim), (dim, cell_size)
    inputs, state, projection = (random(*shape, scale=0.05) for shape in shapes)
    weights = LstmWeights(inputs, state, random(4 * cell_size), projection, 0.8, 0.2)
    start = random(14, dim), random(14, cell_size)
    return weights, (random(sum(batch_sizes), dim), batch_sizes, *start)


def _wrong_in_layer(number_format: str) -> list[str]:
    weights, start = _operands()
    layer = CompiledLstm(weights, number_format)
    found = layer(*start)
    if layer.gave_nan or (number_format == "float32" and not _notices_nan(layer, *start)):
        return ["NaN"]
    expected = lstm_layer(weights, DEFINITIONS[number_format], *start)
    tolerance = TOLERANCE[number_format]
    return [
        name
        for name, one, other in zip(("outputs", "hidden states", "cells"), found, expected)
        if not torch.allclose(one, other, rtol=tolerance, atol=tolerance)
    ]


def _notices_nan(layer: CompiledLstm, inputs: torch.Tensor, *others: Any) -> bool:
    inputs = inputs.clone()
    inputs[-1, 0] = torch.nan
    layer(inputs, *others)
    return layer.gave_nan


def lstm_layer(
    weights: LstmWeights,
    define: type[LinearKernel],
    inputs: torch.Tensor,
    batch_sizes: list[int],
    hidden: torch.Tensor,
    cell: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute `reference.lstm_layer`, with `define(weight)` as the product with each weight."""
    by_input, by_state, project = (
        define(one) for one in (weights.input, weights.state, weights.projection)
    )
    with_bias = functools.partial(by_input, bias=weights.bias)
    clips = weights.cell_clip, weights.projection_clip
    modules = LstmModules(with_bias, by_state, project, *clips)
    return reference.lstm_layer(inputs, batch_sizes, hidden, cell, modules)
