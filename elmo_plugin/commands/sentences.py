"""`sentences IN... OUT`: prose to what pretraining reads, by `elmo_plugin.data.prose`."""

import argparse
import codecs
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`inputs`, `output`, `--encoding`, `--paragraph-lines`, `--force`."""
    parser.add_argument("inputs", nargs="+", help="text files, UTF-8 unless --encoding says else")
    parser.add_argument("output", help="the file to write: one tokenized sentence a line")
    parser.add_argument("--encoding", default="utf-8", help="of the inputs (default: utf-8)")
    parser.add_argument(
        "--paragraph-lines",
        action="store_true",
        help="every line is a paragraph (default: a blank line ends one)",
    )
    parser.add_argument("--force", action="store_true", help="replace an output that exists")


def run(args: argparse.Namespace) -> None:
    """
    # Parameters

    args : `argparse.Namespace`
        What `add_arguments` asks for.

    # Raises

    `ValueError`
        If the output exists and `--force` is not given, or an input is not in this encoding.
    """
    import spacy

    from elmo_plugin.bilm.files.whole_file import whole_file
    from elmo_plugin.commands.outputs import check_output
    from elmo_plugin.data import prose

    try:
        codecs.lookup(args.encoding)
        "".encode(args.encoding)  # of base64 and the like there is no text
    except LookupError as error:
        raise ValueError(f"--encoding is {args.encoding!r}, expected one of Python's") from error
    check_output(args.output, args.inputs, args.force)
    # A byte order mark is no part of the first word.
    encoding = "utf-8-sig" if args.encoding.lower() in ("utf-8", "utf8") else args.encoding
    count, nlp = 0, spacy.blank("en")
    with whole_file(args.output) as aside, aside.open("w", encoding="utf-8") as output:
        for path in args.inputs:
            with Path(path).open(encoding=encoding) as lines:
                try:
                    for sentence in prose.sentences(lines, nlp, not args.paragraph_lines):
                        output.write(" ".join(sentence) + "\n")
                        count += 1
                except UnicodeDecodeError as error:
                    raise ValueError(f"{path} is not {args.encoding}: {error}") from error
    print(f"{count} sentences in {args.output}")
