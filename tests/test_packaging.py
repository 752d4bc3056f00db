"""What setup.py puts into a wheel; `make check-wheel` builds, installs and uses one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elmo_plugin import __version__
from elmo_plugin.__main__ import main
from elmo_plugin.bilm.kernels import library
from elmo_plugin.commands.configs import sources
from tests.fresh_process import python

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The package as a wheel has it."""
    folder = tmp_path_factory.mktemp("built")
    python("setup.py", "-q", "build_py", "--build-lib", folder, folder=ROOT)
    return folder


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_package_is_whole(built):
    tracked = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "elmo_plugin").rglob("*")
        # C++ sources and what is built of them are no data.
        if path.is_file()
        and path.suffix not in (".cpp", ".h")
        and path.parent.name != "__pycache__"  # other tests write there meanwhile
        and not path.name.startswith("libelmo_kernels")
    }
    assert tracked <= set(files(built))
    assert "elmo_plugin/py.typed" in tracked


def test_the_configs_come_out_of_it_as_out_of_the_checkout(built, tmp_path):
    # Away from the checkout, and with the built package before the installed one.
    command = "-m", "elmo_plugin", "configs", tmp_path / "out"
    printed = python(*command, folder=tmp_path, PYTHONPATH=str(built)).stdout
    expected = {str(name): source.read_bytes() for name, source in sources()}
    assert len(expected) > 50
    assert files(tmp_path / "out") == expected
    assert f"{len(expected)} files in" in printed


def test_a_clone_of_the_same_name_beside_a_script_does_not_hide_the_package(tmp_path):
    """Python takes the clone's folder, without `__init__.py`, for a namespace package."""
    (tmp_path / "elmo_plugin").mkdir()
    script = tmp_path / "script.py"
    script.write_text("from elmo_plugin import __version__\nprint(__version__)")
    assert python(script, folder=tmp_path).stdout.strip() == __version__


def test_the_version_has_one_source():
    assert python("setup.py", "--version", folder=ROOT).stdout.split() == [__version__]


def test_a_release_is_in_the_changelog_and_the_citation():
    if ".dev" in __version__:
        pytest.skip("no release")
    assert f"\n## {__version__} - " in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_version_names_the_kernels_and_does_not_wait_for_torch(monkeypatch, capsys):
    program = """
import sys
from elmo_plugin.__main__ import main
try:
    main(["--version"])
finally:
    assert "torch" not in sys.modules
"""
    printed = python("-c", program, folder=ROOT).stdout.strip()
    assert printed.endswith(f"{__version__}, {library.description()}")
    assert library.variant() is None or f"kernels for {library.variant()}, " in printed
    monkeypatch.setenv(library.VARIABLE, "pentium")
    with pytest.raises(SystemExit):
        main(["--version"])
    assert "ELMO_PLUGIN_ISA is 'pentium', expected" in capsys.readouterr().err


def test_an_instruction_set_that_does_not_compile_is_named(tmp_path):
    compiler = tmp_path / "compiler"
    compiler.write_text(
        "#!/bin/sh\n"
        'case "$*" in -dumpmachine) echo x86_64-linux-gnu; exit;; '
        '*mamx-tile*) echo "file:1: error: unknown option" >&2; exit 1;; esac\n'
        'while [ "$1" != -o ]; do shift; done; echo compiled > "$2"\n'
    )
    compiler.chmod(0o755)
    build = "setup.py", "-q", "build_ext", "--build-lib", tmp_path
    child = python(*build, folder=ROOT, CXX=str(compiler))
    (line,) = (one for one in child.stderr.splitlines() if "elmo_plugin" in one)
    assert "x86-64-v4-amx are left out" in line
    assert line.endswith("error: unknown option")
    manifest = next(tmp_path.rglob("libelmo_kernels.json"))
    assert "amx" not in manifest.read_text("utf-8")
    assert "x86-64-v4-vnni" in manifest.read_text("utf-8")


def test_make_install_compiles_what_it_installed(tmp_path):
    """So that PYTHONDONTWRITEBYTECODE=1 does not let every process compile all sources again."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    for name in ("allennlp/a.py", "allennlp/tests/b.py", "allennlp/bad.py"):
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = (" if name.endswith("bad.py") else "x = 1")
    (tmp_path / ".installed").touch()
    command = ["make", "-f", str(ROOT / "Makefile"), "-o", ".installed", "VENV=.", "install"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(command, cwd=tmp_path, check=True, env=environment, capture_output=True)
    assert [path.name[:2] for path in tmp_path.rglob("*.pyc")] == ["a."]
    told = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True).stdout
    assert "/.compiled & .venv/bin/python examples/demo.py" in told  # and does not run it
