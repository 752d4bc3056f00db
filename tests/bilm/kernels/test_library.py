"""The library of kernels: which of its variants runs, what is refused, processes and threads."""

import os
import platform
import shutil
import sys

import pytest
import torch

from elmo_plugin.bilm.kernels import library, self_test
from elmo_plugin.bilm.kernels.compiled import CompiledLstm, pointer
from elmo_plugin.bilm.kernels.interface import LstmWeights
from elmo_plugin.bilm.kernels.reference import lstm_gates
from tests import fresh_process

needs_library = pytest.mark.skipif(library.variant() is None, reason="no library of kernels")


def test_the_variable_names_the_variant(monkeypatch):
    for name in library.runnable_variants():
        monkeypatch.setenv(library.VARIABLE, name)
        assert library.variant() == name
    monkeypatch.setenv(library.VARIABLE, "none")
    assert library.variant() is None
    assert library.formats() == ()


def test_an_unknown_variant_is_an_error(monkeypatch):
    monkeypatch.setenv(library.VARIABLE, "pentium")
    with pytest.raises(ValueError, match=r"ELMO_PLUGIN_ISA is 'pentium', expected one of \('x86"):
        library.variant()


@needs_library
def test_a_variant_that_was_not_built_is_an_error(monkeypatch):
    monkeypatch.setattr(library, "VARIANTS", (*library.VARIANTS, "pentium"))
    monkeypatch.setenv(library.VARIABLE, "pentium")
    with pytest.raises(ValueError, match="which this processor or this build does not have"):
        library.variant()


def test_where_there_is_a_compiler_the_library_runs():
    """Otherwise most tests of this folder are skipped in silence."""
    if shutil.which("c++") is None or platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("no compiler, or another processor")
    if os.environ.get(library.VARIABLE):
        pytest.skip(f"{library.VARIABLE} is set")
    assert library.variant() is not None


@needs_library
def test_every_variant_passes_its_self_test():
    for name in library.runnable_variants():
        with library.use_variant(name):
            assert library.variant() == name
            assert self_test.wrong_results(library.formats()) == []


def refused(match):
    with pytest.warns(UserWarning, match=match) as warned:
        assert [library.variant() for _ in range(2)] == [None, None]
    assert len(warned) == 1


