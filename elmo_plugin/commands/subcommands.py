"""Registration of all commands as AllenNLP subcommands: `allennlp NAME ...`."""

import argparse

from allennlp.commands.subcommand import Subcommand

from elmo_plugin.commands import COMMANDS, Command


def register(name: str, command: Command) -> None:
    """Register a command as the AllenNLP subcommand `name`."""

    @Subcommand.register(name, exist_ok=True)
    class PluginCommand(Subcommand):
        def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
            subparser = parser.add_parser(
                name, aliases=command.aliases, help=command.help, description=command.help
            )
            command.add_arguments(subparser)
            subparser.set_defaults(func=command.run)
            return subparser


for _name, _command in COMMANDS.items():
    register(_name, _command)
