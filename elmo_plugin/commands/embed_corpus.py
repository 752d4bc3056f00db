"""`embed-corpus 'text/*.txt' OUT --workers 8`: embed a corpus with many processes."""

import argparse
import sys

from elmo_plugin.bilm.files.text import counted
from elmo_plugin.commands.arguments import (
    add_layers,
    add_shared,
    add_state,
    add_storage_dtype,
    settings_in,
)
from elmo_plugin.commands.progress import progress_bar


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "inputs",
        nargs="+",
        help="UTF-8 files, plain or gzip, or quoted patterns ('text/**/*.txt'); one sentence per "
        "line, tokens separated by white space",
    )
    parser.add_argument(
        "output",
        help="the folder to write: plan.json, part-*.parquet, complete.json; run the same command "
        "again to resume",
    )
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="processes of this machine, or of a Ray cluster (default: local)",
    )
    parser.add_argument(
        "--ray-address",
        help="address of the cluster; local starts one on this machine for this run (default: "
        "RAY_ADDRESS, or a cluster that was started on this machine, or local)",
    )
    parser.add_argument(
        "--workers", type=int, help="number of processes (default: CPUs divided by --threads)"
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of each process (default: 1)"
    )
    add_layers(parser)
    add_storage_dtype(parser, "float16")
    add_shared(parser, "--options-file", "--weight-file", "--max-tokens", "--shard")
    add_shared(parser, "--replace-bad-utf8", "--file-friendly-logging")
    add_state(parser, "primed", "reset")
    parser.add_argument(
        "--shard-tokens",
        type=int,
        default=200_000,
        help="tokens per part, approximately (default: 200000)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        help="seconds without progress after which a worker is replaced (default: 600)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="resume an interrupted run: the default"
    )
    parser.add_argument(
        "--force", action="store_true", help="remove the files of an earlier run and start again"
    )


def run(args: argparse.Namespace) -> None:
    if args.resume and args.force:
        raise ValueError("--resume was given with --force, expected one of them")
    from elmo_plugin.bilm.corpus.embed import embed_corpus
    from elmo_plugin.bilm.corpus.plan import CorpusSettings

    settings = CorpusSettings(**settings_in(args, CorpusSettings))
    with progress_bar(args, " tokens", "the same command") as bar:
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
            shard=args.shard,
            progress=bar,
        )
    if complete is None:
        print(f"shard {args.shard} is done; the other parts are not all there yet", file=sys.stderr)
        return
    lines, tokens = counted(complete["lines"], "line"), counted(complete["tokens"], "token")
    parts = counted(len(complete["parts"]), "part")
    print(f"{lines}, {tokens} in {parts} in {args.output}", file=sys.stderr)
