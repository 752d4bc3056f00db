"""`elmo INPUT OUTPUT.hdf5 (--all | --top | --average)`: write a biLM's layers for each sentence."""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Iterator, Optional

from elmo_plugin.bilm.files.text import counted
from elmo_plugin.commands.arguments import (
    add_layers,
    add_shared,
    add_state,
    add_storage_dtype,
    bilm_files,
    load,
    settings_in,
)
from elmo_plugin.commands.outputs import check_output
from elmo_plugin.commands.progress import progress_bar


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "input_file",
        help="UTF-8 text, plain or gzip: one sentence per line, tokens separated by white space; "
        "- for standard input",
    )
    parser.add_argument("output_file", help="the HDF5 file to write")
    add_layers(parser)
    parser.add_argument("--vocab-path", help="ignored, as in AllenNLP 0.9")
    add_shared(parser, "--options-file", "--weight-file", "--cuda-device")
    parser.add_argument(
        "--batch-size",
        type=int,
        help="most sentences in a batch (default: 64 with --state carry, otherwise as many as "
        "--max-tokens allows)",
    )
    add_shared(parser, "--file-friendly-logging", "--max-tokens", "--shard", "--replace-bad-utf8")
    add_state(parser, "primed", "carry", "reset")
    parser.add_argument(
        "--forget-sentences",
        action="store_true",
        help="leave out sentence_to_index, the JSON dictionary from sentence to name (ragged: the "
        "dataset sentences)",
    )
    parser.add_argument(
        "--use-sentence-keys",
        action="store_true",
        help="name datasets by sentence instead of number; / becomes U+2215, and repeated lines "
        "end with a newline and a number",
    )
    parser.add_argument(
        "--include-sentence-indices",
        action="store_true",
        help="write sentence_to_index: the default; not with --forget-sentences",
    )
    add_storage_dtype(parser, "float32")
    parser.add_argument("--compress", action="store_true", help="compress with gzip, lossless")
    parser.add_argument(
        "--layout",
        choices=("sentences", "ragged"),
        default="sentences",
        help="sentences: one dataset per sentence; ragged: one array (embeddings) and offsets, for "
        "millions of sentences (default: sentences)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        help="number of processes, which share the threads; not with --state carry (default: 1)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="resume an interrupted run, if there is one; the file has the same bytes",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace an existing output, or an interrupted run"
    )


def run(args: argparse.Namespace) -> None:
    if args.include_sentence_indices and (args.forget_sentences or args.use_sentence_keys):
        raise ValueError(
            "--include-sentence-indices was given with --forget-sentences or --use-sentence-keys, "
            "which leave them out; expected one of them"
        )
    if args.output_file.endswith(".parquet"):
        raise ValueError(
            f"output_file is {args.output_file}, expected an HDF5 file; embed-corpus writes Parquet"
        )
    may_exist = args.force or args.resume or args.shard is not None
    check_output(args.output_file, [args.input_file, *bilm_files(args)], may_exist)
    from elmo_plugin.bilm.extraction.extract import extract
    from elmo_plugin.bilm.extraction.vectors import Extraction

    wanted = Extraction(**settings_in(args, Extraction))
    for note in _notes(args):
        print(f"note: {note}", file=sys.stderr)
    with ExitStack() as stack:
        lines, total = _open(args.input_file, stack)
        bilm = load(args, args.state)
        resume = "the same command with --resume"
        bar = stack.enter_context(progress_bar(args, " sentences", resume, total))
        count = extract(
            bilm,
            lines,
            args.output_file,
            wanted,
            resume=args.resume,
            force=args.force,
            replace_bad_utf8=args.replace_bad_utf8,
            name=args.input_file,
            progress=bar,
            workers=args.workers,
            shard=args.shard,
        )
    if not Path(args.output_file).exists():
        print(f"shard {args.shard} is done; the other parts are not all there yet", file=sys.stderr)
        return
    print(f"{counted(count, 'sentence')} in {args.output_file}", file=sys.stderr)


def _notes(args: argparse.Namespace) -> Iterator[str]:
    """Yield what the defaults do, and which options reproduce AllenNLP 0.9's results."""
    if args.options_file is None and args.weight_file is None:
        yield (
            "a vector has 512 numbers, from the embedded biLM; --options-file original uses the "
            "paper's, of 1024"
        )
    if args.state != "carry":
        yield (
            f"every line starts from the same state (--state {args.state}), so its vectors do not "
            "depend on other lines; --state carry continues from batch to batch, as AllenNLP does"
        )
    yield "blank lines, if any, are kept, as sentences of no tokens"


def _open(path: str, stack: ExitStack) -> tuple[Iterator[str], Optional[int]]:
    """
    Return an iterator over a file's lines (of standard input for `-`), and their number. The number
    is `None` unless `path` is a regular file. Bytes that are not UTF-8 become surrogates.
    """
    from elmo_plugin.bilm.files.text import decode_lines, open_bytes

    total = None
    if Path(path).is_file():
        with open_bytes(path) as file:
            total = sum(1 for _ in file)
    lines = sys.stdin.buffer if path == "-" else stack.enter_context(open_bytes(path))
    return (line for _, line in decode_lines(lines, path, keep_bad_bytes=True)), total
