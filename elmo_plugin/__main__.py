"""`python -m elmo_plugin COMMAND ...`, also installed as `elmo-plugin`."""

import argparse
import sys
from importlib import import_module
from typing import Optional, Sequence

from elmo_plugin import __version__
from elmo_plugin.commands import COMMANDS


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """
    Runs one command.

    # Parameters

    arguments : `Optional[Sequence[str]]`, optional (default = `None`)
        The command line without the program's name; this process's if not given.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="elmo-plugin", description="ELMo: use it, train it, look at it."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=command.help, description=command.help)
        if given[:1] == [name]:  # the others are not imported
            command.add_arguments(subparser)
            subparser.add_argument(
                "--include-package",
                action="append",
                default=[],
                metavar="MODULE",
                help="a module to import first; may be given several times",
            )
            subparser.set_defaults(run=command.run)
    args = parser.parse_args(given)
    for package in args.include_package:
        import_module(package)
    args.run(args)


if __name__ == "__main__":
    main()
