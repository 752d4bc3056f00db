"""Command line `python -m elmo_plugin COMMAND ...`, also installed as `elmo-plugin`."""

import argparse
import sys
from importlib import import_module
from typing import Any, Optional, Sequence

from elmo_plugin import __version__


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Run the command that `arguments` name. They default to this process's command line."""
    try:
        args = _parsed(arguments)
        from elmo_plugin.commands.run import module_exists

        for package in args.include_package:
            if not module_exists(package):
                print(
                    f"error: --include-package is {package!r}, expected a module that can be "
                    "imported",
                    file=sys.stderr,
                )
                sys.exit(1)
            import_module(package)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    args.run(args)


def _parsed(arguments: Optional[Sequence[str]]) -> argparse.Namespace:
    # Import here, because `main` reports a Ctrl-C during this import in one line.
    from elmo_plugin.commands import COMMANDS, standard_streams

    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="elmo-plugin", description="ELMo: use it, train it, look at it."
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="version and kernels, then exit"
    )
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(
            name, aliases=command.aliases, help=command.help, description=command.help
        )
        if given[:1] and given[0] in (name, *command.aliases):  # importing every one is slow
            command.add_arguments(subparser)
            subparser.add_argument(
                "--include-package",
                action="append",
                default=[],
                metavar="MODULE",
                help="a module to import first; may be given several times",
            )
            subparser.set_defaults(run=command.run)
    with standard_streams():
        if not given:
            parser.print_help(sys.stderr)
            parser.exit(
                2, f"\n{parser.prog}: error: there is no command, expected one of those above\n"
            )
        return parser.parse_args(given)


class _Version(argparse.Action):
    """Action of `--version` that prints the version, and the kernels for this processor."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        library = import_module("elmo_plugin.bilm.kernels.library")
        try:
            print(f"{parser.prog} {__version__}, {library.description()}")
        except ValueError as error:  # of the variable that names a variant
            parser.error(str(error))
        parser.exit()


if __name__ == "__main__":
    main()
