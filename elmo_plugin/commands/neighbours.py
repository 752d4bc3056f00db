"""`neighbours TEXT SENTENCE WORD`: find the nearest neighbours of a word in context."""

import argparse
import sys

from elmo_plugin.commands.arguments import add_shared, add_state, bilm_files, load
from elmo_plugin.commands.outputs import check_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "text", help="the text to search: one sentence per line, tokens separated by white space"
    )
    parser.add_argument("sentence", help="a sentence, tokens separated by spaces")
    parser.add_argument("word", help="a word of this sentence")
    parser.add_argument(
        "--occurrence",
        type=int,
        default=1,
        help="which occurrence, if the sentence has the word more than once (default: 1)",
    )
    parser.add_argument("--count", type=int, default=5, help="neighbours per layer (default: 5)")
    parser.add_argument(
        "--same-word", action="store_true", help="look at the same word in other sentences only"
    )
    parser.add_argument(
        "--width", type=int, default=100, help="width of the table, in characters (default: 100)"
    )
    parser.add_argument("--page", help="write the result to this HTML file as well")
    add_shared(parser, "--force", "--replace-bad-utf8")
    add_shared(parser, "--options-file", "--weight-file", "--cuda-device")
    add_state(parser, "primed", "reset")


def run(args: argparse.Namespace) -> None:
    from tqdm import tqdm

    from elmo_plugin.bilm.extraction.batches import read_sentences
    from elmo_plugin.bilm.files.text import read_lines
    from elmo_plugin.bilm.use.neighbours import in_context, nearest_neighbours
    from elmo_plugin.pages.html_page import layer_name, write_page
    from elmo_plugin.pages.neighbours import neighbours_page

    query = args.sentence.split()
    places = [place for place, token in enumerate(query) if token == args.word]
    if args.occurrence < 1:
        raise ValueError(f"--occurrence is {args.occurrence}, expected 1 or more")
    if args.occurrence > len(places):
        raise ValueError(
            f"the sentence {args.sentence!r} has the word {args.word!r} {len(places)} times, "
            f"expected at least {args.occurrence}; the words are those between spaces"
        )
    if args.count < 1:
        raise ValueError(f"--count is {args.count}, expected 1 or more")
    if args.page:
        check_output(args.page, [args.text, *bilm_files(args)], args.force)
    position = places[args.occurrence - 1]
    lines = (line for _, line in read_lines(args.text, keep_bad_bytes=True))
    bilm = load(args, args.state)
    with tqdm(unit=" sentences", mininterval=0.5, file=sys.stderr) as bar:
        found = nearest_neighbours(
            bilm,
            query,
            position,
            read_sentences(lines, args.replace_bad_utf8, args.text),
            args.count,
            args.same_word,
            progress=bar,
        )
    room = args.width - 25
    print(f"{'cosine':>8} {'line':>7} {'lines':>6}  in its sentence")
    print(f"{'source':>8} {'':>14}  {in_context(query, position, room)}")
    for layer, neighbours in enumerate(found):
        print(layer_name(layer))
        if not neighbours:
            print("          none")
        for one in neighbours:
            context = in_context(one.tokens, one.position, room)
            print(f"{one.similarity:8.3f} {one.line:7d} {one.num_lines:6d}  {context}")
    if args.page:
        write_page(args.page, [neighbours_page(query, position, found)])
        print(f"page in {args.page}")
