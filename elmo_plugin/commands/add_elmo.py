"""`add-elmo CONFIG`: add ELMo to an AllenNLP training config, and try the result."""

import argparse
import json
import shlex
from contextlib import redirect_stderr
from importlib import import_module
from io import StringIO
from pathlib import Path

from elmo_plugin.commands.arguments import add_shared
from elmo_plugin.commands.outputs import check_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", help="the training config, jsonnet or JSON")
    parser.add_argument(
        "--weights",
        default="embedded",
        help="the biLM: a name, a folder, a ZIP or an options.json (default: embedded)",
    )
    parser.add_argument(
        "-o", "--output", help="the config to write (default: CONFIG's name with _elmo)"
    )
    add_shared(parser, "--force")


def run(args: argparse.Namespace) -> None:
    source = Path(args.config)
    output = Path(args.output or source.with_name(f"{source.stem}_elmo{source.suffix}"))
    check_output(output, [source, args.weights], args.force)
    from allennlp.common.checks import ConfigurationError
    from allennlp.common.util import import_module_and_submodules

    from elmo_plugin.edits import components, overlay
    from elmo_plugin.edits.elmo_edits import AddedElmo

    import_module("elmo_plugin.plugin")  # registers the classes
    for package in args.include_package:
        import_module_and_submodules(package)
    config, unset = overlay.evaluate(source)
    for name, value in unset.items():
        print(f"{name} is not set in the environment, {value} was taken for it")
    try:
        with redirect_stderr(StringIO()):  # progress bars, and warnings of trials
            added = AddedElmo(config, args.weights)
    except ConfigurationError as error:
        raise ValueError(f"{source}: {error.message}") from error
    overlay.write(source, output, added.config, added.edits)
    print(f"--- {source}\n+++ {output}")
    for edit in added.edits:
        print(f"@@ {components.shown(edit.path)}: {edit.reason}")
        for sign, value in (("-", edit.old), ("+", edit.new)):
            if value is not None:
                print(sign, json.dumps(value, ensure_ascii=False))
    for note in added.notes:
        print(f"note: {note}")
    if added.problem is not None:
        raise ValueError(f"{output} is unfinished: {added.problem}")
    try:
        with redirect_stderr(StringIO()):
            checked = added.check()
    except Exception as error:  # anything that a model's code may raise
        raise ValueError(f"{output} does not run: {type(error).__name__}: {error}") from error
    print(f"checked: {checked}")
    command = ["allennlp", "train", str(output), "-s", "FOLDER"]
    for package in ("elmo_plugin", *args.include_package):
        command += ["--include-package", package]
    print("to train it:", shlex.join(command))
