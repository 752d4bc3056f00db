"""The C++ steps: how they are compiled, kept, and what a row's bits depend on."""

import os
import stat
import subprocess
import sys

import pytest
import torch

from elmo_plugin.bilm.kernels import compiled
from elmo_plugin.bilm.kernels.reference import lstm_gates

pytestmark = pytest.mark.skipif(compiled.compiler() is None, reason="no C++ compiler")

PROGRAM = """
import sys, torch
from elmo_plugin.bilm.kernels import lstm_fused
print(lstm_fused.usable(torch.zeros(1), torch.float32, training=False))
"""


def run(folder, **variables):
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder), **variables}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment
    )
    return done.stdout.strip(), done.stderr


def forward(sums, cell, clip, gated_dtype=torch.float32):
    cell, gated = cell.clone(), torch.empty_like(cell, dtype=gated_dtype)
    zeros = torch.zeros(sums.shape[1])
    compiled.launch("forward_step", cell, sums, zeros, cell, gated, None, None, clip, 0)
    return gated, cell


def test_compiled_once_and_kept(tmp_path):
    assert run(tmp_path)[0] == "True"
    (library,) = (tmp_path / "elmo_plugin").iterdir()
    made = library.stat().st_mtime_ns
    assert run(tmp_path)[0] == "True"
    assert [one.stat().st_mtime_ns for one in (tmp_path / "elmo_plugin").iterdir()] == [made]
    assert stat.S_IMODE(library.parent.stat().st_mode) == 0o700


def test_a_library_that_was_cut_off_is_made_again(tmp_path):
    assert run(tmp_path)[0] == "True"
    (library,) = (tmp_path / "elmo_plugin").iterdir()
    size = library.stat().st_size
    library.write_bytes(library.read_bytes()[:100])
    assert run(tmp_path) == ("True", "")
    assert library.stat().st_size == size


def test_a_home_that_cannot_be_written_to(tmp_path):
    (tmp_path / "elmo_plugin").write_text("a file stands where the folder would be")
    assert run(tmp_path)[0] == "True"
    assert [one.name for one in tmp_path.iterdir()] == ["elmo_plugin"]


def test_a_compiler_that_fails_is_said_and_leaves_nothing(tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no header >&2\nexit 3\n")
    broken.chmod(0o755)
    found, said = run(tmp_path, ELMO_PLUGIN_CXX=str(broken))
    assert found == "False"
    assert "failed with status 3: no header" in said
    assert list((tmp_path / "elmo_plugin").iterdir()) == []


def test_none_is_wanted(tmp_path):
    assert run(tmp_path, ELMO_PLUGIN_CXX="none") == ("False", "")
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_that_is_not_there(monkeypatch):
    monkeypatch.setenv(compiled.VARIABLE, "c--")
    with pytest.raises(ValueError, match=r"ELMO_PLUGIN_CXX is 'c--', expected a C\+\+ compiler"):
        compiled.compiler()


def test_a_tensor_that_is_not_contiguous():
    with pytest.raises(ValueError, match=r"shape \(2, 12\) has strides \(1, 2\), expected contig"):
        forward(torch.zeros(12, 2).t(), torch.zeros(2, 3), 3.0)


def test_against_the_definition_in_float64():
    """To a few units of the last place of 1, over all that a gate may be."""
    torch.manual_seed(0)
    sums, cell = torch.randn(64, 4 * 1000) * 8, torch.randn(64, 1000) * 2
    expected = lstm_gates(sums.double(), cell.double(), 3.0)
    for found, exact in zip(forward(sums, cell, 3.0), expected, strict=True):
        assert float((found - exact).abs().max()) < 5e-7


@pytest.mark.parametrize("value", [0.0, 1e-30, 87.5, 500.0, torch.inf])
def test_extremes(value):
    for sign in (1, -1):
        sums = torch.full((1, 4 * 20), sign * value)
        expected = lstm_gates(sums.double(), torch.ones(1, 20).double(), None)
        for found, exact in zip(forward(sums, torch.ones(1, 20), torch.inf), expected, strict=True):
            torch.testing.assert_close(found.double(), exact, atol=1e-6, rtol=1e-6)


def test_bfloat16_is_rounded_to_the_nearest():
    torch.manual_seed(0)
    sums, cell = torch.randn(8, 4 * 700), torch.randn(8, 700)
    sums[0, :3] = torch.nan
    exact, rounded = (forward(sums, cell, 3.0, kind)[0] for kind in (torch.float32, torch.bfloat16))
    assert exact[0, :3].isnan().all()
    assert torch.equal(exact.bfloat16().isnan(), rounded.isnan())
    assert torch.equal(exact.bfloat16().nan_to_num(), rounded.nan_to_num())


@pytest.mark.parametrize("width", [5, 16, 512, 1030])
def test_a_row_does_not_depend_on_the_rows_beside_it_or_on_threads(width):
    torch.manual_seed(0)
    sums, cell = torch.randn(37, 4 * width), torch.randn(37, width)
    together = forward(sums, cell, 0.5)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = [forward(sums[row : row + 1], cell[row : row + 1], 0.5) for row in range(37)]
    finally:
        torch.set_num_threads(threads)
    for whole, rows in zip(together, zip(*alone, strict=True), strict=True):
        assert torch.equal(whole, torch.cat(rows))
