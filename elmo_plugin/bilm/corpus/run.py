"""Embed a corpus: write a plan, compute the missing shards, and mark the output as complete."""

import multiprocessing
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from elmo_plugin.bilm.corpus.embed import GROUP_BYTES, WorkerFiles, load_for, machine_of
from elmo_plugin.bilm.corpus.local_engine import LocalEngine
from elmo_plugin.bilm.corpus.parquet import MOST_NUMBERS, is_complete, pyarrow_modules
from elmo_plugin.bilm.corpus.plan import (
    COMPLETE,
    PLAN,
    CorpusSettings,
    InputFile,
    Plan,
    PlannedBiLm,
    check_same,
    part_name,
)
from elmo_plugin.bilm.corpus.ray_engine import RayEngine, ray_module
from elmo_plugin.bilm.corpus.shards import check_shards, cut_shards, describe, find_files
from elmo_plugin.bilm.corpus.supervise import MOST_TRIES, Engine, Supervisor
from elmo_plugin.bilm.files.atomic_write import write_json
from elmo_plugin.bilm.files.digest import fingerprint
from elmo_plugin.bilm.files.folder_lock import locked_folder
from elmo_plugin.bilm.files.names import NAMED_BILMS
from elmo_plugin.bilm.files.output_folder import files_of_earlier_run, remove_files
from elmo_plugin.bilm.files.stderr import stderr

ENGINES = ("local", "ray")
# Part numbers have six digits, or seven from 1,000,000 on. Files with more digits are not ours.
WRITTEN = (COMPLETE, *(f"part-{'[0-9]' * digits}.parquet" for digits in (6, 7)))
UP_TO_ROUNDING = "vectors are the same up to rounding, files not to the byte"


