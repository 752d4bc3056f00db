"""`convert-checkpoint DIR OUT`: what bilm-tf trained, for use and for going on."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`directory`, `output`, `--checkpoint`, `--vocabulary`, `--force`."""
    parser.add_argument(
        "directory", help="bilm-tf's --save_dir: options.json, checkpoint, model.ckpt-*"
    )
    parser.add_argument(
        "output", help="the folder to write: options.json, weights.hdf5, softmax.hdf5, ..."
    )
    parser.add_argument(
        "--checkpoint",
        help="which one, say model.ckpt-1250 (default: the one that the file checkpoint names)",
    )
    parser.add_argument(
        "--vocabulary", help="bilm-tf's --vocab_file, which is put beside the softmax over it"
    )
    parser.add_argument("--force", action="store_true", help="replace an output that exists")


def run(args: argparse.Namespace) -> None:
    """
    # Parameters

    args : `argparse.Namespace`
        What `add_arguments` asks for.

    # Raises

    `ValueError`, `OSError`
        If the output exists and `--force` is not given, or is the checkpoint's folder; if there is
        no such checkpoint, or it is damaged, or of another model.
    """
    from elmo_plugin.bilm.files.bilm_tf import BilmTfCheckpoint
    from elmo_plugin.bilm.training.export import VOCABULARY_FILE
    from elmo_plugin.bilm.training.vocabulary import WordVocabulary

    output = Path(args.output)
    if (output / "weights.hdf5").exists() and not args.force:
        raise ValueError(f"{output} holds a biLM already; --force replaces it")
    if output.resolve() == Path(args.directory).resolve():
        raise ValueError(
            f"{output} is the checkpoint's folder, whose options.json would be replaced; expected "
            "another"
        )
    checkpoint = BilmTfCheckpoint(args.directory, args.checkpoint)
    words = None
    if args.vocabulary is not None:
        words = WordVocabulary.from_file(args.vocabulary)
        if len(words) != checkpoint.num_words:
            raise ValueError(
                f"{args.vocabulary} has {len(words)} words, expected {checkpoint.num_words}: those "
                f"of the softmax of {checkpoint.name}"
            )
    written = checkpoint.write(output)
    if words is not None:
        words.save(output / VOCABULARY_FILE)
        written.append(VOCABULARY_FILE)
    print(f"{checkpoint.name} converted to {output}: {', '.join(written)}")
