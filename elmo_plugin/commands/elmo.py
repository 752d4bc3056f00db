"""`elmo INPUT OUTPUT.hdf5 (--all | --top | --average)`: write a biLM's layers for each sentence."""

import argparse
import sys
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from elmo_plugin.commands.progress import add_progress_arguments, progress_bar, says_how_to_resume


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of AllenNLP 0.9's command `elmo`, and those that this package adds."""
    parser.add_argument(
        "input_file",
        help="UTF-8 text, plain or gzip: one sentence per line, tokens separated by white space; "
        "- for standard input",
    )
    parser.add_argument("output_file", help="the HDF5 file to write")
    layers = parser.add_mutually_exclusive_group(required=True)
    for name, text in (
        ("all", "all layers, shape (3, tokens, dimension)"),
        ("top", "the top layer, shape (tokens, dimension)"),
        ("average", "the average of the layers, shape (tokens, dimension)"),
    ):
        layers.add_argument(f"--{name}", dest="layers", action="store_const", const=name, help=text)
    parser.add_argument("--vocab-path", help="ignored, as in AllenNLP 0.9")
    add_bilm_arguments(parser)
    parser.add_argument(
        "--batch-size",
        type=int,
        help="most sentences in a batch (default: 64 with --state carry, otherwise as many as "
        "--max-tokens allows)",
    )
    add_progress_arguments(parser)
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
    parser.add_argument(
        "--state",
        choices=("primed", "carry", "reset"),
        default="primed",
        help="LSTM state at the start of a sentence. primed: after a fixed text, so that a "
        "sentence always has the same vectors; carry: the end of the previous batch, as in "
        "AllenNLP; reset: zero (default: primed)",
    )
    parser.add_argument(
        "--max-tokens",
        type=int,
        default=4096,
        help="most tokens in a batch; longer sentences run in chunks (default: 4096)",
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
    add_shard(parser)
    parser.add_argument(
        "--resume",
        action="store_true",
        help="resume an interrupted run, if there is one; the file has the same bytes",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace an existing output, or an interrupted run"
    )
    add_replace_bad_utf8(parser)


def add_storage_dtype(parser: argparse.ArgumentParser, default: str) -> None:
    """Add `--storage-dtype`, and its former name `--dtype`."""
    parser.add_argument(
        "--storage-dtype",
        "--dtype",
        dest="dtype",
        choices=("float16", "float32"),
        default=default,
        help="how numbers are stored; float16 keeps about three digits. The biLM is computed in "
        f"float32 either way (default: {default}; --dtype is the former name)",
    )


def add_shard(parser: argparse.ArgumentParser) -> None:
    """Add `--shard`, for several runs of a command that share the work."""
    parser.add_argument(
        "--shard",
        help="i/n, from 1/n to n/n: compute only each nth shard, from the ith on; for n runs that "
        "share the disk, such as a Slurm array. The last one completes the output",
    )


def settings_in(args: argparse.Namespace, settings: Any) -> Dict[str, Any]:
    """Return the arguments that have the names of the fields of the dataclass `settings`."""
    return {field.name: getattr(args, field.name) for field in fields(settings)}


def add_replace_bad_utf8(parser: argparse.ArgumentParser) -> None:
    """Add `--replace-bad-utf8`, which allows input that is not UTF-8."""
    parser.add_argument(
        "--replace-bad-utf8",
        action="store_true",
        help="read bytes that are not UTF-8 as U+FFFD instead of refusing them",
    )


def add_bilm_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name the biLM's files and the device."""
    add_bilm_files(parser)
    add_cuda_device(parser)


def add_cuda_device(parser: argparse.ArgumentParser) -> None:
    """Add `--cuda-device`, the number of the GPU to run on."""
    parser.add_argument(
        "--cuda-device", type=int, default=-1, help="the GPU's number (default: -1, the CPU)"
    )


def add_bilm_files(parser: argparse.ArgumentParser) -> None:
    """Add `--options-file` and `--weight-file`."""
    parser.add_argument(
        "--options-file",
        help="the biLM's options.json: a path, a URL or a name (embedded, small, medium, original, "
        "5.5B; default: embedded); or a folder or ZIP of NLPL, simple_elmo or ELMoForManyLangs",
    )
    parser.add_argument(
        "--weight-file", help="its weights.hdf5; not needed with a name, a folder or a ZIP"
    )


def bilm_files(args: argparse.Namespace) -> List[str]:
    """Return a list of the values of `--options-file` and `--weight-file` that are given."""
    return [name for name in (args.options_file, args.weight_file) if name]


def load(args: argparse.Namespace, state: str = "primed") -> Any:
    """
    Return the `BiLm` that `--options-file` and `--weight-file` name, in evaluation mode, on the
    device `--cuda-device`. Print the biLM's name to stderr. `state` is passed on to `BiLm`.
    """
    from elmo_plugin.bilm.files.load import load_bilm

    check_cuda_device(args.cuda_device)
    source = " ".join(bilm_files(args)) or "embedded"
    print(f"biLM: {source}", file=sys.stderr)
    bilm = load_bilm(args.options_file, args.weight_file, state=state, default="embedded").eval()
    return bilm.cuda(args.cuda_device) if args.cuda_device >= 0 else bilm


def check_cuda_device(number: int) -> None:
    """Raise a `ValueError` if PyTorch has no GPU of this number; a negative number is the CPU."""
    import torch

    num_devices = torch.cuda.device_count()
    if number >= num_devices:
        has = f"has GPUs 0 to {num_devices - 1}" if num_devices else "has no GPU"
        raise ValueError(
            f"--cuda-device is {number}, expected less: this machine {has} that PyTorch can use; "
            "-1 is the CPU"
        )


def run(args: argparse.Namespace) -> None:
    """
    Compute the layers of all sentences, and write them to an HDF5 file.

    # Raises

    `ValueError`, `OSError`
        If options contradict each other, or input or output cannot be used; see `extract`.
    """
    if args.include_sentence_indices and (args.forget_sentences or args.use_sentence_keys):
        raise ValueError(
            "--include-sentence-indices was given with --forget-sentences or --use-sentence-keys, "
            "which leave them out; expected one of them"
        )
    from elmo_plugin.bilm.extraction.extract import extract
    from elmo_plugin.bilm.extraction.vectors import Extraction
    from elmo_plugin.commands.outputs import check_output, counted

    wanted = Extraction(**settings_in(args, Extraction))
    _print_notes(args)
    if args.force or args.resume:
        check_output(args.output_file, [args.input_file, *bilm_files(args)], force=True)
    with ExitStack() as stack:
        lines, total = _open(args.input_file, stack)
        bilm = load(args, args.state)
        bar = stack.enter_context(progress_bar(args, " sentences", total))
        stack.enter_context(says_how_to_resume(bar, "the same command with --resume"))
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


def _print_notes(args: argparse.Namespace) -> None:
    """Print to stderr what the defaults do, and which options reproduce AllenNLP 0.9's results."""
    notes = []
    if args.options_file is None and args.weight_file is None:
        notes.append(
            "a vector has 512 numbers, from the embedded biLM; --options-file original uses the "
            "paper's, of 1024"
        )
    if args.state != "carry":
        notes.append(
            f"every line starts from the same state (--state {args.state}), so its vectors do not "
            "depend on other lines; --state carry continues from batch to batch, as AllenNLP does"
        )
    notes.append("blank lines, if any, are kept, as sentences of no tokens")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


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
