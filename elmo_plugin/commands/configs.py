"""
`configs DIRECTORY`: write the training configs, and the files that they need to run offline.

The configs need the sample data, and the embedded biLM's `options.json`, from which they read
dimensions. The directory has the same layout as the repository. It also gets `requirements.txt` and
`constraints.txt`, with the versions to install for AllenNLP.
"""

import argparse
import shlex
from pathlib import Path
from typing import Iterator

PACKAGE = Path(__file__).parents[1]
# Folder in an installed wheel, where setup.py puts copies of the files.
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
    parser.add_argument("directory", help="the folder to write to, created if needed")
    parser.add_argument("--force", action="store_true", help="replace existing files that differ")


def run(args: argparse.Namespace) -> None:
    from elmo_plugin.bilm.files.atomic_write import atomic_write, check_replaceable

    directory = Path(args.directory)
    contents = {directory / name: source.read_bytes() for name, source in sources()}
    for path, content in contents.items():
        check_replaceable(path)
        if not args.force and path.exists() and path.read_bytes() != content:
            raise ValueError(
                f"{path} exists and differs, expected a new file; --force replaces it, and all "
                "others that differ"
            )
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            temporary.write_bytes(content)
    print(
        f"{len(contents)} files in {directory}; with AllenNLP installed:\n"
        f"  cd {shlex.quote(args.directory)} && "
        "allennlp train training_config/ner_elmo.jsonnet -s out/ner"
    )


def sources() -> Iterator[tuple[Path, Path]]:
    """Yield, for each file, its path in the new directory and the path to copy it from."""
    root, parts = (IN_WHEEL, ["**/*.*"]) if IN_WHEEL.is_dir() else (PACKAGE.parent, PARTS)
    for part in parts:
        for path in sorted(root.glob(part)):
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                yield path.relative_to(root), path
