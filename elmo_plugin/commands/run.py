"""`run PROGRAM ARGUMENTS`: run a program written for AllenNLP 0.9's ELMo, unchanged."""

import argparse
import os
import runpy
import sys
import traceback
from importlib.util import find_spec
from pathlib import Path

from elmo_plugin.commands.arguments import add_state


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_state(parser, "carry", "primed", "reset")
    parser.set_defaults(state=None)  # the variable of the environment, or carry
    parser.add_argument(
        "--options-file",
        help="a biLM's name, folder or ZIP, such as embedded, in place of the files that the "
        "program names",
    )
    parser.add_argument("-m", action="store_true", help="the program is a module")
    parser.add_argument("program", help="a script, or with -m a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")


def run(args: argparse.Namespace) -> None:
    """
    Run the program in this process. The program and its child processes can import the stand-in
    modules of `elmo_plugin.as_allennlp`. If the program raises an exception, print the traceback
    and exit with status 1.
    """
    # The import installs the stand-in modules.
    from elmo_plugin.as_allennlp import OPTIONS_FILE, STATE

    sys.path.insert(0, str(Path.cwd() if args.m else Path(args.program).resolve().parent))
    if args.state is not None:
        os.environ[STATE] = args.state
    if args.options_file is not None:
        os.environ[OPTIONS_FILE] = args.options_file
    os.environ["PYTHONPATH"] = os.pathsep.join(_search_path_of_children())
    sys.argv = [args.program, *args.arguments]
    try:
        path = Path(args.program)
        if args.m and module_exists(args.program):
            runpy.run_module(args.program, run_name="__main__", alter_sys=True)
            return
        if not args.m and (path.is_file() or (path / "__main__.py").is_file()):
            runpy.run_path(args.program, run_name="__main__")
            return
    except Exception as error:
        traceback.print_exc()
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing in ("tensorflow_hub", "tensorflow"):
            print(
                f"elmo_plugin: {missing} is not installed; elmo_plugin.ElmoHub has the calls "
                "and outputs of tfhub.dev/google/elmo, in PyTorch",
                file=sys.stderr,
            )
        sys.exit(1)
    raise ValueError(
        f"there is no {'module' if args.m else 'script'} {args.program}; expected a script, or a "
        "module after -m"
    )


def module_exists(name: str) -> bool:
    """Return whether a module can be found; its parent packages are imported for that."""
    if not name or name.startswith("."):
        return False
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError as error:
        # Another module that a parent package imports may be missing instead.
        if not f"{name}.".startswith(f"{error.name}."):
            raise
        return False


def _search_path_of_children() -> list[str]:
    """
    Return the entries of PYTHONPATH for child processes. The folder with their start-up code comes
    first. If this package is not installed, its parent folder comes last.
    """
    package = Path(__file__).resolve().parents[1]
    given = os.environ.get("PYTHONPATH")
    installed = {"site-packages", "dist-packages"} & set(package.parts)
    return [
        str(package / "in_children"),
        *([given] if given else []),
        *([] if installed else [str(package.parent)]),
    ]
