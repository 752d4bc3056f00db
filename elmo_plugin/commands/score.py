"""
`score DIRECTORY TEXT`: score a text with the biLM in `DIRECTORY` as a language model. The command
prints log probabilities and perplexity, and on request the most probable substitutes of each word.
"""

import argparse
import math
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Iterator, List

from elmo_plugin.bilm.files.text import counted
from elmo_plugin.commands.arguments import add_shared, add_state, check_cuda_device

SENTENCES = ("line", "tokens", "unknown", "forward", "backward", "perplexity")
TOKENS = ("line", "position", "token", "unknown", "forward", "backward")


class _Text(argparse.Action):
    """Action of TEXT, which with `--options-file` is the only argument."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{**arguments, "required": False})

    def __call__(self, parser: Any, namespace: Any, values: Any, *_: Any) -> None:
        namespace.text = values


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        help="embedded, or a folder or ZIP file with a biLM, softmax.hdf5 and vocabulary.txt: a "
        "finished pretraining run, or output of export-bilm or convert-checkpoint",
    )
    parser.add_argument(
        "text",
        action=_Text,
        help="one sentence a line, tokens separated by white space; - for standard input",
    )
    parser.add_argument("--options-file", help="the biLM, as in other commands: without DIRECTORY")
    parser.add_argument(
        "--tokens", action="store_true", help="a line for each token (default: for each sentence)"
    )
    parser.add_argument(
        "--substitutes",
        type=int,
        metavar="K",
        help="with each token, the K most probable other words in its place; implies --tokens",
    )
    parser.add_argument(
        "--summary",
        action="store_true",
        help="print only the last line: sentences, tokens, how many of them are outside the "
        "vocabulary and scored as <UNK>, and the perplexities",
    )
    parser.add_argument("--vocabulary", help="words of the softmax, if not in the folder")
    add_shared(parser, "--cuda-device")
    add_state(parser, "primed", "reset", "carry")


def run(args: argparse.Namespace) -> None:
    import numpy

    from elmo_plugin.bilm.files.text import decode_lines, open_bytes
    from elmo_plugin.bilm.use.scoring import LanguageScorer

    if (args.text is None) != (args.options_file is not None):
        raise ValueError("expected DIRECTORY and TEXT, or TEXT and --options-file")
    if args.text is None:
        args.directory, args.text = args.options_file, args.directory
    if args.substitutes is not None and args.substitutes < 1:
        raise ValueError(f"--substitutes is {args.substitutes}, expected 1 or more")
    if args.substitutes is not None and args.state == "carry":
        raise ValueError(
            "--substitutes with --state carry, expected another state: a sentence's substitutes "
            "take a second pass, which would move the state that the next sentence begins in"
        )
    by_token = args.tokens or args.substitutes is not None
    if args.summary and by_token:
        raise ValueError("--summary with --tokens or --substitutes, expected one of them")
    check_cuda_device(args.cuda_device)
    if args.text != "-" and (not Path(args.text).exists() or Path(args.text).is_dir()):
        raise FileNotFoundError(f"there is no text {args.text}, expected a file or -")
    scorer = LanguageScorer.from_directory(
        args.directory, args.state, args.cuda_device, args.vocabulary
    )
    with nullcontext(sys.stdin.buffer) if args.text == "-" else open_bytes(args.text) as raw:
        numbers: List[int] = []

        def sentences() -> Iterator[List[str]]:
            for number, line in decode_lines(raw, args.text):
                if tokens := line.split():
                    numbers.append(number)
                    yield tokens

        if not args.summary:
            more = [] if args.substitutes is None else ["substitutes"]
            print(*(TOKENS if by_token else SENTENCES), *more, sep="\t")
        totals = numpy.zeros(5)
        for index, scores in enumerate(scorer.score(sentences())):
            rows = (
                _token_rows(scorer, scores, numbers[index], args.substitutes)
                if by_token
                else [_sentence_row(scores, numbers[index])]
            )
            for row in () if args.summary else rows:
                print(*row, sep="\t")
            log_probabilities = scores.forward_log_probability, scores.backward_log_probability
            totals += (1, scores.num_predictions, sum(scores.unknown), *log_probabilities)
    print(_summary(*totals), file=sys.stdout if args.summary else sys.stderr)


def _sentence_row(scores: Any, number: int) -> List[Any]:
    return [
        number,
        len(scores.tokens),
        sum(scores.unknown),
        f"{scores.forward_log_probability:.4f}",
        f"{scores.backward_log_probability:.4f}",
        f"{scores.perplexity:.2f}",
    ]


def _token_rows(scorer: Any, scores: Any, number: int, k: Any) -> Iterator[List[Any]]:
    found = None if k is None else scorer.all_substitutes(scores.tokens, k)
    rows = zip(scores.tokens, scores.unknown, scores.forward, scores.backward)
    nothing = [] if found is None else [""]
    # The biLM also predicts the boundaries: <S> with the backward LSTM, </S> with the forward one.
    yield [number, -1, "<S>", 0, "", f"{scores.begin:.4f}", *nothing]
    for position, (token, unknown, forward, backward) in enumerate(rows):
        row = [number, position, token, int(unknown), f"{forward:.4f}", f"{backward:.4f}"]
        yield row if found is None else [*row, " ".join(one.word for one in found[position])]
    yield [number, len(scores.tokens), "</S>", 0, f"{scores.end:.4f}", "", *nothing]


def _summary(
    sentences: float, predictions: float, unknown: float, forward: float, backward: float
) -> str:
    if not sentences:
        return "no sentences"
    ahead, back, mean = (
        f"{math.exp(-one / predictions):.2f}"
        for one in (forward, backward, (forward + backward) / 2)
    )
    return (
        f"{counted(int(sentences), 'sentence')}, "
        f"{predictions - sentences:.0f} tokens, {unknown:.0f} of them outside the vocabulary and "
        f"scored as <UNK>: perplexity forward {ahead}, backward {back}, together {mean}"
    )
