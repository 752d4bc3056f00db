"""Every command as an AllenNLP subcommand: `allennlp NAME ...`."""

import argparse

from allennlp.commands.subcommand import Subcommand

from elmo_plugin.commands import COMMANDS, Command


def register(name: str, command: Command) -> None:
    """
    # Parameters

    name : `str`
        What to type after `allennlp`.
    command : `Command`
        What it does.
    """

    @Subcommand.register(name, exist_ok=True)
    class PluginCommand(Subcommand):
        def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
            subparser = parser.add_parser(name, help=command.help, description=command.help)
            command.add_arguments(subparser)
            subparser.set_defaults(func=command.run)
            return subparser


for _name, _command in COMMANDS.items():
    register(_name, _command)
