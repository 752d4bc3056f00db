"""Options that several commands share: one spelling, default and help text for each."""

import argparse
import sys
from dataclasses import fields
from typing import Any, Dict, List

_SHARED: Dict[str, Dict[str, Any]] = {
    "--options-file": {
        "help": "the biLM's options.json: a path, a URL or a name (embedded, small, medium, "
        "original, 5.5B; default: embedded); or a folder or ZIP of NLPL, simple_elmo or "
        "ELMoForManyLangs"
    },
    "--weight-file": {"help": "its weights.hdf5; not needed with a name, a folder or a ZIP"},
    "--cuda-device": {
        "type": int,
        "default": -1,
        "help": "the GPU's number (default: -1, the CPU)",
    },
    "--max-tokens": {
        "type": int,
        "default": 4096,
        "help": "most tokens in a batch; longer sentences run in chunks (default: 4096)",
    },
    "--replace-bad-utf8": {
        "action": "store_true",
        "help": "read bytes that are not UTF-8 as U+FFFD instead of refusing them",
    },
    "--shard": {
        "help": "i/n, from 1/n to n/n: compute only each nth shard, from the ith on; for n runs "
        "that share the disk, such as a Slurm array. The last one completes the output"
    },
    "--file-friendly-logging": {
        "action": "store_true",
        "help": "show progress as a new line every 10 seconds",
    },
    "--force": {"action": "store_true", "help": "replace outputs that exist"},
}
_STATES = {
    "primed": "after a fixed text, so that a sentence always has the same vectors",
    "reset": "at zero",
    "carry": "where the batch before ended, as in AllenNLP",
}


def add_shared(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add shared options to a parser, by their names."""
    for name in names:
        parser.add_argument(name, **_SHARED[name])


def add_state(parser: argparse.ArgumentParser, *modes: str) -> None:
    """Add `--state` with these choices, of which the first is the default."""
    meanings = "; ".join(f"{mode}, {_STATES[mode]}" for mode in modes)
    parser.add_argument(
        "--state",
        choices=modes,
        default=modes[0],
        help=f"where a sentence's LSTM state starts: {meanings} (default: {modes[0]})",
    )


def add_layers(parser: argparse.ArgumentParser) -> None:
    """Add `--layers`, and `--all`, `--top`, `--average` of AllenNLP 0.9."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--layers",
        choices=("average", "all", "top"),
        default="average",
        help="the average of the layers or the top one, shape (tokens, dimension); or all of them, "
        "shape (layers, tokens, dimension) (default: average)",
    )
    for name in ("all", "top", "average"):
        text = f"the same as --layers {name}"
        group.add_argument(f"--{name}", dest="layers", action="store_const", const=name, help=text)


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


def settings_in(args: argparse.Namespace, settings: Any) -> Dict[str, Any]:
    """Return the arguments that have the names of the fields of the dataclass `settings`."""
    return {field.name: getattr(args, field.name) for field in fields(settings)}


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
