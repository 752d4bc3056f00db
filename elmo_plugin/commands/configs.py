"""
`configs DIRECTORY`: the training configs, with what they need to run offline: the sample data, and
the options of the embedded biLM, whose dimensions they import. The directory then looks like the
repository's, and has the pinned set (`requirements.txt`) that goes with AllenNLP.
"""

import argparse
from pathlib import Path
from typing import Iterator

PACKAGE = Path(__file__).parents[1]
# A wheel has copies: setup.py makes them, by `sources` of this file.
IN_WHEEL = PACKAGE / "configs"
PARTS = (
    ".allennlp_plugins",
    "requirements.txt",
    "constraints.txt",
    "training_config/**/*.*",
    "examples/*/**/*.*",
    "elmo_plugin/pretrained/options.json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`directory`, `--force`."""
    parser.add_argument("directory", help="where to write; made if it is not there")
    parser.add_argument(
        "--force", action="store_true", help="replace files that are there and differ"
    )


def run(args: argparse.Namespace) -> None:
    """
    # Parameters

    args : `argparse.Namespace`
        What `add_arguments` asks for.

    # Raises

    `ValueError`
        If a file is there with other content and `--force` is not given; nothing is written then.
    """
    from elmo_plugin.bilm.files.whole_file import whole_file

    directory = Path(args.directory)
    contents = {directory / name: source.read_bytes() for name, source in sources()}
    for path, content in contents.items():
        if not args.force and path.exists() and path.read_bytes() != content:
            raise ValueError(
                f"{path} exists and differs, expected a new file; --force replaces it, and all "
                "others that differ"
            )
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as aside:
            aside.write_bytes(content)
    print(
        f"{len(contents)} files in {directory}; with AllenNLP installed:\n"
        f"  cd {directory} && allennlp train training_config/ner_elmo.jsonnet -s out"
    )


def sources() -> Iterator[tuple[Path, Path]]:
    """
    # Returns

    `Iterator[tuple[Path, Path]]`
        Each file to write: its name in the directory, and where its content is.
    """
    root, parts = (IN_WHEEL, ["**/*.*"]) if IN_WHEEL.is_dir() else (PACKAGE.parent, PARTS)
    for part in parts:
        for path in sorted(root.glob(part)):
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                yield path.relative_to(root), path
