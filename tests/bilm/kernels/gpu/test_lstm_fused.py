"""
The fused steps against the plain ones, by Triton's interpreter on the CPU; the kernels compiled for
GPUs that are not there. `test_gpu.py` runs them on one.
"""

import importlib.util
import subprocess
import sys

import pytest
import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels import fast, library, tuning
from elmo_plugin.bilm.kernels.gpu import lstm_fused, triton_kernels
from elmo_plugin.bilm.kernels.gpu.lstm_fused import usable, works
from elmo_plugin.bilm.kernels.interface import LstmWeights
from elmo_plugin.bilm.kernels.sampled_softmax import sampled_losses
from elmo_plugin.bilm.model.lstm import LstmCellWithProjection
from tests.cases import first_quick
from tests.interpreted_kernels import interpret
from tests.no_gpu import CompiledOnly, Driver

CPU = torch.device("cpu")
BATCH_SIZES = [4, 3, 3, 1, 1]
CLIPS = [(0.5, 0.3), (None, None)]


@pytest.fixture
def fused(monkeypatch):
    """The fused steps run wherever a GPU has them, on the CPU, in blocks of 16 columns."""
    monkeypatch.setenv(library.VARIABLE, library.NONE)
    launched = interpret(monkeypatch)
    monkeypatch.setattr(tuning, "BLOCK", 16)
    monkeypatch.setattr(
        lstm_fused,
        "usable",
        lambda like, dtype, training: lstm_fused.covers(
            like.dtype, getattr(torch, dtype) if dtype else like.dtype, training
        ),
    )
    return launched


# --- whole layers ------------------------------------------------------------------------------


def layer(cell_size, clips, dtype=torch.float32, dim=3):
    torch.manual_seed(0)
    cell = LstmCellWithProjection(4, dim, cell_size, *clips).to(dtype)
    for parameter in cell.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    inputs = torch.randn(sum(BATCH_SIZES), 4, dtype=dtype)
    start = torch.randn(4, dim, dtype=dtype) * 0.2, torch.randn(4, cell_size, dtype=dtype) * 0.4
    return cell, (inputs, BATCH_SIZES, *start)


@first_quick("clips", CLIPS)
@pytest.mark.parametrize("training_dtype", [None, "bfloat16"])
@first_quick("cell_size", [33, 6])
def test_a_layer_that_trains(fused, monkeypatch, clips, training_dtype, cell_size):
    cell, (inputs, *others) = layer(cell_size, clips)
    inputs.requires_grad_()
    cell.training_dtype = training_dtype

    def run():
        output, *finals = cell(inputs, *others)
        loss = output.square().sum()
        return output, *finals, *torch.autograd.grad(loss, [inputs, *cell.parameters()])

    found, steps = run(), len(BATCH_SIZES)
    assert fused == ["forward_step"] * steps + ["output_backward", "backward_step"] * steps
    monkeypatch.setattr(lstm_fused, "usable", lambda *_, **__: False)
    expected = run()
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == torch.float32
        if training_dtype is None:
            torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=2e-5)
        else:
            cosine = functional.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0)
            assert cosine > 0.999


def test_a_start_that_is_not_contiguous(fused):
    cell, (inputs, sizes, hidden, start) = layer(6, (0.5, 0.3))
    scattered = start.t().contiguous().t()
    assert not scattered.is_contiguous()
    expected = cell(inputs, sizes, hidden, start)
    for ours, theirs in zip(cell(inputs, sizes, hidden, scattered), expected, strict=True):
        assert torch.equal(ours, theirs)


def test_float64_runs_the_plain_steps(fused):
    cell, arguments = layer(6, (0.5, 0.3), torch.float64)
    cell(*arguments)[0].sum().backward()
    assert fused == []


# --- the choice --------------------------------------------------------------------------------


@pytest.fixture
def untried():
    works.cache_clear()
    yield
    works.cache_clear()


TYPES = [  # of cells, of products
    (torch.float32, torch.float32),
    (torch.float32, torch.bfloat16),
    (torch.float32, torch.float16),
    (torch.bfloat16, torch.bfloat16),
    (torch.float16, torch.float16),
]
TRIALS = [(*types, training) for types in TYPES for training in (False, True)]


@pytest.mark.parametrize(
    ("dtype", "kind", "training"), [one for one in TRIALS if lstm_fused.covers(*one)]
)
def test_the_self_test_passes(fused, untried, dtype, kind, training):
    with torch.inference_mode():
        assert works(CPU, dtype, kind, training)


FAULTS = [
    # (kernel's text, what is put in its place, uses that have it: training or not)
    ("c = f * previous + i * g", "c = i * g", {True, False}),
    ("c = tl.where(c < -clip, -clip, c)", "", {True, False}),
    ("g = 2 / (1 + tl.exp(-2 * g)) - 1", "g = 1 / (1 + tl.exp(-g))", {True, False}),
    ("inside = column < cell_size", "inside = column < cell_size - 1", {True, False}),
    ("tl.store(activations + cell_size, f,", "tl.store(activations + cell_size, i,", {True}),
    ("tl.where((c >= clip) | (c <= -clip), 0.0, cell_grad)", "cell_grad", {True}),
    ("tl.store(grad_gates + cell_size,", "tl.store(grad_gates + 2 * cell_size,", {True}),
    ("cell_grad * f, inside", "cell_grad, inside", {True}),
    ("tl.load(bias + cell_size, inside)", "tl.load(bias, inside)", {True, False}),
    ("tl.where(tl.load(left + row) > 0, c, previous)", "c", {False}),
    ("h = tl.where(h < -clip, -clip, h)", "", {False}),
    ("tl.store(hidden + here, h, inside & is_real)", "tl.store(hidden + here, h, inside)", {False}),
    ("tl.where(is_real, h, 0.0)", "h", {False}),
]


