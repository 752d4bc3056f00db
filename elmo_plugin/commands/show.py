"""`show PREDICTIONS PAGE`: write an HTML page that marks predictions in their texts."""

import argparse

from elmo_plugin.bilm.files.text import counted
from elmo_plugin.commands.arguments import add_shared
from elmo_plugin.commands.outputs import check_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "predictions",
        help="a file of `allennlp predict --output-file`: one JSON object per line, of a tagger "
        "(NER), semantic roles, coreference, reading comprehension or a classifier",
    )
    parser.add_argument("page", help="the HTML file to write")
    parser.add_argument(
        "--inputs",
        help="the file that was given to `allennlp predict`: shows the texts of classifiers, whose "
        "predictions do not hold them",
    )
    add_shared(parser, "--force")


def run(args: argparse.Namespace) -> None:
    from elmo_plugin.pages.html_page import write_page
    from elmo_plugin.pages.predictions import page_of

    files = [args.predictions, *([args.inputs] if args.inputs else [])]
    check_output(args.page, files, args.force)
    count = write_page(args.page, page_of(*files)) - 2  # without the beginning and the end
    print(f"{counted(count, 'prediction')} in {args.page}")
