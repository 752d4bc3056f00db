"""The portable variant on AArch64, emulated: every entry point has the bits that it has on x86."""

import ast
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from elmo_plugin.bilm.kernels import library

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
SOURCES = Path(library.__file__).parent
PROGRAM = Path(__file__).with_name("entry_points.cpp")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which(COMPILER) and shutil.which(EMULATOR) and shutil.which("c++")),
        reason=f"needs {COMPILER}, {EMULATOR} (Debian: g++-aarch64-linux-gnu, qemu-user) and c++",
    ),
]


def results(folder, compiler, *flags, emulator=(), threads=(1, 2)):
    """Compile `entry_points.cpp`; return the lines it prints, alike for all numbers of threads."""
    made = folder / "program"
    setup = ast.parse((SOURCES.parents[2] / "setup.py").read_text("utf-8"))
    (shared,) = (
        ast.literal_eval(one.value)
        for one in setup.body
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "FLAGS"
    )
    define = "-DVARIANT=portable", f"-DELMO_ABI={library.ABI}", f"-I{SOURCES}"
    files = SOURCES / "library.cpp", PROGRAM, "-lpthread"
    subprocess.run([compiler, *shared, *define, *flags, "-o", made, *files], check=True)
    first, *others = (
        subprocess.run(
            [*emulator, made, str(count)], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.splitlines()
        for count in threads
    )
    assert all(one == first for one in others)
    return first


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """What the kernels print on AArch64."""
    folder = tmp_path_factory.mktemp("aarch64")
    return results(folder, COMPILER, "-static", emulator=[EMULATOR])


def test_every_entry_point_runs(emulated):
    printed = {tuple(line.split()[:2]) for line in emulated}
    ran = {name for name, _ in printed}
    defined = re.findall(r"^ *ENTRY\((\w+)", (SOURCES / "kernels.cpp").read_text(), re.MULTILINE)
    # Macros' names end before the number format that is joined to them.
    assert {name.removesuffix("_") for name in defined} == ran - {"block_hashes"}
    frozen = {"pack", "lstm_layer", "convolution", "highway", "linear"}
    assert {(name, one) for name in frozen for one in ("float32", "int16", "int8")} <= printed
    for line in emulated:
        *_, ordinary, count = line.split()
        assert int(ordinary) > 0.3 * int(count), line


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86 processor")
@pytest.mark.parametrize("flags", [(), ("-march=x86-64-v3",), ("-march=x86-64-v4",)])
def test_bits_are_those_of_x86(emulated, tmp_path, flags):
    if flags and flags[0].removeprefix("-march=") not in library.runnable_variants():
        pytest.skip(f"this processor does not run {flags[0]}")
    assert results(tmp_path, "c++", *flags) == emulated
