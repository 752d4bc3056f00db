"""
Commands, in one registry: `python -m elmo_plugin NAME` (also `elmo-plugin NAME`) runs them without
AllenNLP, and `elmo_plugin.commands.subcommands` offers the same ones as `allennlp NAME`.

A command is a module with `add_arguments(parser)` and `run(args)`. It is imported for its arguments
alone, so what is slow to import (torch, spaCy, matplotlib) is imported inside `run`. What the user
did wrong is raised as `ValueError` or `OSError`, and shown as one line.
"""

import argparse
import sys
from importlib import import_module
from typing import NamedTuple

from elmo_plugin.bilm.kernels.allocator import keep_freed_memory

# What is no part of the core, and how it is had (setup.py's extras).
MISSING = {
    "matplotlib": "pip install 'elmo_plugin[plot]'",
    "pyarrow": "pip install 'elmo_plugin[parquet]'",
    "ray": "pip install 'elmo_plugin[ray]'",
    "spacy": "pip install 'elmo_plugin[spacy]'",
    "_jsonnet": "pip install 'elmo_plugin[jsonnet]', or give the config as JSON",
    "onnx": "pip install 'elmo_plugin[onnx]'",
    "onnxscript": "pip install 'elmo_plugin[onnx]'",
    "allennlp": 'README.md, "Install", says how it goes on top of this package',
}


class Command(NamedTuple):
    """
    `module`: where `add_arguments` and `run` are. `help`: one line.
    """

    module: str
    help: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The command's own arguments."""
        import_module(self.module).add_arguments(parser)

    def run(self, args: argparse.Namespace) -> None:
        """
        Runs it; an error of the user's, or a package that is not installed, ends the process with
        status 1 and one line, Ctrl-C with status 130.
        """
        keep_freed_memory()
        try:
            import_module(self.module).run(args)
        except KeyboardInterrupt as interrupt:
            sys.exit(_say(str(interrupt) or "interrupted", status=130))
        except (ValueError, OSError) as error:
            sys.exit(_say(f"error: {error}", status=1))
        except ModuleNotFoundError as error:
            if error.name not in MISSING:
                raise
            sys.exit(_say(f"error: {error.name} is not installed; {MISSING[error.name]}", status=1))


def _say(text: str, status: int) -> int:
    print(text, file=sys.stderr)
    return status


# One line a command. Those that need AllenNLP say so in their module and import it inside `run`.
COMMANDS = {
    "elmo": Command("elmo_plugin.commands.elmo", "a biLM's layers for every line, to HDF5"),
    "embed-corpus": Command(
        "elmo_plugin.commands.embed_corpus", "a corpus's vectors, to Parquet, by many processes"
    ),
    "token-vectors": Command(
        "elmo_plugin.commands.token_vectors", "vectors of a vocabulary, without context, to a file"
    ),
    "neighbours": Command(
        "elmo_plugin.commands.neighbours",
        "nearest neighbours of a word in context (Peters et al. 2018, table 4)",
    ),
    "score": Command(
        "elmo_plugin.commands.score", "how likely sentences are, and what else might stand there"
    ),
    "layer-weights": Command(
        "elmo_plugin.commands.layer_weights",
        "learned weights of the layers, as a plot (Peters et al. 2018, figure 2)",
    ),
    "show": Command(
        "elmo_plugin.commands.show", "predictions, marked in their texts, as one HTML page"
    ),
    "sentences": Command(
        "elmo_plugin.commands.sentences", "prose to tokenized sentences, one a line"
    ),
    "vocabulary": Command(
        "elmo_plugin.commands.vocabulary", "the words that pretraining predicts, by frequency"
    ),
    "pretrain": Command(
        "elmo_plugin.commands.pretrain", "a biLM from plain text, in one process or in many"
    ),
    "export-bilm": Command(
        "elmo_plugin.commands.export_bilm", "a pretraining run's biLM from any of its checkpoints"
    ),
    "table1": Command(
        "elmo_plugin.commands.table1",
        "Table 1 of Peters et al. 2018: every row with and without ELMo, over seeds",
    ),
    "run": Command(
        "elmo_plugin.commands.run", "a program written for AllenNLP 0.9's ELMo, as it is"
    ),
    "convert-checkpoint": Command(
        "elmo_plugin.commands.convert_checkpoint",
        "a training checkpoint of bilm-tf's, for use and for going on, without TensorFlow",
    ),
    "export-onnx": Command(
        "elmo_plugin.commands.export_onnx", "a biLM as an ONNX file, for onnxruntime"
    ),
    "configs": Command(
        "elmo_plugin.commands.configs", "the training configs and their sample data, to a directory"
    ),
}