@pytest.mark.parametrize(("text", "wrong", "uses"), FAULTS)
def test_a_wrong_kernel_is_not_used(untried, monkeypatch, tmp_path, text, wrong, uses):
    source = importlib.util.find_spec(triton_kernels.__name__).loader.get_source(
        triton_kernels.__name__
    )
    assert text in source
    path = tmp_path / "wrong_kernels.py"
    path.write_text(source.replace(text, wrong))
    spec = importlib.util.spec_from_file_location("wrong_kernels", path)
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    interpret(monkeypatch, kernels)
    monkeypatch.setattr(tuning, "BLOCK", 16)
    for training in uses:
        with pytest.warns(UserWarning, match=r"fused steps are not used on cpu .*: wrong \w+"):
            assert not works(CPU, torch.float32, torch.float32, training=training)


def test_without_triton_the_plain_steps_run(untried, monkeypatch):
    lstm_fused.kernel.cache_clear()
    monkeypatch.setattr(triton_kernels, "jit", None)
    with pytest.warns(UserWarning, match="Triton is not installed"):
        assert not works(CPU, torch.float32, torch.float32, training=False)


def test_the_kernels_file_imports_without_triton(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    spec = importlib.util.find_spec(triton_kernels.__name__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.jit is None


def test_tried_once(untried, monkeypatch):
    tries = []
    monkeypatch.setattr(
        lstm_fused, "_wrong_results", lambda *arguments: tries.append(arguments) or []
    )
    for _ in range(2):
        assert works(CPU, torch.float32, torch.float32, training=False)
    assert len(tries) == 1


def test_on_a_cpu_nothing_is_tried(untried, monkeypatch):
    monkeypatch.setattr(lstm_fused, "works", None)
    assert not usable(torch.zeros(1), None, training=False)


@pytest.mark.slow
def test_a_cpu_does_not_import_triton():
    program = """
import sys, torch
from elmo_plugin.bilm.model.lstm import BiLstm
module = BiLstm(projection_dim=3, cell_size=6, num_layers=1)
for frozen in (False, True):
    module.requires_grad_(not frozen)
    module.stack("forward", torch.zeros(2, 3), [1, 1], module.initial_state(1))
print("triton" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


# --- compiled ----------------------------------------------------------------------------------


@first_quick("capability", [80, 90])
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_the_launches_compile(capability, dtype, fused, monkeypatch, tmp_path):
    """
    To machine code that reads 16 bytes at a time; once, whatever the number of rows, where widths
    are multiples of 16.
    """
    import triton

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuning, "BLOCK", 512)
    # Kernels that are only compiled leave memory as it was, which may hold NaN.
    monkeypatch.setattr(fast, "_has_nan", lambda _: False)
    monkeypatch.setattr(triton.runtime.driver, "_active", Driver(capability))
    for last in (["output_step"], ["output_backward", "backward_step"]):
        names = ["forward_step", *last]
        kernels = {name: CompiledOnly(getattr(triton_kernels, name)) for name in names}
        monkeypatch.setattr(lstm_fused, "kernel", kernels.__getitem__)
        if "output_step" in names:
            run_frozen_layer(dtype)
        else:
            cell, arguments = layer(528, (3, None), dim=16)
            cell.training_dtype = dtype
            cell(*arguments)[0].sum().backward()
        for kernel in kernels.values():
            (code,) = kernel.code.values()
            assert len(code["cubin"]) > 1000
            assert f".target sm_{capability}" in code["ptx"]
            assert "ld.global.v4.b32" in code["ptx"]
            # Rounded to the nearest, unlike in the interpreter.
            assert ("cvt.rn.bf16" in code["ptx"]) == (dtype == "bfloat16")
            assert ".local" not in code["ptx"]


def run_frozen_layer(dtype):
    size, kind = 528, getattr(torch, dtype or "float32")
    first, state, projection = (torch.zeros(2, n * size, size, dtype=kind) for n in (4, 4, 1))
    weights = LstmWeights(first, state, torch.zeros(2, 4 * size), projection, 3.0, None)
    inputs, outputs = torch.zeros(2, 3, 4, size), torch.zeros(2, 3, 4, size)
    hidden, cell = torch.zeros(2, 4, size, dtype=kind), torch.zeros(2, 4, size)
    left = torch.ones(3, 4, dtype=torch.int32)
    lstm_fused.run_layer(weights, inputs, outputs, hidden, cell, left)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_sampled_losses_compile(dtype, monkeypatch, tmp_path):
    triton = pytest.importorskip("triton", reason="no Triton: PyTorch has it where it has CUDA")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(triton.runtime.driver, "_active", Driver(90))
    losses = CompiledOnly(triton_kernels.sampled_softmax)
    monkeypatch.setattr(lstm_fused, "kernel", lambda _: losses)
    rows, ids, bias = torch.randn(4, 8), torch.arange(7), torch.randn(7)
    sampled_losses(rows, ids[:4], ids, bias[:4], torch.randn(7, 8), bias, dtype, True)
    assert [len(code["cubin"]) > 1000 for code in losses.code.values()] == [True]
