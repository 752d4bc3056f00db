"""The portable variant on AArch64, emulated: bitwise the results of this machine's library."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.kernels.compiled import CompiledLstm
from elmo_plugin.bilm.kernels.interface import LstmWeights

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
# Bytes of a weight, and the floats of a panel's scales for each of its columns.
FORMATS = {"float32": (4, 0), "int16": (2, 1), "int8": (1, 1)}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which(COMPILER) and shutil.which(EMULATOR)) or library.variant() is None,
        reason=f"needs {COMPILER}, {EMULATOR} and the library of kernels",
    ),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The kernels and `aarch64_main.cpp` as one program for AArch64."""
    made, source = tmp_path_factory.mktemp("aarch64") / "program", Path(library.__file__).parent
    flags = (
        "-static", "-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fopenmp-simd",
        "-DVARIANT=portable", f"-DELMO_ABI={library.ABI}", f"-I{source}",
    )  # fmt: skip
    files = source / "library.cpp", Path(__file__).with_name("aarch64_main.cpp")
    subprocess.run([COMPILER, *flags, "-o", made, *files], check=True)
    return made


def emulated(program, number_format):
    """Return `lstm_layer` of `kernels.cpp`, run by the program."""
    size, scales = FORMATS[number_format]

    def weight(pointer, rows, columns):
        return floats(pointer, rows * (columns * size // 4 + scales))

    def floats(pointer, count):
        return np.frombuffer(ctypes.string_at(pointer, 4 * count), np.float32)

    def run(layer, inputs, hidden, cell, outputs, sizes, steps, elements, threads):
        layer, most, count = layer._obj, sizes[0], sum(sizes)
        arrays = (
            weight(layer.input, 4 * layer.width, layer.input_dim),
            floats(layer.bias, 4 * layer.width),
            weight(layer.state, 4 * layer.width, layer.dim),
            weight(layer.projection, layer.dim, layer.width),
            np.array(sizes),
            np.array([layer.width, layer.dim, layer.input_dim, layer.row_major, elements]),
            np.array([layer.cell_clip, layer.projection_clip], np.float32),
            floats(inputs, count * layer.input_dim),
            floats(hidden, most * layer.dim),
            floats(cell, most * layer.width),
        )
        found = subprocess.run(
            [EMULATOR, program, number_format],
            input=b"".join(np.int64(len(one)).tobytes() + one.tobytes() for one in arrays),
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for pointer, one in ((outputs, count * layer.dim), (hidden, most * layer.dim),
                             (cell, most * layer.width)):  # fmt: skip
            ctypes.memmove(pointer, found[: 4 * one], 4 * one)
            found = found[4 * one :]
        assert not found

    return run


@pytest.mark.parametrize("number_format", FORMATS)
@pytest.mark.parametrize(
    ("cell_size", "dim", "input_dim", "batch_sizes"),
    [(288, 160, 96, [14, 7, 3, 1]), (70, 33, 45, [70, 2]), (1, 1, 1, [1, 1])],
)
def test_a_layer_is_bitwise_identical(
    program, monkeypatch, number_format, cell_size, dim, input_dim, batch_sizes
):
    torch.manual_seed(0)
    shapes = (4 * cell_size, input_dim), (4 * cell_size, dim), (dim, cell_size)
    inputs, state, projection = (torch.randn(shape) * 0.1 for shape in shapes)
    weights = LstmWeights(inputs, state, torch.randn(4 * cell_size), projection, 0.8, 0.2)
    most = batch_sizes[0]
    start = (
        torch.randn(sum(batch_sizes), input_dim), batch_sizes,
        torch.randn(most, dim), torch.randn(most, cell_size),
    )  # fmt: skip
    expected = CompiledLstm(weights, number_format)(*start)
    native = library.function
    monkeypatch.setattr(
        library,
        "function",
        lambda name, *types: (
            emulated(program, number_format) if name == "lstm_layer" else native(name, *types)
        ),
    )
    found = CompiledLstm(weights, number_format)(*start)
    assert all(torch.equal(*both) for both in zip(found, expected, strict=True))
