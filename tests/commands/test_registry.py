"""`python -m elmo_plugin`: the registry, errors as one line, what needs no AllenNLP."""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from elmo_plugin.__main__ import main
from elmo_plugin.bilm.corpus.embed import ENGINES
from elmo_plugin.bilm.extraction.vectors import DTYPES, LAYERS, LAYOUTS
from elmo_plugin.bilm.model.state import REPRODUCIBLE_MODES, STATE_MODES
from elmo_plugin.commands import COMMANDS, standard_streams
from tests.cases import assert_brief
from tests.fresh_process import python, run_core

# Python takes a module for missing if `None` stands for it.
ALLENNLP_HIDDEN = """
import sys
sys.modules["allennlp"] = sys.modules["allennlp_models"] = None
from elmo_plugin.__main__ import main
"""


CHOICES = {
    "--state": (STATE_MODES, REPRODUCIBLE_MODES),
    "--layout": (LAYOUTS,),
    "--layers": (LAYERS,),
    "--storage-dtype": (DTYPES,),
    "--engine": (ENGINES,),
}


def test_choices_are_those_of_the_library():
    seen = set()
    for command in COMMANDS.values():
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        for action in parser._actions:
            for option in CHOICES.keys() & set(action.option_strings):
                seen.add(option)
                assert set(action.choices) in map(set, CHOICES[option])
    assert seen == set(CHOICES)


IMPORTS = """
import argparse, sys
from elmo_plugin.__main__ import main
from elmo_plugin.commands import COMMANDS
for command in COMMANDS.values():
    command.add_arguments(argparse.ArgumentParser())
main(["vocabulary", *sys.argv[1:]])
print(sorted({"torch", "spacy", "matplotlib", "allennlp"} & set(sys.modules)))
"""


def test_no_help_imports_anything_slow(tmp_path):
    (tmp_path / "in").write_text("Yes")
    child = python("-c", IMPORTS, tmp_path / "in", tmp_path / "out")
    assert child.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_examples_that_parse(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "--help"])
    text = capsys.readouterr().out
    parser = argparse.ArgumentParser()
    COMMANDS[name].add_arguments(parser)
    assert COMMANDS[name].examples
    for example in COMMANDS[name].examples:
        assert f"\n  elmo-plugin {name} {example}\n" in text
        parser.parse_args(shlex.split(example))


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert all(command.help in " ".join(text.split()) for command in COMMANDS.values())


def test_sentences_are_tokenized_one_a_line(tmp_path, capsys):
    (tmp_path / "a.txt").write_text('Mr. Smith came\nhome. "Why?" she asked.\n\nA new paragraph')
    (tmp_path / "b.txt").write_text("Don't!")
    main(["sentences", str(tmp_path / "a.txt"), str(tmp_path / "b.txt"), str(tmp_path / "out")])
    assert (tmp_path / "out").read_text().splitlines() == [
        "Mr. Smith came home .",
        '" Why ? " she asked .',
        "A new paragraph",
        "Do n't !",
    ]
    assert capsys.readouterr().out.startswith("4 sentences in ")


def test_an_error_is_one_line_and_status_1(tmp_path, error_line):
    (tmp_path / "in").write_bytes(b"ol\xe9")
    (tmp_path / "out").write_text("kept")
    arguments = ["sentences", str(tmp_path / "in"), str(tmp_path / "out")]
    for extra, said in ((), "out exists, expected a new file"), (["--force"], "not UTF-8"):
        assert said in error_line(*arguments, *extra)
        assert (tmp_path / "out").read_text() == "kept"
    main([*arguments, "--force", "--encoding", "latin-1"])
    assert (tmp_path / "out").read_text() == "olé\n"
    error = error_line(*arguments, "--force", "--encoding", "utf-16")
    assert f"{tmp_path / 'in'}: not utf-16, after line 0: " in error


