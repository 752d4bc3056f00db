"""`run PROGRAM ARGUMENTS`: a program written for AllenNLP 0.9's ELMo, as it is."""

import argparse
import os
import runpy
import sys
import traceback
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--state`, `-m`, the program and its arguments."""
    parser.add_argument(
        "--state",
        choices=("carry", "primed", "reset"),
        help="where a sentence's LSTM state starts: where the batch before ended, as in AllenNLP "
        "(the default); after a fixed text, so that a sentence always has the same vectors; or at "
        "zero",
    )
    parser.add_argument("-m", action="store_true", help="the program is a module")
    parser.add_argument("program", help="a script, or with -m a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")


def run(args: argparse.Namespace) -> None:
    """
    # Parameters

    args : `argparse.Namespace`
        What `add_arguments` asks for.

    # Raises

    `ValueError`
        If there is no such program. What the program raises is shown as Python shows it.
    """
    from elmo_plugin.as_allennlp import STATE  # whose import lets old programs find their modules

    if not args.m and not Path(args.program).exists():
        raise ValueError(f"there is no script {args.program}; expected one, or a module after -m")
    if args.state is not None:
        os.environ[STATE] = args.state
    sys.argv = [args.program, *args.arguments]
    try:
        if args.m:
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(args.program, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(args.program).resolve().parent))
            runpy.run_path(args.program, run_name="__main__")
    except Exception:
        traceback.print_exc()
        sys.exit(1)
