"""`elmo INPUT OUTPUT.hdf5 (--all | --top | --average)`: AllenNLP 0.9's command, and more."""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Iterator, Optional

from elmo_plugin.commands.progress import add_progress_arguments, progress_bar, says_what_goes_on


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """0.9's arguments; `--state` and those behind it are new."""
    parser.add_argument(
        "input_file", help="one sentence a line, tokens apart by white space; - for standard input"
    )
    parser.add_argument("output_file", help="the HDF5 file to make")
    layers = parser.add_mutually_exclusive_group(required=True)
    for name, text in (
        ("all", "all layers, shape (3, tokens, dimension)"),
        ("top", "the top layer, shape (tokens, dimension)"),
        ("average", "the average of the layers, shape (tokens, dimension)"),
    ):
        layers.add_argument(f"--{name}", dest="layers", action="store_const", const=name, help=text)
    parser.add_argument("--vocab-path", help="accepted as in AllenNLP 0.9, which never read it")
    add_bilm_arguments(parser)
    parser.add_argument(
        "--batch-size",
        type=int,
        help="sentences run together at most (default: 64 with --state carry, else as many as "
        "--max-tokens lets in)",
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
        help="name datasets by their sentence, not its number; / becomes U+2215, and a further "
        "line with the same text has a newline and its number behind it",
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
        help="where a sentence's LSTM state starts: after a fixed text, so that a sentence always "
        "has the same vectors; where the batch before ended, as in AllenNLP; or at zero (default: "
        "primed)",
    )
    parser.add_argument(
        "--max-tokens",
        type=int,
        default=4096,
        help="tokens run together at most; longer sentences are run in chunks (default: 4096)",
    )
    parser.add_argument("--dtype", choices=("float32", "float16"), default="float32")
    parser.add_argument("--compress", action="store_true", help="gzip, lossless")
    parser.add_argument(
        "--layout",
        choices=("sentences", "ragged"),
        default="sentences",
        help="a dataset a sentence, or one array (embeddings) and offsets, for millions",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with an interrupted run, if there is one; the result is the same to the byte",
    )
    parser.add_argument("--force", action="store_true", help="replace an output that exists")
    add_replace_bad_utf8(parser)


def add_replace_bad_utf8(parser: argparse.ArgumentParser) -> None:
    """`--replace-bad-utf8`."""
    parser.add_argument(
        "--replace-bad-utf8",
        action="store_true",
        help="read bytes that are not UTF-8 as U+FFFD, not as an error",
    )


def add_bilm_arguments(parser: argparse.ArgumentParser) -> None:
    """Which biLM, on which device."""
    add_bilm_files(parser)
    add_cuda_device(parser)


def add_cuda_device(parser: argparse.ArgumentParser) -> None:
    """`--cuda-device`."""
    parser.add_argument(
        "--cuda-device", type=int, default=-1, help="the GPU's number (default: -1, the CPU)"
    )


def add_bilm_files(parser: argparse.ArgumentParser) -> None:
    """Which biLM."""
    parser.add_argument(
        "--options-file",
        help="the biLM's options.json: a path, a URL or a name (embedded, small, medium, original, "
        "5.5B; default: embedded); or a folder or ZIP of NLPL, simple_elmo or ELMoForManyLangs",
    )
    parser.add_argument(
        "--weight-file", help="its weights.hdf5; not needed with a name, a folder or a ZIP"
    )


def load(args: argparse.Namespace, state: str = "primed") -> Any:
    """
    # Parameters

    args : `argparse.Namespace`
        From `add_bilm_arguments`.
    state : `str`, optional (default = `"primed"`)
        See `BiLm`.

    # Returns

    `BiLm`
        In evaluation mode; says on stderr which it is.
    """
    from elmo_plugin.bilm.files.load import load_bilm

    check_cuda_device(args.cuda_device)
    source = " ".join(filter(None, (args.options_file, args.weight_file))) or "embedded"
    print(f"biLM: {source}", file=sys.stderr)
    bilm = load_bilm(args.options_file, args.weight_file, state=state, default="embedded").eval()
    return bilm.cuda(args.cuda_device) if args.cuda_device >= 0 else bilm


def check_cuda_device(number: int) -> None:
    """Raises a `ValueError` if PyTorch has no such GPU."""
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
    # Parameters

    args : `argparse.Namespace`
        What `add_arguments` asks for.

    # Raises

    `ValueError`, `OSError`
        See `elmo_plugin.bilm.extraction.extract.extract`.
    """
    if args.include_sentence_indices and (args.forget_sentences or args.use_sentence_keys):
        raise ValueError(
            "--include-sentence-indices was given with --forget-sentences or --use-sentence-keys, "
            "which leave them out; expected one of them"
        )
    from elmo_plugin.bilm.extraction.extract import extract
    from elmo_plugin.bilm.extraction.settings import Extraction
    from elmo_plugin.commands.outputs import check_output

    wanted = Extraction(
        layers=args.layers,
        batch_size=args.batch_size,
        max_tokens=args.max_tokens,
        dtype=args.dtype,
        layout=args.layout,
        compress=args.compress,
        forget_sentences=args.forget_sentences,
        use_sentence_keys=args.use_sentence_keys,
    )
    _say_what_differs(args)
    if args.force or args.resume:
        check_output(args.output_file, [args.input_file], force=True)
    with ExitStack() as stack:
        lines, total = _open(args.input_file, stack)
        bilm = load(args, args.state)
        bar = stack.enter_context(progress_bar(args, " sentences", total))
        stack.enter_context(says_what_goes_on(bar, "the same command with --resume"))
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
        )
    print(f"{count} sentences in {args.output_file}", file=sys.stderr)


def _say_what_differs(args: argparse.Namespace) -> None:
    """From AllenNLP 0.9's command of the same name and arguments."""
    by_default = []
    if args.options_file is None and args.weight_file is None:
        by_default.append(
            "the embedded biLM (512 numbers a layer), not the released one of 1024: "
            "--options-file original"
        )
    if args.state != "carry":
        by_default.append(f"--state {args.state}, not carry")
    by_default.append("blank lines have datasets, of no tokens")
    print(f"unlike AllenNLP 0.9: {'; '.join(by_default)}", file=sys.stderr)


def _open(path: str, stack: ExitStack) -> tuple[Iterator[str], Optional[int]]:
    """The input's lines, and how many where that can be known. Bad bytes come as surrogates."""
    from elmo_plugin.bilm.files.text import decode_lines

    total = None
    if Path(path).is_file():  # and not a pipe
        with Path(path).open("rb") as file:
            total = sum(block.count(b"\n") for block in _blocks(file))
    lines = sys.stdin.buffer if path == "-" else stack.enter_context(Path(path).open("rb"))  # noqa: SIM115
    return (line for _, line in decode_lines(lines, path, keep_bad_bytes=True)), total


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(1 << 20):
        yield block
