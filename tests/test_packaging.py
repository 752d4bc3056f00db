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

ROOT = Path(__file__).parents[1]


def run(*arguments, cwd, **environment):
    child = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The package as a wheel has it."""
    folder = tmp_path_factory.mktemp("built")
    run("setup.py", "-q", "build_py", "--build-lib", str(folder), cwd=ROOT)
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
    command = ("-m", "elmo_plugin", "configs", str(tmp_path / "out"))
    printed = run(*command, cwd=tmp_path, PYTHONPATH=str(built))
    expected = {str(name): source.read_bytes() for name, source in sources()}
    assert len(expected) > 50
    assert files(tmp_path / "out") == expected
    assert f"{len(expected)} files in" in printed


def test_a_clone_of_the_same_name_beside_a_script_does_not_hide_the_package(tmp_path):
    """Python takes the clone's folder, without `__init__.py`, for a namespace package."""
    (tmp_path / "elmo_plugin").mkdir()
    script = tmp_path / "script.py"
    script.write_text("from elmo_plugin import __version__\nprint(__version__)")
    assert run(str(script), cwd=tmp_path).strip() == __version__


def test_the_version_has_one_source():
    assert run("setup.py", "--version", cwd=ROOT).split() == [__version__]


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
    printed = run("-c", program, cwd=ROOT).strip()
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
    child = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "CXX": str(compiler)}, capture_output=True, text=True,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
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
