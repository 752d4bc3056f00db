"""`export-onnx OUT.onnx`: a biLM for onnxruntime, without Python."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`output`, which biLM, `--state`, `--force`."""
    parser.add_argument("output", help="the .onnx file to write")
    parser.add_argument(
        "--options-file",
        help="the biLM's options.json: a path, a URL or a name (embedded, small, medium, original, "
        "5.5B; default: embedded)",
    )
    parser.add_argument("--weight-file", help="its weights.hdf5; not needed with a name")
    parser.add_argument(
        "--state",
        choices=("primed", "reset"),
        default="primed",
        help="where a sentence's LSTM state starts if none is given: after a fixed text, or at "
        "zero (default: primed)",
    )
    parser.add_argument("--force", action="store_true", help="replace an output that exists")


def run(args: argparse.Namespace) -> None:
    """
    # Parameters

    args : `argparse.Namespace`
        What `add_arguments` asks for.

    # Raises

    `ValueError`, `OSError`
        If the output exists and `--force` is not given, or the files do not hold a biLM.
    """
    from elmo_plugin.bilm.files.load import load_bilm
    from elmo_plugin.commands.outputs import check_output
    from elmo_plugin.onnx import export_onnx

    files = [one for one in (args.options_file, args.weight_file) if one is not None]
    check_output(args.output, files, args.force)
    bilm = load_bilm(args.options_file, args.weight_file, state=args.state, default="embedded")
    export_onnx(bilm.eval(), args.output)
    print(f"{' '.join(files) or 'embedded'}, {args.state}, exported to {args.output}")
