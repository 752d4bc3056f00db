"""`neighbours TEXT SENTENCE WORD`: the paper's Table 4, on a text of one's own."""

import argparse
import sys

from elmo_plugin.commands.elmo import add_bilm_arguments, load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`text`, `sentence`, `word`, the biLM, and how many."""
    parser.add_argument("text", help="where to look: one sentence a line, tokens apart by spaces")
    parser.add_argument("sentence", help="a sentence, tokens apart by spaces")
    parser.add_argument("word", help="a word of this sentence")
    parser.add_argument(
        "--occurrence", type=int, default=1, help="which of them, if it is there more than once"
    )
    parser.add_argument("--count", type=int, default=5, help="neighbours a layer (default: 5)")
    parser.add_argument(
        "--same-word", action="store_true", help="only the same word, in other sentences"
    )
    parser.add_argument(
        "--width", type=int, default=100, help="of the table, in characters (default: 100)"
    )
    add_bilm_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """
    # Parameters

    args : `argparse.Namespace`
        What `add_arguments` asks for.

    # Raises

    `ValueError`
        If the word is not in the sentence, or a line of the text is not UTF-8.
    """
    from tqdm import tqdm

    from elmo_plugin.bilm.extraction.batches import read_sentences
    from elmo_plugin.bilm.files.text import read_lines
    from elmo_plugin.bilm.use.neighbours import nearest_neighbours

    query = args.sentence.split()
    places = [place for place, token in enumerate(query) if token == args.word]
    if args.occurrence < 1:
        raise ValueError(f"--occurrence is {args.occurrence}, expected 1 or more")
    if args.occurrence > len(places):
        raise ValueError(
            f"{args.word!r} stands {len(places)} times in the sentence {args.sentence!r}, expected "
            f"at least {args.occurrence}"
        )
    if args.count < 1:
        raise ValueError(f"--count is {args.count}, expected 1 or more")
    position = places[args.occurrence - 1]
    lines = (line for _, line in read_lines(args.text, keep_bad_bytes=True))
    bilm = load(args)
    with tqdm(unit=" sentences", mininterval=0.5, file=sys.stderr) as bar:
        found = nearest_neighbours(
            bilm,
            query,
            position,
            read_sentences(lines, name=args.text),
            args.count,
            args.same_word,
            progress=bar,
        )
    print(f"{'source':>8}          {in_context(query, position, args.width - 18)}")
    for layer, neighbours in enumerate(found):
        print("token layer" if layer == 0 else f"LSTM layer {layer}")
        if not neighbours:
            print("          none")
        for neighbour in neighbours:
            context = in_context(neighbour.tokens, neighbour.position, args.width - 18)
            print(f"{neighbour.similarity:8.3f} {neighbour.line:7d}  {context}")


def in_context(tokens: list[str], position: int, width: int) -> str:
    """The word in brackets, with as much of its sentence around it as fits, both sides alike."""
    left, right = " ".join(tokens[:position]), " ".join(tokens[position + 1 :])
    room = max(width - len(tokens[position]) - 4, 0)
    half = room // 2
    left_room = max(half, room - len(right))
    right_room = max(room - half, room - len(left))
    if len(left) > left_room:
        left = "…" + left[len(left) - max(left_room - 1, 0) :]
    if len(right) > right_room:
        right = right[: max(right_room - 1, 0)] + "…"
    return " ".join(filter(None, (left, f"[{tokens[position]}]", right)))
