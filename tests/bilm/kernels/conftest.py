"""The library of kernels, with other files or other code."""

import hashlib
import json
import shutil
import subprocess

import pytest
import torch

from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.kernels.gpu import lstm_fused


@pytest.fixture
def no_library(monkeypatch):
    """PyTorch's operators run."""
    monkeypatch.setenv(library.VARIABLE, library.NONE)


@pytest.fixture
def set_threads():
    """`torch.set_num_threads`; the number is restored at the end."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def other_library(monkeypatch, tmp_path):
    """A copy of the library's files, which is loaded anew: their folder."""
    if not library.runnable_variants():
        pytest.skip("no library of kernels")
    monkeypatch.delenv(library.VARIABLE, raising=False)
    for path in (library.PATH, library.MANIFEST):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(library, "PATH", tmp_path / library.PATH.name)
    monkeypatch.setattr(library, "MANIFEST", tmp_path / library.MANIFEST.name)
    cached = (
        library._library, library._variant, library._function, library._passes_self_test,
        lstm_fused.works,
    )  # fmt: skip
    for function in cached:
        function.cache_clear()
    yield tmp_path
    for function in cached:
        function.cache_clear()


@pytest.fixture
def written_wrong(other_library, monkeypatch):
    """Builds the library with one text in place of another in its sources, without optimizing."""
    compiler = shutil.which("c++")
    if compiler is None or "x86-64-v3" not in library.runnable_variants():
        pytest.skip("no compiler, or another processor")
    source = library.Path(library.__file__).parent

    def write(text, wrong):
        folder = other_library / "sources"
        folder.mkdir()
        found = False
        for path in (*source.glob("*.cpp"), *source.glob("*.h")):
            code = path.read_text()
            found = found or text in code
            (folder / path.name).write_text(code.replace(text, wrong))
        assert found
        flags = (
            "-std=c++17", "-march=x86-64-v3", "-ffp-contract=off", "-fno-exceptions", "-fPIC",
            "-shared", "-DVARIANT=x86_64_v3", f"-DELMO_ABI={library.ABI}",
        )  # fmt: skip
        # A library that is loaded keeps its name.
        monkeypatch.setattr(library, "PATH", other_library / "wrong.so.1")
        made = str(library.PATH)
        subprocess.run([compiler, *flags, "-o", made, *folder.glob("*.cpp")], check=True)
        content = library.PATH.read_bytes()
        about = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        library.MANIFEST.write_text(json.dumps({"variants": ["x86-64-v3"], **about}))
        for function in (library._library, library._variant, library._function):
            function.cache_clear()

    return write
