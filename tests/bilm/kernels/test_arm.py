"""Variants for AArch64, emulated: every entry point has the bits that it has on x86."""

import ast
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.kernels.self_test import GRADIENT_TOLERANCE

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
SOURCES = Path(library.__file__).parent
PROGRAM = Path(__file__).with_name("entry_points.cpp")
# An emulated processor for each variant that lacks the extensions of the next.
PROCESSORS = {"portable": "cortex-a72", "aarch64-dotprod": "neoverse-n1", "aarch64-bf16": "max"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which(COMPILER) and shutil.which(EMULATOR) and shutil.which("c++")),
        reason=f"needs {COMPILER}, {EMULATOR} (Debian: g++-aarch64-linux-gnu, qemu-user) and c++",
    ),
]


@pytest.fixture(scope="module")
def flags():
    """The compiler's flags in `setup.py`: for all variants, and for each by its name."""
    found = {}
    for one in ast.parse((SOURCES.parents[2] / "setup.py").read_text("utf-8")).body:
        if isinstance(one, ast.Assign) and not any(isinstance(n, ast.Call) for n in ast.walk(one)):
            exec(ast.unparse(one), found)
    return found["FLAGS"], {**found["X86_VARIANTS"], **found["ARM_VARIANTS"]}


def compiled(folder, compiler, *arguments):
    """Compile `entry_points.cpp`; return the program's path."""
    made = folder / "program"
    # The program names its variant `portable`, whatever the instructions.
    define = "-DVARIANT=portable", f"-DELMO_ABI={library.ABI}", f"-I{SOURCES}"
    files = SOURCES / "library.cpp", PROGRAM, "-lpthread"
    subprocess.run([compiler, *define, *arguments, "-o", made, *files], check=True)
    return made


def results(*command):
    """Return the lines that a program prints, the same for one thread and for two."""
    one, other = (
        subprocess.run(
            [*command, threads], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.splitlines()
        for threads in ("1", "2")
    )
    assert one == other
    return one


@pytest.fixture(scope="module", params=PROCESSORS)
def emulated(request, tmp_path_factory, flags):
    """The name of a variant, and the command that runs it."""
    everywhere, own = flags
    folder = tmp_path_factory.mktemp(request.param)
    program = compiled(folder, COMPILER, *everywhere, *own[request.param])
    processor = PROCESSORS[request.param]
    # The cross-compiler's C library. A static one has no old names of functions.
    return request.param, [EMULATOR, "-L", "/usr/aarch64-linux-gnu", "-cpu", processor, program]


@pytest.fixture(scope="module")
def expected(tmp_path_factory, flags):
    """The results of the portable variant on x86."""
    if platform.machine() != "x86_64":
        pytest.skip("needs an x86 processor")
    return results(compiled(tmp_path_factory.mktemp("x86"), "c++", *flags[0]))


def in_bfloat16(lines):
    return [line for line in lines if line.split()[1] == "bfloat16"]


def test_bits_are_those_of_x86(emulated, expected):
    variant, command = emulated
    found = results(*command)
    rounded = in_bfloat16(found)
    assert [line for line in found if line not in rounded] == expected
    # Processors round bfloat16 in ways of their own.
    errors = [float(line.split()[-1]) for line in rounded if not line.startswith("pack")]
    assert bool(errors) == (variant == "aarch64-bf16")
    assert all(1e-4 < error < GRADIENT_TOLERANCE["bfloat16"] for error in errors)


@pytest.mark.parametrize("variant", ["x86-64-v3", "x86-64-v4", "x86-64-v4-bf16"])
def test_bits_are_the_same_in_variants_for_x86(variant, expected, tmp_path, flags):
    if variant not in library.runnable_variants():
        pytest.skip(f"this processor does not run {variant}")
    found = results(compiled(tmp_path, "c++", *flags[0], *flags[1][variant]))
    assert [line for line in found if line not in in_bfloat16(found)] == expected


def test_every_entry_point_runs(expected):
    printed = {tuple(line.split()[:2]) for line in expected}
    defined = re.findall(r'ENTRY\("(\w+)"', (SOURCES / "kernels.cpp").read_text())
    assert {name.removesuffix("_") for name in defined} == {name for name, _ in printed}
    frozen = {"pack", "lstm_layer", "convolution", "highway", "linear"}
    assert {(name, one) for name in frozen for one in ("float32", "int16", "int8")} <= printed
    for line in expected:
        *_, ordinary, count, _ = line.split()
        assert int(ordinary) > 0.3 * int(count), line


def test_the_library_knows_what_a_processor_runs(emulated):
    variant, command = emulated
    runs = [name for name in library.VARIANTS if subprocess.run([*command, name]).returncode == 0]
    fastest_first = [*reversed(PROCESSORS)]
    assert runs == fastest_first[fastest_first.index(variant) :]
