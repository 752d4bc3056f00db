"""
`pretrain CONFIG -s OUT`: pretrain a biLM on plain text. For several processes, use torchrun:
`torchrun --nnodes N --nproc-per-node K -m elmo_plugin pretrain CONFIG -s SHARED`.
"""

import argparse
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any, Dict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", help="JSON or jsonnet, such as training_config/bilm.jsonnet")
    parser.add_argument(
        "-s", "--serialization-dir", required=True, help="the run's folder; all nodes must see it"
    )
    parser.add_argument(
        "--recover",
        action="store_true",
        help="resume from the folder's last checkpoint, or begin if there is none",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="move what is in the folder to FOLDER.former, and begin a new run",
    )
    parser.add_argument(
        "-o",
        "--overrides",
        default="",
        help='JSON that replaces values: \'{"model.dropout": 0}\'; "model" alone '
        "replaces all of the model",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=100,
        help="time limit of communication between processes, in seconds (default: 100)",
    )


def run(args: argparse.Namespace) -> None:
    from torch.distributed.elastic.multiprocessing.errors import record

    # `record` lets torchrun show the error of the process that failed first.
    record(_run)(args)


def _run(args: argparse.Namespace) -> None:
    from elmo_plugin.bilm.pretraining.pretrain import pretrain
    from elmo_plugin.bilm.pretraining.stop_request import Stopped

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    config = read_config(args.config, args.overrides)
    try:
        pretrain(
            config,
            args.serialization_dir,
            recover=args.recover,
            force=args.force,
            source=args.config,
            command=["elmo-plugin", *sys.argv[1:]],
            timeout=args.timeout,
        )
    except Stopped as stopped:
        if stopped.number == signal.SIGINT:
            raise KeyboardInterrupt(str(stopped)) from stopped
        print(stopped, file=sys.stderr)
        sys.exit(128 + stopped.number)


def read_config(path: str, overrides: str = "") -> Dict[str, Any]:
    """
    Return the config in a `.json` or `.jsonnet` file, with some values replaced. `overrides` is a
    JSON object of new values; a key may be a dotted path, such as `model.dropout`. In jsonnet,
    `std.extVar` returns environment variables. Raise a `ValueError` if either is no object.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no config {path}, expected a JSON or jsonnet file")
    try:
        if path.endswith(".jsonnet"):
            import _jsonnet

            text = _jsonnet.evaluate_file(path, ext_vars=_environment())
        else:
            text = Path(path).read_text(encoding="utf-8")
        config = json.loads(text)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{path}: {str(error).strip()}") from error
    try:
        more = json.loads(overrides or "{}")
    except ValueError as error:
        raise ValueError(f"--overrides is {overrides!r}, expected JSON: {error}") from error
    for what, found in ((path, config), ("--overrides", more)):
        if not isinstance(found, dict):
            raise ValueError(f"{what} is {found!r}, expected an object")
    for key, value in more.items():
        part = config
        *parents, name = key.split(".")
        for parent in parents:
            part = part.setdefault(parent, {}) if isinstance(part, dict) else None
        if not isinstance(part, dict):
            raise ValueError(f"--overrides has {key!r}, expected keys of objects alone")
        former = part.get(name)
        if isinstance(former, dict) and isinstance(value, dict) and (lost := former.keys() - value):
            print(
                f"note: --overrides replaces all of {key}, without {sorted(lost)}; a key with dots "
                f"changes one value: {key}.{min(lost)}",
                file=sys.stderr,
            )
        part[name] = value
    return config


def _environment() -> Dict[str, str]:
    # Leave out variables that are not UTF-8, which jsonnet rejects, or have control characters.
    return {
        name: value
        for name, value in os.environ.items()
        if value.isprintable() and (name + value).encode("utf-8", "ignore").decode() == name + value
    }
