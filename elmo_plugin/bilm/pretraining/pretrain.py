"""Run pretraining in a folder: lock it, write config and vocabulary, and run the training loop."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from elmo_plugin.bilm.files.atomic_write import name_of_temporary, write_json
from elmo_plugin.bilm.files.folder_lock import NAME as LOCK
from elmo_plugin.bilm.files.folder_lock import locked_folder
from elmo_plugin.bilm.pretraining import config as configs
from elmo_plugin.bilm.pretraining.checkpoints import points_in, read_object
from elmo_plugin.bilm.pretraining.language_model import make_language_model
from elmo_plugin.bilm.pretraining.loop import Pretraining
from elmo_plugin.bilm.pretraining.processes import Processes
from elmo_plugin.bilm.pretraining.vocabulary import WordVocabulary, word_counts

CONFIG = "config.json"
# Files that AllenNLP, a shell or a cluster writes before the run begins.
LOGS = re.compile(r"meta\.json|.*\.(log|out|err)")
VOCABULARY = Path("vocabulary") / "words.txt"
# What a run writes before its first checkpoint.
STARTED = {CONFIG, "vocabulary", "log"}


def pretrain(
    config: dict[str, Any],
    directory: str | Path,
    *,
    recover: bool = False,
    force: bool = False,
    source: str = "the config",
    command: list[str] | None = None,
    timeout: float = 100.0,
) -> dict[str, Any]:
    """
    Run pretraining from a config (`docs/pretraining.md`, "Keys"), in one process, or in several
    that torchrun has started. Return the metrics of the last and of the best epoch.

    # Parameters

    directory : `str | Path`
        Folder of the run, visible to all processes.
    recover : `bool`, optional (default = `False`)
        Resume the run in the folder from its last checkpoint; begin a new run if there is none.
    force : `bool`, optional (default = `False`)
        Move what is in the folder to `FOLDER.former`, and begin a new run.
    source : `str`, optional (default = `"the config"`)
        File name of the config, which must be outside `directory` for a new run.
    command : `list[str] | None`, optional (default = `None`)
        Command line, which is stored in the exported model card, `card.json`.
    timeout : `float`, optional (default = `100.0`)
        Seconds that a process waits for the others in a collective operation.

    # Raises

    `ValueError` or `OSError`
        If config, files or folder are unusable.
    `Stopped`, `RuntimeError`
        See `Pretraining.run`.
    """
    configs.check_config(config, source)
    settings = configs.make_settings(config, command)
    text, heldout = configs.make_text(config), configs.make_text(config, heldout=True)
    arguments, seed = configs.make_model_arguments(config), configs.seed_of(config)
    folder = Path(directory)
    device = _device(config["trainer"].get("cuda_device"))
    with process_group(device, timeout), ExitStack() as held:
        processes = Processes(device)

        def begin(words: WordVocabulary) -> Pretraining:
            counts = None
            if configs.needs_counts(config):
                counts = torch.tensor(word_counts(text.paths, words))
                text.num_tokens = text.num_tokens or int(counts.sum() - counts[words.ids["<S>"]])
            torch.manual_seed(seed)
            model = make_language_model(words, **arguments, counts=counts).to(device)
            return Pretraining(model, words, text, heldout, folder, settings, processes=processes)

        processes.run_on_first(
            lambda: held.enter_context(prepared(folder, config, recover, force, source, begin))
        )
        return begin(WordVocabulary.from_file(folder / VOCABULARY)).run()


@contextmanager
def prepared(
    folder: Path,
    config: dict[str, Any],
    recover: bool,
    force: bool,
    source: str,
    begin: Callable[[WordVocabulary], Any],
) -> Iterator[None]:
    """
    Context manager that locks a run's folder and writes config and vocabulary to it. Before it
    moves an earlier run, it calls `begin`, which raises an error if the new run cannot begin.
    """
    if recover and force:
        raise ValueError("--recover and --force were given, expected one of them")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, expected a folder")
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked_folder(folder):
            # After a failure, torchrun restarts all processes; they must resume.
            resumes = recover or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0
            words = None
            if resumes and (folder / CONFIG).is_file() and points_in(folder):
                changed = configs.differences(config, read_object(folder / CONFIG))
                if changed:
                    raise ValueError(
                        f"{folder / CONFIG} is of another run: {', '.join(changed)} differ, "
                        "expected the config with which the run began"
                    )
            else:
                words = configs.make_vocabulary(config)  # reads the text before anything is moved
                _make_room(folder, config, source, force, lambda: begin(words))
            (folder / VOCABULARY).parent.mkdir(exist_ok=True)
            if words is not None:  # before the config, which a run killed here cannot have
                words.save(folder / VOCABULARY)
            write_json(folder / CONFIG, config)
            yield
    finally:
        if is_new and not any(folder.iterdir()):
            folder.rmdir()


def _make_room(
    folder: Path, config: dict[str, Any], source: str, force: bool, begin: Callable[[], Any]
) -> None:
    """
    Move what is in a run's folder to a folder beside it, with `force`. Leave a folder that is empty
    or has a run without a checkpoint.
    """
    names = sorted(names_without_logs(folder))
    inputs = [*([Path(source)] if Path(source).is_file() else []), *configs.inputs_named(config)]
    inside = sorted(str(path) for path in inputs if path.resolve().is_relative_to(folder.resolve()))
    if inside:
        raise ValueError(
            f"{folder} holds {inside[0]}, which this run reads; give the run a folder of its own"
        )
    is_begun = any((folder / one).is_file() for one in (VOCABULARY, "meta.json"))
    if set(names) <= (STARTED if is_begun else {VOCABULARY.parent.name}):
        return
    former = folder.with_name(f"{folder.name}.former")
    if not force:
        raise ValueError(
            f"{folder} is not empty: it has {', '.join(names[:5])}{' ...' if names[5:] else ''}; "
            f"--recover resumes a run, --force moves all of it to {former} and begins a new one"
        )
    if former.exists():
        raise ValueError(f"--force would move {folder} to {former}, which is there already")
    begin()
    former.mkdir()
    for name in names:
        (folder / name).rename(former / name)


def names_without_logs(folder: Path) -> set[str]:
    """Return the names in a run's folder, without logs, lock and temporary files."""
    names = {path.name for path in folder.iterdir() if not LOGS.fullmatch(path.name)}
    return {name for name in names - {LOCK} if name_of_temporary(name) is None}


def _device(cuda_device: int | None) -> torch.device:
    """
    Return this process's device: the CPU if `cuda_device` is -1, or if it is `None` and there is no
    GPU. Otherwise it is the GPU that torchrun assigns, or GPU `cuda_device` (default 0).
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if cuda_device == -1 or (cuda_device is None and not count):
        return torch.device("cpu")
    index = int(os.environ.get("LOCAL_RANK", cuda_device or 0))
    if not 0 <= index < count:
        raise ValueError(
            f"the process needs GPU {index}, expected one of this machine's {count}; "
            "trainer.cuda_device: -1 is the CPU"
        )
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


@contextmanager
def process_group(device: torch.device, timeout: float) -> Iterator[None]:
    """Context manager that joins torchrun's process group, if there is one."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        yield
        return
    limit = timedelta(seconds=timeout)
    store, rank, size = next(rendezvous("env://", timeout=limit))
    # After a restart, torchrun's store still has dead processes' addresses, under the old prefix.
    store = dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    try:
        yield
    finally:
        dist.destroy_process_group()
