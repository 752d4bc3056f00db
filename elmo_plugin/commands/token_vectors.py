"""`token-vectors VOCABULARY OUTPUT`: write the token layer's vectors of a vocabulary."""

import argparse
from pathlib import Path

from elmo_plugin.bilm.files.text import counted
from elmo_plugin.commands.arguments import add_shared, bilm_files, load
from elmo_plugin.commands.outputs import check_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("vocabulary", help="one token per line: AllenNLP's tokens.txt or bilm-tf's")
    parser.add_argument(
        "output",
        help=".txt or .txt.gz: a token and its numbers per line, like GloVe; .hdf5 or .h5: the "
        "dataset embedding for AllenNLP, whose first row is zeros for padding",
    )
    add_shared(parser, "--options-file", "--weight-file", "--cuda-device")
    parser.add_argument(
        "--header",
        action="store_true",
        help="begin a text file with the number of tokens and of dimensions, like word2vec",
    )
    parser.add_argument(
        "--sentence-boundaries",
        action="store_true",
        help="add <S> and </S> after the first token, as AllenNLP 0.9 did",
    )
    parser.add_argument("--output-vocabulary", help="write the tokens to this file, one per line")
    add_shared(parser, "--force")


def run(args: argparse.Namespace) -> None:
    """
    Write each token's context-independent vector (layer 0), like AllenNLP 0.9's
    `create_elmo_embeddings_from_vocab`.
    """
    from elmo_plugin.bilm.files.atomic_write import atomic_write
    from elmo_plugin.bilm.use.token_vectors import (
        read_vocabulary,
        with_boundaries,
        write_token_vectors,
    )

    words = args.output_vocabulary
    if words and Path(words).resolve() == Path(args.output).resolve():
        raise ValueError(f"--output-vocabulary is {words}, expected another file")
    for path in filter(None, (args.output, args.output_vocabulary)):
        check_output(path, [args.vocabulary, *bilm_files(args)], args.force)
    tokens = read_vocabulary(args.vocabulary)
    bilm = load(args)
    if args.sentence_boundaries:
        tokens = with_boundaries(tokens, bilm.token_class.boundaries)
    write_token_vectors(bilm, tokens, args.output, args.header)
    if args.output_vocabulary:
        with atomic_write(args.output_vocabulary) as temporary:
            temporary.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    vectors = counted(len(tokens), "vector")
    print(f"{vectors} of {bilm.options.projection_dim} numbers in {args.output}")
