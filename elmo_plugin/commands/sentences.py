"""`sentences IN... OUT`: split prose into tokenized sentences, the input of pretraining."""

import argparse
import codecs
import io
from collections.abc import Iterator

from elmo_plugin.bilm.files.text import counted, open_bytes, read_lines
from elmo_plugin.commands.arguments import add_shared
from elmo_plugin.commands.outputs import check_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="+", help="text files")
    parser.add_argument("output", help="the file to write: one tokenized sentence a line")
    parser.add_argument("--encoding", default="utf-8", help="of the inputs (default: utf-8)")
    parser.add_argument(
        "--paragraph-lines",
        action="store_true",
        help="treat every line as a paragraph (default: paragraphs end at blank lines)",
    )
    add_shared(parser, "--force")


def run(args: argparse.Namespace) -> None:
    import spacy

    from elmo_plugin.bilm.files.atomic_write import atomic_write
    from elmo_plugin.spacy import prose

    try:
        codecs.lookup(args.encoding)
        "".encode(args.encoding)  # raises for codecs that do not encode text, such as base64
    except LookupError as error:
        raise ValueError(f"--encoding is {args.encoding!r}, expected one of Python's") from error
    check_output(args.output, args.inputs, args.force)
    count, nlp = 0, spacy.blank("en")
    with atomic_write(args.output) as temporary, temporary.open("w", encoding="utf-8") as output:
        for path in args.inputs:
            lines = _lines(path, args.encoding)
            for sentence in prose.sentences(lines, nlp, not args.paragraph_lines):
                output.write(" ".join(sentence) + "\n")
                count += 1
    print(f"{counted(count, 'sentence')} in {args.output}")


def _lines(path: str, encoding: str) -> Iterator[str]:
    """Yield the lines of a text; raise a `ValueError` with file and line for another encoding."""
    if codecs.lookup(encoding).name == "utf-8":
        yield from (line for _, line in read_lines(path))
        return
    number = 0
    try:
        with open_bytes(path) as file, io.TextIOWrapper(file, encoding) as lines:
            for line in lines:
                number += 1
                yield line
    except UnicodeError as error:
        # The decoder reads ahead, so the fault may be some lines further on.
        raise ValueError(f"{path}: not {encoding}, after line {number}: {error}") from error
