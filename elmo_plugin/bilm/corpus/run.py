"""`embed_corpus`: from plan to complete, however often it is killed between."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from elmo_plugin.bilm.corpus.embed import Place, load_for
from elmo_plugin.bilm.corpus.local_engine import LocalEngine
from elmo_plugin.bilm.corpus.machine import machine_of
from elmo_plugin.bilm.corpus.parquet import MOST_NUMBERS, is_whole, pyarrow_modules
from elmo_plugin.bilm.corpus.plan import (
    COMPLETE,
    PLAN,
    InputFile,
    Plan,
    PlannedBiLm,
    check_inputs,
    check_same,
    part_name,
)
from elmo_plugin.bilm.corpus.ray_engine import RayEngine, ray_module
from elmo_plugin.bilm.corpus.settings import CorpusSettings
from elmo_plugin.bilm.corpus.shards import cut, describe, find_files
from elmo_plugin.bilm.corpus.supervise import MOST_TRIES, Engine, Supervisor
from elmo_plugin.bilm.files.digest import fingerprint
from elmo_plugin.bilm.files.folder_lock import NAME as LOCK
from elmo_plugin.bilm.files.folder_lock import lock_folder
from elmo_plugin.bilm.files.names import NAMED_BILMS
from elmo_plugin.bilm.files.whole_file import check_no_folder, whole_file

ENGINES = ("local", "ray")
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
    A biLM's vectors for every line of many files, into Parquet files, by many processes.

    In the folder `output` there is first `plan.json`, then `part-000000.parquet` and so on, each of
    which is whole or not there, and at the end `complete.json`. What is there is not made again; so
    after anything that ended a run, the same call goes on, also with another engine or another
    number of workers, and the parts have the bytes that they would have had.

    # Parameters

    inputs : `Iterable[str | Path]`
        Files of UTF-8, or patterns such as `text/**/*.txt`; a sentence a line, its tokens apart by
        white space.
    output : `str | Path`
        The folder to make or to go on in.
    settings : `CorpusSettings`, optional (default = `CorpusSettings()`)
        Which vectors, and how they are stored.
    options_file, weight_file
        See `load_bilm`; if not given, the embedded biLM.
    engine : `str`, optional (default = `"local"`)
        `"local"`: processes of this machine. `"ray"`: of a Ray cluster.
    ray_address : `str | None`, optional (default = `None`)
        Which, see `RayEngine`.
    workers : `int | None`, optional (default = `None`)
        If not given, as many as there are processors for their threads.
    timeout : `float`, optional (default = `600.0`)
        Seconds without a batch after which a worker is taken to stand still, and replaced.
    force : `bool`, optional (default = `False`)
        Whether to throw away what is there and start again.
    progress : `tqdm | None`, optional (default = `None`)
        Moves on by one for every token.

    # Returns

    `dict[str, Any]`
        What stands in `complete.json`.

    # Raises

    `ValueError`
        If `engine`, `workers` or `timeout` cannot be; if a line is not UTF-8, before anything is
        computed; if the folder is of another text, biLM or settings, or in use; if what `force`
        would throw away is a folder.
    `OSError`
        If shards failed three times; the text names them. All others are there.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}, expected one of {ENGINES}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}, expected 1 or more")
    if not timeout > 0:
        raise ValueError(f"timeout is {timeout}, expected more than 0 seconds")
    pyarrow_modules()
    if engine == "ray":
        ray_module()
    output = Path(output).absolute()
    output.mkdir(parents=True, exist_ok=True)
    place = Place(str(output), str(Path.cwd()), *map(_from_anywhere, (options_file, weight_file)))
    progress = progress if progress is not None else tqdm(disable=True)
    with lock_folder(output):
        source = " ".join(str(name) for name in (options_file, weight_file) if name) or "embedded"
        plan = _planned(list(inputs), place, settings, source, progress, force)
        found = {n for n in range(len(plan.shards)) if is_whole(output / part_name(n), plan, n)}
        todo = [number for number in range(len(plan.shards)) if number not in found]
        _begin_at(progress, plan, found)
        if todo:
            threads = settings.threads
            crew: Engine = (
                LocalEngine(place) if engine == "local" else RayEngine(place, threads, ray_address)
            )
            try:
                most = workers or max(1, crew.num_processors // threads)
                _work(plan, crew, min(most, len(todo)), timeout, todo, progress)
            finally:
                crew.close()
        return _complete(plan, output)


def _from_anywhere(name: str | Path | None) -> str | None:
    """A file's whole path; a name or a URL as it is."""
    if name is None:
        return None
    is_file = str(name) not in NAMED_BILMS and Path(name).exists()
    return str(Path(name).absolute() if is_file else name)


