"""`vocabulary TEXT... OUT`: count words, and write the vocabulary of a biLM's softmax."""

import argparse

from elmo_plugin.commands.arguments import add_shared
from elmo_plugin.commands.outputs import check_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="+", help="text files or globs, a sentence a line")
    parser.add_argument("output", help="the file to write: one word a line")
    parser.add_argument(
        "--min-count", type=int, default=1, help="rarer words become <UNK> (default: 1)"
    )
    parser.add_argument("--max-size", type=int, help="largest number of words")
    add_shared(parser, "--force")


def run(args: argparse.Namespace) -> None:
    from elmo_plugin.bilm.pretraining.vocabulary import find_text_files, vocabulary_of

    paths = [path for pattern in args.inputs for path in find_text_files(pattern)]
    check_output(args.output, paths, args.force)
    vocabulary = vocabulary_of(paths, args.min_count, args.max_size)
    vocabulary.save(args.output)
    print(f"{len(vocabulary)} words in {args.output}")
