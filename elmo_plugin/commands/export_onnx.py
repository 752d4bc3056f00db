"""`export-onnx OUT.onnx`: export a biLM as an ONNX file."""

import argparse

from elmo_plugin.commands.arguments import add_shared, add_state, bilm_files
from elmo_plugin.commands.outputs import check_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("output", help="the .onnx file to write")
    add_shared(parser, "--options-file", "--weight-file")
    add_state(parser, "primed", "reset")
    add_shared(parser, "--force")


def run(args: argparse.Namespace) -> None:
    from elmo_plugin.bilm.files.load import load_bilm
    from elmo_plugin.onnx import export_onnx

    files = bilm_files(args)
    check_output(args.output, files, args.force)
    bilm = load_bilm(args.options_file, args.weight_file, state=args.state, default="embedded")
    export_onnx(bilm.eval(), args.output)
    print(f"{' '.join(files) or 'embedded'}, {args.state}, exported to {args.output}")
