"""`export-bilm RUN OUT`: a pretraining run's biLM, from any of its checkpoints, for use."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`run`, `output`, `--checkpoint`, `--dtype`, `--force`."""
    parser.add_argument("directory", help="a pretraining run's directory (allennlp train -s)")
    parser.add_argument("output", help="the folder to write: options.json, weights.hdf5, ...")
    parser.add_argument(
        "--checkpoint",
        help="a file of the run, say checkpoint_e1_b2500.th (default: the newest of these)",
    )
    parser.add_argument(
        "--dtype",
        choices=["float16", "float32"],
        default="float32",
        help="how numbers are stored (default: float32)",
    )
    parser.add_argument("--force", action="store_true", help="replace an output that exists")


def run(args: argparse.Namespace) -> None:
    """
    # Parameters

    args : `argparse.Namespace`
        What `add_arguments` asks for.

    # Raises

    `ValueError`
        If the output exists and `--force` is not given, or the run is none of a biLM's.
    """
    from elmo_plugin.bilm.training.checkpoints import export_checkpoint

    if (Path(args.output) / "weights.hdf5").exists() and not args.force:
        raise ValueError(f"{args.output} holds a biLM already; --force replaces it")
    checkpoint = export_checkpoint(args.directory, args.output, args.checkpoint, args.dtype)
    print(f"{checkpoint} exported to {args.output}")
