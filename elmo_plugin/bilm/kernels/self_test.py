"""Self-test of the C++ kernels: compares a small LSTM layer with its definition in PyTorch."""

from typing import Any

import torch

from elmo_plugin.bilm.kernels import library, reference
from elmo_plugin.bilm.kernels.compiled import CompiledLstm
from elmo_plugin.bilm.kernels.compiled_training import CompiledLstmTraining
from elmo_plugin.bilm.kernels.interface import LstmWeights

# Largest norm of the error over the result's norm: float rounding, or some steps of quantization.
TOLERANCE = {"float32": 1e-5, "int16": 5e-4, "int8": 3e-2, "bfloat16": 1e-2}
# Of a gradient: rounding moves some values off a clip.
GRADIENT_TOLERANCE = {"float32": 1e-5, "bfloat16": 5e-2}


@torch.inference_mode(False)  # weights must not be inference tensors, even if a caller's are
def wrong_results(formats: tuple[str, ...]) -> list[str]:
    """
    Run the self-test in these number formats. Return the names of the results that differ from the
    definition, such as `"outputs in int8"`.
    """
    trained = library.trained_formats()
    wrong = [f"{name} in {one}" for one in formats for name in _wrong_in_layer(one)]
    return wrong + [f"gradients in {one}" for one in trained if _are_gradients_wrong(one)]


@torch.enable_grad()
def _are_gradients_wrong(number_format: str) -> bool:
    weights, (inputs, sizes, hidden, cell) = _operands()
    tensors = [one.requires_grad_() for one in (inputs, *weights.tensors)]
    clips = weights.cell_clip, weights.projection_clip
    passes = (
        CompiledLstmTraining.apply(*tensors, hidden, cell, sizes, *clips, number_format),
        reference.lstm_layer(inputs, sizes, hidden, cell, weights),
    )
    found, expected = (torch.autograd.grad(one[0].sin().sum(), tensors) for one in passes)
    error = GRADIENT_TOLERANCE[number_format]
    return not all(_is_near(one, other, error) for one, other in zip(found, expected))


def _is_near(found: torch.Tensor, expected: torch.Tensor, error: float) -> bool:
    # Not `norm > error`, which is false for NaN.
    return bool((found - expected).norm() <= error * expected.norm())


def _operands() -> tuple[LstmWeights, Any]:
    """Return a small layer, and the other arguments of `reference.lstm_layer`."""
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


@torch.no_grad()
def _wrong_in_layer(number_format: str) -> list[str]:
    weights, start = _operands()
    layer = CompiledLstm(weights, number_format)
    found = layer(*start)
    inputs, sizes, hidden, cell = start
    expected = reference.lstm_layer(inputs, sizes, hidden, cell, weights)
    if layer.gave_nan or (number_format == "float32" and not _notices_nan(layer, *start)):
        return ["NaN"]
    names, error = ("outputs", "hidden states", "cells"), TOLERANCE[number_format]
    results = zip(names, found, expected)
    return [name for name, one, other in results if not _is_near(one, other, error)]


def _notices_nan(layer: CompiledLstm, inputs: torch.Tensor, *others: Any) -> bool:
    inputs[-1, 0] = torch.nan
    layer(inputs, *others)
    return layer.gave_nan
