"""`export-bilm RUN OUT`: export the biLM of a pretraining run, finished or not."""

import argparse
from pathlib import Path

from elmo_plugin.commands.arguments import add_shared
from elmo_plugin.commands.outputs import check_output_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", help="folder of a pretraining run")
    parser.add_argument("output", help="folder to write: options.json, weights.hdf5, ...")
    parser.add_argument(
        "--checkpoint",
        help="a file of the run, such as checkpoint_e1_b2500.th (default: the best epoch's weights "
        "of a finished run, the newest checkpoint of another)",
    )
    parser.add_argument(
        "--dtype",
        choices=["float16", "float32"],
        default="float32",
        help="dtype of the stored weights (default: float32)",
    )
    parser.add_argument(
        "--max-words",
        type=int,
        help="keep only the most frequent words of vocabulary and softmax, this many",
    )
    parser.add_argument(
        "--softmax-dtype",
        choices=["int8", "float16", "float32"],
        help="dtype of the stored softmax (default: as --dtype)",
    )
    parser.add_argument(
        "--softmax-only",
        action="store_true",
        help="write only vocabulary.txt and softmax.hdf5, beside a biLM that is there already",
    )
    parser.add_argument(
        "--format",
        choices=["hdf5", "safetensors"],
        default="hdf5",
        help="format of the weights: hdf5, with options.json, as released (default); safetensors, "
        "with config.json, as Hugging Face transformers reads it",
    )
    add_shared(parser, "--force")


def run(args: argparse.Namespace) -> None:
    from elmo_plugin.bilm.files.safetensors_file import (
        CONFIG_FILE,
        SAFETENSORS_FILE,
        TOKENIZER_FILE,
    )
    from elmo_plugin.bilm.pretraining import export

    output = Path(args.output)
    if output.exists() and output.samefile(args.directory):
        raise ValueError(f"{output} is the run's own folder, expected another folder")
    names = [export.VOCABULARY_FILE, export.SOFTMAX_FILE]
    if not args.softmax_only:
        files = [export.OPTIONS_FILE, export.WEIGHTS_FILE]
        if args.format == "safetensors":
            files = [CONFIG_FILE, SAFETENSORS_FILE, TOKENIZER_FILE]
        names += [*files, export.CARD_FILE]
    check_output_folder(output, names, [], args.force)
    if args.max_words is not None and args.max_words < 3:
        raise ValueError(f"--max-words is {args.max_words}, expected 3 or more")
    exported = export.export_run(
        args.directory,
        output,
        args.checkpoint,
        args.dtype,
        args.max_words,
        args.softmax_dtype,
        args.softmax_only,
        args.format,
    )
    print(f"{output}: {exported}")
