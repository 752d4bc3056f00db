"""`convert-checkpoint DIR OUT`: convert a TensorFlow checkpoint of bilm-tf."""

import argparse
from pathlib import Path

from elmo_plugin.commands.arguments import add_shared
from elmo_plugin.commands.outputs import check_output_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", help="bilm-tf's --save_dir: options.json, checkpoint, model.ckpt-*"
    )
    parser.add_argument(
        "output", help="the folder to write: options.json, weights.hdf5, softmax.hdf5, ..."
    )
    parser.add_argument(
        "--checkpoint",
        help="which checkpoint, for example model.ckpt-1250 (default: the one that the file "
        "checkpoint names)",
    )
    parser.add_argument(
        "--vocabulary", help="bilm-tf's --vocab_file; copied to the output, beside the softmax"
    )
    add_shared(parser, "--force")


def run(args: argparse.Namespace) -> None:
    from elmo_plugin.bilm.files import bilm_tf
    from elmo_plugin.bilm.pretraining.export import VOCABULARY_FILE
    from elmo_plugin.bilm.pretraining.vocabulary import WordVocabulary

    output = Path(args.output)
    if output.resolve() == Path(args.directory).resolve():
        raise ValueError(
            f"{output} is the checkpoint's folder, whose options.json would be replaced; expected "
            "another"
        )
    optional = {bilm_tf.SOFTMAX_FILE, bilm_tf.ADAGRAD_FILE, VOCABULARY_FILE}
    names = (bilm_tf.OPTIONS_FILE, bilm_tf.WEIGHTS_FILE, bilm_tf.CARD_FILE, *sorted(optional))
    check_output_folder(output, names, filter(None, [args.vocabulary]), args.force)
    checkpoint = bilm_tf.BilmTfCheckpoint(args.directory, args.checkpoint)
    words = None
    if args.vocabulary is not None:
        words = WordVocabulary.from_file(args.vocabulary)
        if len(words) != checkpoint.num_words:
            raise ValueError(
                f"{args.vocabulary} has {len(words)} words, expected {checkpoint.num_words}: those "
                f"of the softmax of {checkpoint.name}"
            )
    written = [*checkpoint.files, *([] if words is None else [VOCABULARY_FILE])]
    for name in sorted(optional - set(written)):
        if (output / name).exists():
            raise ValueError(
                f"{output / name} belongs to another biLM, and this conversion does not replace "
                "it; remove it, or choose another folder"
            )
    checkpoint.write(output)
    if words is not None:
        words.save(output / VOCABULARY_FILE)
    print(f"{checkpoint.name} converted to {output}: {', '.join(written)}")
