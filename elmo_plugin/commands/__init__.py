"""
Registry of the commands. `elmo-plugin NAME` (also `python -m elmo_plugin NAME`) runs them without
AllenNLP; `elmo_plugin.commands.subcommands` registers the same ones as `allennlp NAME`.

A command is a module with `add_arguments(parser)` and `run(args)`. `--help` must be quick, so slow
imports (torch, spaCy, Matplotlib) are inside `run`. A `ValueError` or `OSError` is shown as one
line, without a traceback, since it means wrong input.
"""

import argparse
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from elmo_plugin.bilm.files.optional_packages import MISSING
from elmo_plugin.bilm.files.stderr import stderr
from elmo_plugin.bilm.files.text import described
from elmo_plugin.bilm.kernels.machine import keep_freed_memory, keep_to_cpu_quota


class Command(NamedTuple):
    """
    A command of the command line. `module` is the name of the module that defines `add_arguments`
    and `run`. `help` is one line, `examples` are arguments to show in `--help`, and `aliases` are
    other names of the command.
    """

    module: str
    help: str
    examples: Sequence[str] = ()
    aliases: Sequence[str] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments to a parser, and its examples to the end of `--help`."""
        import_module(self.module).add_arguments(parser)
        lines = (f"  {parser.prog} {example}\n".replace("%", "%%") for example in self.examples)
        parser.epilog = "examples:\n" + "".join(lines)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter

    def run(self, args: argparse.Namespace) -> None:
        """
        Run the command. Wrong input or a missing optional package prints one line to stderr and
        exits with status 1, Ctrl-C with status 130.
        """
        sys.unraisablehook = _interrupt_again
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt)
        keep_freed_memory()
        keep_to_cpu_quota()
        with standard_streams():
            try:
                import_module(self.module).run(args)
            except KeyboardInterrupt as interrupt:
                _end(str(interrupt) or "interrupted", status=130)
            except BrokenPipeError:
                raise
            except (ValueError, OSError) as error:
                _end(f"error: {described(error)}", status=1)
            except ModuleNotFoundError as error:
                if error.name not in MISSING:
                    raise
                _end(f"error: {error.name} is not installed; {MISSING[error.name]}", status=1)


@contextmanager
def standard_streams() -> Iterator[None]:
    """
    Context manager that opens what a shell's `2>&-` closed, in the order of descriptors, so that no
    output file gets number 2. Stdout takes names that UTF-8 cannot encode, and stderr may be on a
    full disk. At the end stdout is flushed: Python would do so after the exit status is set.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stderr, stdout = stderr(), sys.stdout
    try:
        try:
            yield
        finally:
            with suppress(ValueError):  # a program that `run` runs may close or detach it
                stdout.flush()
    except (OSError, KeyboardInterrupt) as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader, such as `head`, wants no more
            sys.exit(141)  # as a shell reports SIGPIPE
        if isinstance(error, KeyboardInterrupt):  # the reader, such as `less`, waits
            _end("interrupted", status=130)
        _end(f"error: {described(error)}", status=1)


def _interrupt(number: int, frame: Any) -> None:
    """
    Raise a `KeyboardInterrupt`, once NumPy and torch are imported: their code in C drops it, aborts
    the process, or leaves a module that cannot be imported again.
    """
    while frame is not None:
        module = frame.f_globals.get("__name__", "").partition(".")[0]
        if frame.f_code.co_name == "<module>" and module in ("numpy", "torch"):
            _interrupt_soon()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _interrupt_again(unraisable: Any) -> None:
    """
    Repeat a Ctrl-C that came in a callback, such as a weak reference's while a biLM is loaded.
    Python drops every exception there, and the command would go on.
    """
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        _interrupt_soon()
    else:
        sys.__unraisablehook__(unraisable)


def _interrupt_soon() -> None:
    """Send Ctrl-C again, after the current code, which would drop it; wake a read that waits."""

    def interrupt() -> None:
        if hasattr(signal, "pthread_kill"):  # not on Windows
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            signal.raise_signal(signal.SIGINT)

    threading.Timer(0.05, interrupt).start()


def _end(text: str, status: int) -> NoReturn:
    print(text, file=sys.stderr)
    sys.exit(status)


# Help and examples of each command. Commands that need AllenNLP import it inside `run`, so that
# the others work without it.
_TABLE = {
    "add-elmo": (
        "add ELMo to an AllenNLP training config, and try the result",
        "my_config.jsonnet",
        "my_config.jsonnet --weights original -o with_elmo.jsonnet",
    ),
    "elmo": (
        "compute a biLM's layers for every line of a text, to HDF5",
        "sentences.txt layers.hdf5 --all",
        "sentences.txt average.hdf5 --average --options-file original --cuda-device 0",
    ),
    "embed-corpus": (
        "embed a corpus in many processes, to Parquet",
        "'text/*.txt' vectors --workers 8",
        "text.txt vectors --layers all --engine ray",
    ),
    "token-vectors": (
        "write the context-independent vectors of a vocabulary",
        "tokens.txt vectors.txt.gz",
        "out/vocabulary/tokens.txt vectors.hdf5",
    ),
    "neighbours": (
        "find a word's nearest neighbours in context (Peters et al. 2018, table 4)",
        "text.txt 'He walked to the bank of the river .' bank",
        "text.txt 'He walked to the bank of the river .' bank --same-word --page bank.html",
    ),
    "score": (
        "score sentences with a biLM as a language model, and suggest substitutes",
        "run text.txt",
        "run text.txt --substitutes 5",
    ),
    "layer-weights": (
        "show the layer weights that models learned (Peters et al. 2018, figure 2)",
        "out/model.tar.gz",
        "out/ner out/srl --names NER SRL --plot weights.svg",
    ),
    "show": (
        "show predictions, marked in their texts, as one HTML page",
        "predictions.jsonl page.html",
        "predictions.jsonl page.html --inputs sentences.jsonl",
    ),
    "sentences": (
        "split prose into tokenized sentences, one per line",
        "book.txt sentences.txt",
        "old.txt sentences.txt --encoding latin-1",
    ),
    "vocabulary": (
        "count the words that pretraining is to predict",
        "'train/*.txt' vocabulary.txt --min-count 3",
    ),
    "pretrain": (
        "train a biLM on plain text, in one process or in many",
        "training_config/bilm.jsonnet -s run",
        "training_config/bilm.jsonnet -s run --recover",
    ),
    "export-bilm": (
        "export the biLM of a pretraining run from any of its checkpoints",
        "run exported",
    ),
    "run": (
        "run a program written for AllenNLP 0.9's ELMo, unchanged",
        "train.py --epochs 3",
        "--state primed -m package.train",
    ),
    "convert-checkpoint": (
        "convert a checkpoint of bilm-tf, to use it or to continue training",
        "save_dir converted --vocabulary vocabulary.txt",
    ),
    "export-onnx": (
        "export a biLM as an ONNX file",
        "bilm.onnx",
        "original.onnx --options-file original --state reset",
    ),
    "configs": ("write the training configs and their sample data to a directory", "my_project"),
}
_ALIASES = {"neighbours": ("neighbors",)}
COMMANDS = {
    name: Command(
        f"elmo_plugin.commands.{name.replace('-', '_')}", help, examples, _ALIASES.get(name, ())
    )
    for name, (help, *examples) in _TABLE.items()
}