DAMAGES = {
    "cut off": lambda content: content[: len(content) // 2],
    "without its last byte": lambda content: content[:-1],
    "empty": lambda content: b"",
    "a flipped bit": lambda content: bytes([*content[:-9], content[-9] ^ 16, *content[-8:]]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_library_is_not_used(other_library, damage):
    library.PATH.write_bytes(DAMAGES[damage](library.PATH.read_bytes()))
    refused("is not used: it is not the file that the build wrote; install the package again")


def test_a_library_of_another_version_is_not_used(other_library, monkeypatch):
    monkeypatch.setattr(library, "ABI", 99)
    refused(r"its version is \d+, expected 99")


@pytest.mark.parametrize("manifest", ["", "{}", "[]", '{"size": 3, "sha256": ""}'])
def test_a_damaged_manifest(other_library, manifest):
    library.MANIFEST.write_text(manifest)
    refused("is not used")


def test_a_missing_library_is_not_used(other_library):
    library.PATH.unlink()
    refused("No such file")


def test_a_pure_python_install_says_nothing(other_library, recwarn):
    library.MANIFEST.unlink()
    assert library.variant() is None
    assert library.description().endswith("has no compiled kernels)")
    assert not recwarn.list


FAULTS = [
    "__builtin_fmaf(f, cell, i * g) => i * g",
    "clamp(own[j], projection_clip) => own[j]",
    "first ? sums : sums + load(before) => sums",
    "broadcast(-bits_of(parameters[1])) => broadcast(0)",
    "32750.0f / parameters[0] => 32000.0f / parameters[0]",
    "sizes[step + 1] : 0 => sizes[step + 1] : size",
    "layer.bias + column, width => layer.bias, width",
]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_library_is_not_used(written_wrong, fault):
    written_wrong(*fault.split(" => "))
    refused("is not used, since its variant x86-64-v3 gives wrong")


# --- processes and threads -----------------------------------------------------------------------

LAYER = """
import os, sys, threading, torch
from elmo_plugin.bilm.kernels.interface import LstmWeights
from elmo_plugin.bilm.kernels.compiled import CompiledLstm
torch.set_num_threads(2)
torch.manual_seed(0)
shapes = (512, 64), (512, 96), (512,), (96, 128)
weights = LstmWeights(*(torch.randn(shape) / 10 for shape in shapes), 3.0, 3.0)
start = torch.randn(90, 64), [30, 30, 20, 10], torch.randn(30, 96), torch.randn(30, 128)
layer = CompiledLstm(weights, "int8")
expected = layer(*start)
def same():
    return all(one.equal(other) for _ in range(20) for one, other in zip(layer(*start), expected))
"""


def run(program):
    done = fresh_process.run_core(program)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@needs_library
def test_a_fork_after_first_use():
    program = """
child = os.fork()
if child == 0:
    grandchild = os.fork()
    os._exit(0 if same() and (grandchild == 0 or os.waitpid(grandchild, 0)[1] == 0) else 1)
print(same(), os.waitpid(child, 0)[1])
"""
    assert run(LAYER + program) == ["True", "0"]


@needs_library
def test_a_fork_while_another_thread_computes():
    """The child's threads, started slowly since they are many, leave the parent's job alone."""
    program = """
import signal
from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.kernels.compiled import CompiledAffine
from elmo_plugin.bilm.kernels.interface import Affine
linear = CompiledAffine(Affine(torch.randn(64, 8192), torch.randn(64)), "float32")
rows, outputs = torch.randn(400, 8192), torch.zeros(400, 64)
pointers = rows.data_ptr(), outputs.data_ptr(), None
stop = threading.Event()
def work():
    while not stop.is_set():
        library.function("linear", "float32")(linear.struct, *pointers, len(rows), 2)
worker = threading.Thread(target=work)
worker.start()
statuses = []
for _ in range(20):
    child = os.fork()
    if child == 0:
        signal.alarm(100)
        outputs.zero_()
        torch.set_num_threads(64)
        os._exit(0 if same() and not outputs.any() else 1)
    statuses.append(os.waitpid(child, 0)[1])
    if statuses[-1]:
        break
stop.set()
worker.join()
print(*set(statuses), same())
"""
    assert run(LAYER + program) == ["0", "True"]


@needs_library
def test_several_threads_at_once():
    program = """
found = []
threads = [threading.Thread(target=lambda: found.append(same())) for _ in range(5)]
for one in threads: one.start()
for one in threads: one.join()
print(*set(found), len(found))
"""
    assert run(LAYER + program) == ["True", "5"]


@needs_library
@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_missing_memory_is_an_error():
    """For scratch space and for a packed weight; afterwards the layer works."""
    program = """
import resource
from elmo_plugin.bilm.kernels.compiled import on_large_pages
many = torch.randn(40_000, 64), [40_000], *(one[:1].repeat(40_000, 1) for one in start[2:])
used = 1024 * int(next(line for line in open("/proc/self/status") if "VmSize" in line).split()[1])
resource.setrlimit(resource.RLIMIT_AS, (used + (60 << 20), -1))
for act in (lambda: layer(*many), lambda: on_large_pages((1 << 28,), torch.float32)):
    try:
        act()
        print("memory")
    except MemoryError:
        print("MemoryError")
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
print(same())
"""
    assert run(LAYER + program) == ["MemoryError", "MemoryError", "True"]


# --- gates ---------------------------------------------------------------------------------------


def forward(sums, cell, clip):
    """Return the gated outputs and cells of a step with these pre-activations, each row alone."""
    width = cell.shape[1]
    results = []
    for row, start in zip(sums, cell.split(1), strict=True):
        zeros = torch.zeros(4 * width, 1), torch.zeros(4 * width, width)
        weights = LstmWeights(*zeros, row, torch.eye(width), clip, None)
        layer = CompiledLstm(weights, "float32")
        results.append(layer(torch.zeros(1, 1), [1], torch.zeros(1, width), start)[1:])
    return [torch.cat(one) for one in zip(*results, strict=True)]


@needs_library
def test_a_tensor_that_is_not_contiguous():
    with pytest.raises(ValueError, match=r"shape \(2, 12\) has .* strides \(1, 2\), expected"):
        pointer(torch.zeros(12, 2).t())


@needs_library
def test_gates_against_the_definition_in_float64():
    """To a few units of the last place of 1, over all that a gate may be."""
    torch.manual_seed(0)
    sums, cell = torch.randn(64, 4 * 1000) * 8, torch.randn(64, 1000) * 2
    expected = lstm_gates(sums.double(), cell.double(), 3.0)
    for found, exact in zip(forward(sums, cell, 3.0), expected, strict=True):
        assert float((found - exact).abs().max()) < 5e-7


@needs_library
@pytest.mark.parametrize("value", [0.0, 1e-30, 87.5, 500.0, torch.inf])
def test_extreme_gates(value):
    for sign in (1, -1):
        sums = torch.full((1, 4 * 20), sign * value)
        expected = lstm_gates(sums.double(), torch.ones(1, 20).double(), None)
        for found, exact in zip(forward(sums, torch.ones(1, 20), None), expected, strict=True):
            torch.testing.assert_close(found.double(), exact, atol=1e-6, rtol=1e-6)