def _old_files(output: Path) -> list[Path]:
    """In the order in which they are removed."""
    patterns = (COMPLETE, "part-*.parquet", PLAN)
    paths = [path for pattern in patterns for path in output.glob(pattern)]
    check_no_folder(paths)
    return paths


def _planned(
    inputs: list[str | Path],
    place: Place,
    settings: CorpusSettings,
    source: str,
    progress: tqdm,
    force: bool,
) -> Plan:
    """The plan that is there, if it is of the same, or a new one, with `force` in any case."""
    output, root = Path(place.folder), Path(place.root)
    old_files = _old_files(output) if force else []
    names = find_files(inputs, root)
    files = [InputFile(name, (root / name).stat().st_size) for name in names]
    model = load_for(settings.state, place)
    bilm = PlannedBiLm(
        source, fingerprint(model), model.options.num_layers + 1, model.options.embedding_dim
    )
    machine = machine_of(model)
    del model
    if (output / PLAN).exists() and not force:
        plan = Plan.load(output)
        check_same(plan, output, settings, bilm, files)
        _say(progress, "reading the input again")
        check_inputs(plan, root)
        if machine != plan.machine:
            _note(progress, f"planned on {plan.machine}, goes on on {machine}: {UP_TO_ROUNDING}")
        return plan
    strange = sorted(path.name for path in output.glob("part-*.parquet"))
    if strange and not force:
        raise ValueError(
            f"{output} has {strange[0]} and no {PLAN}, expected an empty folder; --force removes "
            "what is there"
        )
    plan = Plan(settings, bilm, machine, files, [])
    most_tokens = MOST_NUMBERS // (plan.num_layers * bilm.embedding_dim)
    sizes = settings.shard_tokens, settings.replace_bad_utf8, most_tokens
    for shard in cut(names, root, *sizes):
        plan.shards.append(shard)
        last = shard.ranges[-1]
        _say(progress, f"planning: {len(plan.shards)} shards, {names[last.file]}")
    for path in old_files:  # now that nothing of the input can be wrong
        path.unlink()
    plan.save(output)
    return plan


def _work(
    plan: Plan, engine: Engine, size: int, timeout: float, todo: list[int], progress: tqdm
) -> None:
    count, left = len(plan.shards), len(todo)

    def show() -> None:
        _say(progress, f"{count - left} of {count} shards, {size} workers")

    def done(number: int) -> None:
        nonlocal left
        left -= 1
        show()

    show()
    supervisor = Supervisor(engine, size, timeout, lambda text: _note(progress, text), progress)
    failed = supervisor.run(todo, done)
    for machine in supervisor.machines:
        if machine != plan.machine:
            _note(progress, f"planned on {plan.machine}, a worker on {machine}: {UP_TO_ROUNDING}")
    if failed:
        number, reason = next(iter(failed.items()))
        raise OSError(
            f"{len(failed)} of {count} shards failed {MOST_TRIES} times: "
            f"{', '.join(map(str, sorted(failed)))}; of shard {number} "
            f"({describe(plan.shards[number], plan.names)}): {reason}"
        )


def _begin_at(progress: tqdm, plan: Plan, found: set[int]) -> None:
    """What is there, and the time until now, are not counted into tokens a second."""
    progress.reset(sum(shard.tokens for shard in plan.shards))
    progress.n = progress.initial = sum(plan.shards[number].tokens for number in found)
    if not progress.disable:
        progress.last_print_n = progress.n


def _say(progress: tqdm, text: str) -> None:
    """Behind the bar, when it is next drawn."""
    progress.set_postfix_str(text, refresh=False)
    progress.update(0)


def _note(progress: tqdm, text: str) -> None:
    progress.write(text, file=sys.stderr)


def _complete(plan: Plan, output: Path) -> dict[str, Any]:
    # What workers left that were killed; no other is at work.
    for path in output.glob(".part-*.part"):
        path.unlink(missing_ok=True)
    content = {
        "lines": sum(shard.lines for shard in plan.shards),
        "tokens": sum(shard.tokens for shard in plan.shards),
        "plan": plan.digest,
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
    with whole_file(output / COMPLETE) as aside:
        aside.write_text(json.dumps(content), encoding="utf-8")
    (output / LOCK).unlink(missing_ok=True)
    return content
