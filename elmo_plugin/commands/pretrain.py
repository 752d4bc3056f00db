"""
`pretrain CONFIG -s OUT`: a biLM from plain text, in one process or, under torchrun, in many:
`torchrun --nnodes N --nproc-per-node K -m elmo_plugin pretrain CONFIG -s SHARED`.
"""

import argparse
import json
import logging
import os
import shutil
import signal
import sys
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

VOCABULARY = Path("vocabulary") / "words.txt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`config`, `-s`, `--recover`, `--force`, `-o`."""
    parser.add_argument("config", help="JSON or jsonnet, as training_config/bilm.jsonnet")
    parser.add_argument(
        "-s", "--serialization-dir", required=True, help="the run's folder; all nodes see it"
    )
    parser.add_argument(
        "--recover", action="store_true", help="go on from the folder's last checkpoint, if any"
    )
    parser.add_argument("--force", action="store_true", help="write over the folder's run")
    parser.add_argument(
        "-o", "--overrides", default="", help="JSON in place of parts: '{\"model.dropout\": 0}'"
    )
    parser.add_argument("--timeout", type=float, default=600, help="of a collective, in seconds")


def run(args: argparse.Namespace) -> None:
    """
    # Parameters

    args : `argparse.Namespace`
        What `add_arguments` asks for.

    # Raises

    `ValueError`
        If the config, its files or the folder are not as they must be.
    `SystemExit`
        With 143 after SIGTERM, when all is saved; Ctrl-C is a `KeyboardInterrupt`.
    """
    from torch.distributed.elastic.multiprocessing.errors import record

    # torchrun then shows the error of the process that failed first.
    record(_run)(args)


def _run(args: argparse.Namespace) -> None:
    import torch

    from elmo_plugin.bilm.training.language_model import make_language_model
    from elmo_plugin.bilm.training.loop import Pretraining
    from elmo_plugin.bilm.training.processes import Processes
    from elmo_plugin.bilm.training.stop_request import Stopped
    from elmo_plugin.bilm.training.vocabulary import WordVocabulary
    from elmo_plugin.bilm.training.watch import end_together
    from elmo_plugin.commands import pretraining_config as configs

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    config = configs.read_config(args.config, args.overrides)
    settings = configs.make_settings(config, ["elmo-plugin", *sys.argv[1:]])
    text, heldout = configs.make_text(config), configs.make_text(config, heldout=True)
    model_arguments = configs.make_model_arguments(config)
    folder = Path(args.serialization_dir)
    device = _device(config["trainer"].get("cuda_device"))
    with _process_group(device, args.timeout):
        processes = Processes(device)
        with end_together():
            processes.first_alone("prepare", lambda: _prepare(folder, config, args))
        words = WordVocabulary.from_file(folder / VOCABULARY)
        torch.manual_seed(configs.seed_of(config))
        model = make_language_model(words, **model_arguments).to(device)
        pretraining = Pretraining(model, words, text, heldout, folder, settings)
        try:
            metrics = pretraining.run()
        except Stopped as stopped:
            if stopped.number == signal.SIGINT:
                raise KeyboardInterrupt(str(stopped)) from stopped
            print(stopped, file=sys.stderr)
            sys.exit(128 + stopped.number)
        if processes.rank == 0:
            pretraining.files.write_figures("metrics.json", metrics)
            print(f"the biLM is in {folder}: options.json, weights.hdf5, ...")


def _prepare(folder: Path, config: Dict[str, Any], args: argparse.Namespace) -> None:
    """The folder as AllenNLP's: config and vocabulary."""
    from elmo_plugin.bilm.files.whole_file import whole_file
    from elmo_plugin.commands import pretraining_config as configs

    # torchrun starts all processes again when one has failed.
    goes_on = args.recover or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0
    replaces = not goes_on and folder.is_dir() and any(folder.iterdir())
    if replaces and not args.force:
        raise ValueError(
            f"{folder} exists and is not empty; --recover goes on with its run, --force writes "
            "over it"
        )
    before = folder / "config.json"
    if goes_on and before.is_file():
        changed = configs.differences(config, json.loads(before.read_text(encoding="utf-8")))
        if changed:
            raise ValueError(
                f"{before} is of another run: {', '.join(changed)} differ, expected the config "
                "that the run was begun with"
            )
    words = None
    if not (goes_on and (folder / VOCABULARY).is_file()):
        words = configs.make_vocabulary(config)  # the text is read before anything is replaced
    if replaces:
        shutil.rmtree(folder)
    (folder / VOCABULARY).parent.mkdir(parents=True, exist_ok=True)
    with whole_file(before) as aside:
        aside.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    if words is not None:
        words.save(folder / VOCABULARY)
        # AllenNLP reads the folder too.
        (folder / VOCABULARY).with_name("non_padded_namespaces.txt").write_text("words\n")


def _device(cuda_device: Optional[int]) -> Any:
    """As the config says, or a GPU of this node where there are any; -1 is the CPU."""
    import torch

    if cuda_device == -1 or not torch.cuda.is_available():
        return torch.device("cpu")
    index = int(os.environ.get("LOCAL_RANK", cuda_device or 0))
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


@contextmanager
def _process_group(device: Any, timeout: float) -> Iterator[None]:
    """That of torchrun, where it started this process as one of several."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        yield
        return
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    limit = timedelta(seconds=timeout)
    store, rank, size = next(rendezvous("env://", timeout=limit))
    # A static rendezvous keeps its store when torchrun starts again: the addresses of processes
    # that are gone are still in it.
    store = dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    try:
        yield
    finally:
        dist.destroy_process_group()