def embed_corpus(
    inputs: Iterable[str | Path],
    output: str | Path,
    settings: CorpusSettings = CorpusSettings(),  # noqa: B008 (it is frozen)
    *,
    options_file: str | Path | None = None,
    weight_file: str | Path | None = None,
    engine: str = "local",
    ray_address: str | None = None,
    workers: int | None = None,
    timeout: float = 600.0,
    force: bool = False,
    progress: tqdm | None = None,
) -> dict[str, Any]:
    """
    Write a biLM's vectors for every line of many files to Parquet files, with many processes.

    The folder `output` gets `plan.json` first, then a file for each shard, `part-000000.parquet`
    and so on, and `complete.json` last. Each file is written atomically. After an interruption, the
    same call computes only the missing shards, also with another engine or number of workers. On
    the same kind of machine, the files have the same bytes as without the interruption.

    # Parameters

    inputs : `Iterable[str | Path]`
        UTF-8 files, plain or gzip, or glob patterns such as `text/**/*.txt`. One sentence per line,
        tokens separated by white space.
    output : `str | Path`
        Output folder: a new or empty one, or that of an earlier run.
    settings : `CorpusSettings`, optional (default = `CorpusSettings()`)
    options_file, weight_file
        Files of the biLM, see `load_bilm`; by default the small biLM in this package.
    engine : `str`, optional (default = `"local"`)
        `"local"` for processes of this machine, `"ray"` for actors of a Ray cluster.
    ray_address : `str | None`, optional (default = `None`)
        Address of the cluster; `"local"` starts one on this machine. See `RayEngine` for the
        default.
    workers : `int | None`, optional (default = `None`)
        Number of workers; by default, the number of CPUs divided by `settings.threads`.
    timeout : `float`, optional (default = `600.0`)
        Seconds without a message after which a worker is replaced.
    force : `bool`, optional (default = `False`)
        Remove the files of an earlier run in `output` and start again.
    progress : `tqdm | None`, optional (default = `None`)
        Progress bar that counts tokens.

    # Returns

    `dict[str, Any]`
        The content of `complete.json`.

    # Raises

    `ValueError`
        If an argument is invalid; if a line is not UTF-8 (found before anything is computed); if
        the folder was made from other text, biLM or settings, or is in use; or with `force`, if the
        folder has files that no run of this function wrote.
    `OSError`
        If shards failed three times; the message names them, and all other shards are written. Also
        raised after many failures in a row, and if Ray does not start or its cluster is lost.
    `RuntimeError`
        If a script calls this function outside `if __name__ == "__main__":`. Each worker imports
        the script again.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(
            "a worker of embed_corpus called embed_corpus again; put the call in the script under "
            'if __name__ == "__main__":'
        )
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}, expected one of {', '.join(ENGINES)}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}, expected 1 or more")
    if not timeout > 0:
        raise ValueError(f"timeout is {timeout}, expected more than 0 seconds")
    if ray_address is not None and engine != "ray":
        raise ValueError(f"ray_address is {ray_address!r}, expected none with engine {engine!r}")
    pyarrow_modules()
    if engine == "ray":
        ray_module()
    output = Path(output).absolute()
    if output.exists() and not output.is_dir():
        raise ValueError(f"{output} is a file, expected a folder")
    output.mkdir(parents=True, exist_ok=True)
    source = " ".join(str(name) for name in (options_file, weight_file) if name) or "embedded"
    paths = _absolute(options_file), _absolute(weight_file)
    files = WorkerFiles(str(output), str(Path.cwd()), *paths, settings.threads)
    progress = progress if progress is not None else tqdm(disable=True)
    with locked_folder(output):
        plan = _load_or_make_plan(list(inputs), files, settings, source, progress, force)
        found = {n for n in range(len(plan.shards)) if is_complete(output / part_name(n), plan, n)}
        missing = [number for number in range(len(plan.shards)) if number not in found]
        _start_progress(progress, plan, found)
        if missing:
            started: Engine = (
                LocalEngine(files) if engine == "local" else RayEngine(files, ray_address)
            )
            try:
                size = min(
                    workers or max(1, started.num_processors // settings.threads), len(missing)
                )
                _compute(plan, started, size, timeout, missing, progress)
            finally:
                started.close()
        return _complete(plan, output)


def _absolute(name: str | Path | None) -> str | None:
    """Make a path absolute if it exists; keep names of biLMs and URLs."""
    if name is None:
        return None
    is_file = str(name) not in NAMED_BILMS and Path(name).exists()
    return str(Path(name).absolute() if is_file else name)


def _load_or_make_plan(
    inputs: list[str | Path],
    worker_files: WorkerFiles,
    settings: CorpusSettings,
    source: str,
    progress: tqdm,
    force: bool,
) -> Plan:
    """
    Load the existing plan and check that it matches the inputs and settings. If there is none, or
    with `force`, write a new plan. If the plan, an input or the folder is unusable, raise the same
    errors as `embed_corpus`.
    """
    output, root = Path(worker_files.folder), Path(worker_files.root)
    names = find_files(inputs, root)
    old_files = []
    if force:
        read = [root / name for name in names]
        bilm_files = (worker_files.options_file, worker_files.weight_file)
        read += [Path(name) for name in bilm_files if name]
        old_files = files_of_earlier_run(output, WRITTEN, PLAN, read)
    files = [InputFile(name, (root / name).stat().st_size) for name in names]
    model = load_for(settings.state, worker_files)
    bilm = PlannedBiLm(
        source, fingerprint(model), model.options.num_layers + 1, model.options.embedding_dim
    )
    machine = machine_of(model)
    if "threads" in machine:  # record the workers' threads, not this process's
        machine["threads"] = str(settings.threads)
    del model
    if (output / PLAN).exists() and not force:
        plan = Plan.load(output)
        check_same(plan, output, settings, bilm, files)
        _show(progress, "checking the input")
        check_shards(plan.shards, plan.names, root)
        if machine != plan.machine:
            _note(progress, f"planned on {plan.machine}, resumed on {machine}: {UP_TO_ROUNDING}")
        return plan
    foreign = sorted(path.name for pattern in WRITTEN for path in output.glob(pattern))
    if foreign and not force:
        raise ValueError(
            f"{output} has {foreign[0]} but no {PLAN}, expected an empty folder or that of an "
            "earlier run"
        )
    plan = Plan(replace(settings, threads=1), bilm, machine, files, [])
    # Other lines of the row group come before a long one.
    most_tokens = (MOST_NUMBERS - GROUP_BYTES // 2) // (plan.num_layers * bilm.embedding_dim)
    sizes = settings.shard_tokens, settings.replace_bad_utf8, most_tokens
    for shard in cut_shards(names, root, *sizes):
        plan.shards.append(shard)
        _show(progress, f"planning: shard {len(plan.shards)}, {names[shard.ranges[-1].file]}")
    remove_files(old_files)  # no earlier, because bad input must not cost old files
    plan.save(output)
    return plan


def _compute(
    plan: Plan, engine: Engine, size: int, timeout: float, missing: list[int], progress: tqdm
) -> None:
    count, left = len(plan.shards), len(missing)

    def show() -> None:
        _show(progress, f"{count - left} of {count} shards, workers: {size}")

    def done(number: int) -> None:
        nonlocal left
        left -= 1
        show()

    show()
    supervisor = Supervisor(engine, size, timeout, lambda text: _note(progress, text), progress)
    failed = supervisor.run(missing, done)
    for machine in supervisor.machines:
        if machine != plan.machine:
            _note(progress, f"planned on {plan.machine}, a worker on {machine}: {UP_TO_ROUNDING}")
    if failed:
        number, reason = next(iter(failed.items()))
        raise OSError(
            f"{len(failed)} of {count} shards failed {MOST_TRIES} times: "
            f"{', '.join(map(str, sorted(failed)))}; shard {number} "
            f"({describe(plan.shards[number], plan.names)}): {reason}"
        )


def _start_progress(progress: tqdm, plan: Plan, found: set[int]) -> None:
    """
    Start the progress bar; its speed does not count the shards in `found`, which exist already.
    """
    progress.reset(sum(shard.tokens for shard in plan.shards))
    progress.n = progress.initial = sum(plan.shards[number].tokens for number in found)
    if not progress.disable:
        progress.last_print_n = progress.n


def _show(progress: tqdm, text: str) -> None:
    """Set the text after the progress bar; it is shown when the bar is next drawn."""
    progress.set_postfix_str(text, refresh=False)
    progress.update(0)


def _note(progress: tqdm, text: str) -> None:
    progress.write(text, file=stderr())


def _complete(plan: Plan, output: Path) -> dict[str, Any]:
    """Remove temporary files of killed workers, write `complete.json`, and return its content."""
    for path in output.glob(".part-*.parquet.*.part"):
        path.unlink(missing_ok=True)
    content = {
        "lines": sum(shard.lines for shard in plan.shards),
        "tokens": sum(shard.tokens for shard in plan.shards),
        "plan": plan.fingerprint,
        "parts": [
            {
                "name": part_name(number),
                "lines": shard.lines,
                "tokens": shard.tokens,
                "bytes": (output / part_name(number)).stat().st_size,
            }
            for number, shard in enumerate(plan.shards)
        ],
    }
    write_json(output / COMPLETE, content, indent=None)
    return content