@pytest.mark.parametrize(
    ("command", "package", "advice"),
    [
        ("sentences in out", "spacy", "elmo_plugin[spacy]"),
        ("add-elmo in", "allennlp", "docs/getting_started.md"),
        ("export-onnx out", "onnx", "elmo_plugin[onnx]"),
        ("layer-weights weights.th --plot x.png", "matplotlib", "elmo_plugin[plot]"),
    ],
)
def test_what_is_not_installed_is_one_line_that_says_how_to_get_it(
    command, package, advice, tmp_path, monkeypatch, error_line
):
    monkeypatch.chdir(tmp_path)
    Path("in").write_text("Yes")
    torch.save({"a.gamma": torch.ones(1), "a.scalar_parameters.0": torch.ones(1)}, "weights.th")
    for name in [one for one in sys.modules if one.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    find = PathFinder.find_spec
    monkeypatch.setattr(PathFinder, "find_spec", lambda name, *more: (
        None if name == package else find(name, *more)
    ))  # fmt: skip
    error = error_line(*command.split())
    assert error.startswith(f"error: {package} is not installed; ")
    assert advice in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("elmo none out", "there is no file or folder none"),
        ("elmo . out", ". is a folder, expected a file"),
        ("show none out", "there is no file or folder none"),
        ("layer-weights none.th", "there is no file or folder none.th"),
        ("sentences in/none out", "in/none: Not a directory"),
        ("elmo in in", "in exists, expected a new file; --force replaces it"),
        ("elmo in out --batch-size 0", "batch_size is 0, expected 1 or more"),
        ("elmo in out --forget-sentences --include-sentence-indices", "--include-sentence-indices"),
        ("layer-weights .", ". holds neither model.tar.gz nor best.th, expected a folder of `alle"),
        ("layer-weights a --names b c", "--names has 2 names, expected 1: one per archive"),
        ("layer-weights a --plot x.pdf", "--plot is x.pdf, expected a name that ends with .png, "),
        ("pretrain none.json -s run", "there is no config none.json, expected a JSON or jsonnet"),
        ("score . in", ". has no softmax.hdf5 and no vocabulary.txt, expected the folder of a fin"),
        ("export-bilm . in", "in is a file, expected a folder"),
        ("convert-checkpoint . in", "in is a file, expected a folder"),
        ("vocabulary in -", "the output is -, expected a file's name"),
        ("vocabulary in no/out --force", "there is no folder no to write out to"),
        ("vocabulary in . --force", ". is a folder or a device, expected the name of a file"),
        ("vocabulary *.text out", "there is no text file *.text"),
        ("vocabulary in out --min-count -1", "min_count is -1, expected at least 1"),
        ("vocabulary in out --max-size 0", "max_size is 0, expected at least 3"),
        ("score in", "expected DIRECTORY and TEXT, or TEXT and --options-file"),
        ("score --options-file embedded in in", "expected DIRECTORY and TEXT, or TEXT and --opt"),
        ("show in out --include-package no_such_package", "--include-package is 'no_such_package'"),
        ("show in out --include-package no_such.package", "--include-package is 'no_such.package'"),
        ("show in out --include-package ''", "--include-package is '', expected a module that can"),
        ("score in in --tokens --summary", "--summary with --tokens or --substitutes, expected"),
    ],
)
def test_a_bad_argument_is_said_in_words(arguments, message, tmp_path, monkeypatch, error_line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_text("Yes\n")
    error = error_line(*shlex.split(arguments))
    assert error.startswith(f"error: {message}")
    assert_brief(error)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(
    "command", ["elmo", "elmo --resume", "sentences", "show", "vocabulary", "token-vectors"]
)
def test_no_file_is_replaced_unasked_and_an_input_is_no_output(command, tmp_path, error_line):
    name, replaces = (*command.split(), "--force")[:2]
    text, other, link = (tmp_path / file for file in ("in", "other", "link"))
    text.write_text("Yes\n")
    other.write_text("mine")
    link.symlink_to(text)
    assert "other exists, expected a new file; --force replaces" in error_line(name, text, other)
    for output in (text, link):
        assert "is an input too, expected" in error_line(name, text, output, replaces)
    assert (text.read_text(), other.read_text()) == ("Yes\n", "mine")


def test_include_package_imports_it_first(tmp_path, monkeypatch):
    (tmp_path / "marker_package.py").write_text("print('imported')")
    (tmp_path / "in").write_text("Yes.")
    monkeypatch.syspath_prepend(tmp_path)
    files = [str(tmp_path / "in"), str(tmp_path / "out")]
    main(["sentences", *files, "--include-package", "marker_package"])
    assert "marker_package" in sys.modules


@pytest.mark.parametrize("module", ["faulty_package", "faulty_package.module"])
@pytest.mark.parametrize(
    ("code", "error"),
    [("import no_such_package", ModuleNotFoundError), ("raise ValueError('mine')", ValueError)],
)
def test_a_fault_in_a_package_keeps_its_traceback(module, code, error, tmp_path, monkeypatch):
    (tmp_path / "faulty_package").mkdir()
    (tmp_path / "faulty_package" / "__init__.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(error, match=r"no_such_package|mine"):
        main(["sentences", "in", "out", "--include-package", module])


SHOWS = """
import sys
from elmo_plugin.commands import show
from elmo_plugin.__main__ import main
show.run = lambda args: {}
main(["show", "none", "none"])
"""


BUFFERED = {**os.environ, "PYTHONUNBUFFERED": ""}


def test_an_interrupt_while_the_last_output_is_written_is_one_line(tmp_path, monkeypatch, capsys):
    """The pipe to a pager may be full."""

    def interrupted():
        raise KeyboardInterrupt

    with (tmp_path / "out").open("w") as stdout:
        full = SimpleNamespace(flush=interrupted, fileno=stdout.fileno)
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises((SystemExit, KeyboardInterrupt)) as stopped, standard_streams():
            pass
    assert (stopped.value.args, capsys.readouterr().err) == ((130,), "interrupted\n")


@pytest.mark.parametrize("change", ["sys.stdout.close()", "sys.stdout = None"])
def test_a_program_may_close_stdout_or_replace_it(change, tmp_path):
    (tmp_path / "program.py").write_text(f"import sys\nprint('done')\n{change}\n")
    child = python("-m", "elmo_plugin", "run", tmp_path / "program.py", PYTHONUNBUFFERED="")
    assert (child.stdout, child.stderr) == ("done\n", "")


# More than the buffer of stdout, and less, which is written at the end.
@pytest.mark.parametrize(
    "program",
    [
        SHOWS.format("print('x' * 100_000, flush=True)"),
        SHOWS.format("print('x')"),
        "from elmo_plugin.__main__ import main; main(['--version'])",
        "from elmo_plugin.__main__ import main; main(['show', '--help'])",
    ],
)
def test_a_reader_that_closes_the_pipe_is_no_error(program):
    command = [sys.executable, "-c", program]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **streams, env=BUFFERED) as child:
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 141


@pytest.mark.parametrize(
    ("stream", "status", "text"),
    [
        ("stderr", 0, "done\n"),
        ("stdout", 1, "error: [Errno 28] No space left on device\n"),
    ],
)
def test_a_stream_on_a_full_disk(stream, status, text):
    program = SHOWS.format("[print('x' * 9000, file=sys.stderr), print('done')]")
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Path("/dev/full").open("w") as full:
        streams[stream] = full
        child = subprocess.run([sys.executable, "-c", program], text=True, env=BUFFERED, **streams)
    assert child.returncode == status
    assert (child.stdout or child.stderr).removeprefix("x" * 9000 + "\n") == text


def test_an_interrupt_while_a_package_loads_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "interrupted_package.py").write_text("raise KeyboardInterrupt\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["show", "p.jsonl", "page.html", "--include-package", "interrupted_package"])
    assert (stopped.value.code, capsys.readouterr().err) == (130, "interrupted\n")


@pytest.mark.parametrize("place", ["elmo_plugin.commands", "elmo_plugin.commands.show"])
def test_an_interrupt_while_a_command_loads_is_one_line(place):
    program = (
        "import sys\n"
        "from elmo_plugin.__main__ import main\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {place!r}:\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "main(['show', 'p.jsonl', 'page.html'])"
    )
    assert run_core(program, status=130).stderr == "interrupted\n"


def drop_in_a_callback():
    class Callback:
        def __del__(self):
            raise KeyboardInterrupt

    Callback()


def drop_while_torch_is_imported():
    """As torch's C code does when it imports NumPy."""
    program = "import signal\ntry: signal.raise_signal(2)\nexcept KeyboardInterrupt: pass\n"
    exec(compile(program, "__init__.py", "exec"), {"__name__": "torch"})


@pytest.mark.parametrize("drop", [drop_in_a_callback, drop_while_torch_is_imported])
def test_an_interrupt_is_not_lost(drop, monkeypatch, capsys):
    """Not even where the command waits for something when it is repeated."""

    def run(args):
        drop()
        time.sleep(60)

    monkeypatch.setattr("elmo_plugin.commands.show.run", run)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    before, start = signal.signal(signal.SIGINT, signal.default_int_handler), time.monotonic()
    try:
        with pytest.raises(SystemExit) as stopped:
            main(["show", "p.jsonl", "page.html"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - start < 60
    assert (stopped.value.code, capsys.readouterr().err) == (130, "interrupted\n")


def test_no_command_lists_them_all(capsys):
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 2
    output, error = capsys.readouterr()
    assert output == ""
    assert all(f"\n    {name} " in error for name in COMMANDS)
    assert error.endswith("elmo-plugin: error: there is no command, expected one of those above\n")
