"""`embed-corpus 'text/*.txt' OUT --workers 8`: a corpus to Parquet files, by many processes."""

import argparse
import sys

from elmo_plugin.commands.elmo import add_bilm_files, add_replace_bad_utf8
from elmo_plugin.commands.progress import add_progress_arguments, progress_bar, says_what_goes_on


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to embed, by which biLM, and by whom."""
    parser.add_argument(
        "inputs",
        nargs="+",
        help="files, or patterns in quotes ('text/**/*.txt'); one sentence a line, tokens apart by "
        "white space",
    )
    parser.add_argument(
        "output",
        help="the folder to make: plan.json, part-*.parquet, complete.json; the same command goes "
        "on in it",
    )
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="processes of this machine, or of a Ray cluster (default: local)",
    )
    parser.add_argument(
        "--ray-address",
        help="the cluster's; local for one of this machine alone, for this run (default: "
        "RAY_ADDRESS, or one that was started here, or local)",
    )
    parser.add_argument(
        "--workers", type=int, help="processes (default: as many as there are processors for)"
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="of each; part of the plan (default: 1)"
    )
    parser.add_argument(
        "--layers",
        choices=("average", "all", "top"),
        default="average",
        help="the average of the layers, all of them, or the top one (default: average)",
    )
    parser.add_argument(
        "--dtype",
        choices=("float16", "float32"),
        default="float16",
        help="how numbers are stored; float16 has three digits (default: float16)",
    )
    add_bilm_files(parser)
    parser.add_argument(
        "--state",
        choices=("primed", "reset", "carry"),
        default="primed",
        help="where a sentence's LSTM state starts: after a fixed text, or at zero; carry is "
        "refused, for lines would depend on those before (default: primed)",
    )
    parser.add_argument(
        "--shard-tokens",
        type=int,
        default=200_000,
        help="tokens of a part, about (default: 200000)",
    )
    parser.add_argument(
        "--max-tokens",
        type=int,
        default=4096,
        help="tokens run together at most; longer sentences are run in chunks (default: 4096)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        help="seconds without a batch after which a worker is replaced (default: 600)",
    )
    parser.add_argument("--force", action="store_true", help="throw away what is there")
    add_replace_bad_utf8(parser)
    add_progress_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """
    # Parameters

    args : `argparse.Namespace`
        What `add_arguments` asks for.

    # Raises

    `ValueError`, `OSError`
        See `elmo_plugin.bilm.corpus.run.embed_corpus`.
    """
    from elmo_plugin.bilm.corpus.run import embed_corpus
    from elmo_plugin.bilm.corpus.settings import CorpusSettings

    settings = CorpusSettings(
        layers=args.layers,
        dtype=args.dtype,
        state=args.state,
        threads=args.threads,
        shard_tokens=args.shard_tokens,
        max_tokens=args.max_tokens,
        replace_bad_utf8=args.replace_bad_utf8,
    )
    with progress_bar(args, " tokens") as bar, says_what_goes_on(bar, "the same command"):
        complete = embed_corpus(
            args.inputs,
            args.output,
            settings,
            options_file=args.options_file,
            weight_file=args.weight_file,
            engine=args.engine,
            ray_address=args.ray_address,
            workers=args.workers,
            timeout=args.timeout,
            force=args.force,
            progress=bar,
        )
    print(
        f"{complete['lines']} lines, {complete['tokens']} tokens in {len(complete['parts'])} parts "
        f"in {args.output}",
        file=sys.stderr,
    )
