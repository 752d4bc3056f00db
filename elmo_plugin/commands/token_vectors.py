"""`token-vectors VOCABULARY OUTPUT`: AllenNLP 0.9's create_elmo_embeddings_from_vocab."""

import argparse
from pathlib import Path

from elmo_plugin.commands.elmo import add_bilm_arguments, load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`vocabulary`, `output`, the biLM, and how to write."""
    parser.add_argument("vocabulary", help="one token a line: AllenNLP's tokens.txt or bilm-tf's")
    parser.add_argument(
        "output",
        help=".txt or .txt.gz: a token and its numbers a line, as GloVe's; .hdf5 or .h5: the "
        "dataset embedding, for AllenNLP with a row of zeros for padding first",
    )
    add_bilm_arguments(parser)
    parser.add_argument(
        "--header",
        action="store_true",
        help="begin a text with the number of tokens and of dimensions, as word2vec's",
    )
    parser.add_argument(
        "--sentence-boundaries",
        action="store_true",
        help="add <S> and </S> behind the first token, as AllenNLP 0.9 did",
    )
    parser.add_argument("--output-vocabulary", help="write the tokens to this file, one a line")
    parser.add_argument("--force", action="store_true", help="replace outputs that exist")


def run(args: argparse.Namespace) -> None:
    """
    # Parameters

    args : `argparse.Namespace`
        What `add_arguments` asks for.

    # Raises

    `ValueError`
        If an output exists and `--force` is not given, or a token cannot be written.
    """
    from elmo_plugin.bilm.files.whole_file import whole_file
    from elmo_plugin.bilm.use.token_vectors import (
        read_vocabulary,
        with_boundaries,
        write_token_vectors,
    )
    from elmo_plugin.commands.outputs import check_output

    words = args.output_vocabulary
    if words and Path(words).resolve() == Path(args.output).resolve():
        raise ValueError(f"--output-vocabulary is {words}, expected another file")
    for path in filter(None, (args.output, args.output_vocabulary)):
        check_output(path, [args.vocabulary], args.force)
    tokens = read_vocabulary(args.vocabulary)
    bilm = load(args)
    if args.sentence_boundaries:
        tokens = with_boundaries(tokens, bilm.char_cnn.boundaries)
    write_token_vectors(bilm, tokens, args.output, args.header)
    if args.output_vocabulary:
        with whole_file(args.output_vocabulary) as aside:
            aside.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    print(f"{len(tokens)} vectors of {bilm.options.projection_dim} numbers in {args.output}")
