"""`export-onnx OUT.onnx`: export a biLM as an ONNX file."""

import argparse

from elmo_plugin.commands.elmo import add_bilm_files, bilm_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command `export-onnx`."""
    parser.add_argument("output", help="the .onnx file to write")
    add_bilm_files(parser)
    parser.add_argument(
        "--state",
        choices=("primed", "reset"),
        default="primed",
        help="where a sentence's LSTM state starts if none is passed in: primed, after a fixed "
        "text, or reset, at zero (default: primed)",
    )
    parser.add_argument("--force", action="store_true", help="replace an output that exists")


def run(args: argparse.Namespace) -> None:
    """
    Write the biLM that the arguments name as an ONNX file.

    # Raises

    `ValueError`, `OSError`
        If the output exists and `--force` is not given, or the files do not hold a biLM.
    """
    from elmo_plugin.bilm.files.load import load_bilm
    from elmo_plugin.commands.outputs import check_output
    from elmo_plugin.onnx import export_onnx

    files = bilm_files(args)
    check_output(args.output, files, args.force)
    bilm = load_bilm(args.options_file, args.weight_file, state=args.state, default="embedded")
    export_onnx(bilm.eval(), args.output)
    print(f"{' '.join(files) or 'embedded'}, {args.state}, exported to {args.output}")
