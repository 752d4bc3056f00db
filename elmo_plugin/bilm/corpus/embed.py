"""Embed a corpus: write a plan, compute the missing shards, and mark the output as complete."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import torch
from tqdm import tqdm

from elmo_plugin.bilm.corpus.parquet import (
    MOST_NUMBERS,
    RowGroup,
    is_complete,
    pyarrow_modules,
    write_part,
)
from elmo_plugin.bilm.corpus.plan import (
    COMPLETE,
    PLAN,
    CorpusSettings,
    InputFile,
    Plan,
    PlannedBiLm,
    check_plan,
    part_name,
)
from elmo_plugin.bilm.corpus.shards import (
    check_shards,
    cut_shards,
    describe,
    find_files,
    read_shard,
)
from elmo_plugin.bilm.extraction.batches import WINDOW_BATCHES, windows
from elmo_plugin.bilm.extraction.engine import (
    PROGRESS_FILES,
    UP_TO_ROUNDING,
    LocalWorkers,
    Workers,
    note,
    parse_share,
    pickled,
    refuse_in_worker,
    run_shards,
)
from elmo_plugin.bilm.extraction.parts import PART_FILES
from elmo_plugin.bilm.extraction.ray_workers import RayWorkers, ray_module
from elmo_plugin.bilm.extraction.vectors import window_vectors
from elmo_plugin.bilm.files.atomic_write import atomic_write, remove_temporary_files, write_json
from elmo_plugin.bilm.files.digest import fingerprint
from elmo_plugin.bilm.files.folder_lock import locked_folder
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.output_folder import files_of_earlier_run, remove_files
from elmo_plugin.bilm.kernels.fast import kernels_of
from elmo_plugin.bilm.model.bilm import BiLm

ENGINES = ("local", "ray")
PARTS = tuple(f"{name}.parquet" for name in PART_FILES)
WRITTEN = (COMPLETE, *PARTS, PROGRESS_FILES)
# Approximate limit on the vectors of a row group, in bytes, because a whole row group is held in
# memory. A single long line may exceed the limit.
GROUP_BYTES = 1 << 26


def machine_of(bilm: BiLm) -> dict[str, str]:
    """
    Describe everything in this process that may change the last bits of a biLM's vectors, or the
    bytes of the files: kernels, the processor with PyTorch's own, and versions of packages.
    """
    kernels = kernels_of(bilm.lstm.layers("forward")[0].weights, bilm.dtype)
    return {**kernels, "torch": torch.__version__, "pyarrow": version("pyarrow")}


@dataclass
class ShardEmbedder:
    """
    Computes shards of a plan, and writes their Parquet files to `folder`. Relative names of input
    files refer to `root`. Both folders are valid on every machine of the run.
    """

    plan: Plan
    folder: Path
    root: Path

    def compute(
        self, bilm: BiLm, shard: tuple[int, None], report: Callable[[int], Any]
    ) -> dict[str, str]:
        """
        Compute a shard, given its number, and write its file; `report` gets the number of tokens of
        each batch. Return `machine_of(bilm)`: machines of which it is equal write the same bytes. A
        text that has changed since it was planned causes a `ValueError`.
        """
        # Empty the cache: a vector that was cached for another shard may differ in its last bit.
        bilm.char_cnn.forget_token_vectors()
        with atomic_write(self.folder / part_name(shard[0])) as temporary:
            write_part(temporary, self.plan, shard[0], self._row_groups(bilm, shard[0], report))
        return machine_of(bilm)

    def _row_groups(
        self, bilm: BiLm, number: int, report: Callable[[int], Any]
    ) -> Iterator[RowGroup]:
        plan, settings = self.plan, self.plan.settings
        token_size = plan.num_layers * plan.bilm.embedding_dim
        group_steps = GROUP_BYTES // (token_size * numpy.dtype(settings.dtype).itemsize)
        max_tokens = min(settings.max_tokens, group_steps // WINDOW_BATCHES)
        lines = read_shard(plan.shards[number], plan.names, self.root, settings.replace_bad_utf8)
        for window in windows(lines, max(1, max_tokens)):
            sizes = [len(line.tokens) * token_size for line in window]
            offsets = numpy.concatenate([[0], numpy.cumsum(sizes)]).astype(numpy.int64)
            numbers = numpy.empty(offsets[-1], settings.dtype)
            arrays = [
                numbers[start:stop].reshape(plan.num_layers, -1, plan.bilm.embedding_dim)
                for start, stop in itertools.pairwise(offsets)
            ]
            for pieces in window_vectors(bilm, window, settings.extraction, report=report):
                for sentence, first, vectors in pieces:
                    arrays[sentence][:, first : first + vectors.shape[1]] = vectors
                report(sum(piece.vectors.shape[1] for piece in pieces))
            yield window, offsets, numbers


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
    shard: str | None = None,
    progress: tqdm | None = None,
) -> dict[str, Any] | None:
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
        Address of the cluster; `"local"` starts one on this machine. See `RayWorkers` for the
        default.
    workers : `int | None`, optional (default = `None`)
        Number of workers; by default, the number of CPUs divided by `settings.threads`.
    timeout : `float`, optional (default = `600.0`)
        Seconds without progress after which a worker is replaced.
    force : `bool`, optional (default = `False`)
        Remove the files of an earlier run in `output` and start again.
    shard : `str | None`, optional (default = `None`)
        `"i/n"`, from `"1/n"` to `"n/n"`: compute only each nth shard, from the ith on, for n calls
        of this function on machines that share the disk. The first of them writes the plan, the
        last one `complete.json`.
    progress : `tqdm | None`, optional (default = `None`)
        Progress bar that counts tokens.

    # Returns

    `dict[str, Any] | None`
        The content of `complete.json`. `None` if with `shard` other parts are not there yet.

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
    refuse_in_worker()
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
    first, every = parse_share(shard, force)
    root = Path.cwd()
    names = find_files(inputs, root)
    files = [name for name in (options_file, weight_file) if name]
    bilm = load_bilm(options_file, weight_file, state=settings.state, default="embedded").eval()
    machine = machine_of(bilm)
    if "threads" in machine:  # record the workers' threads, not this process's
        machine["threads"] = str(settings.threads)
    planned = PlannedBiLm(
        " ".join(map(str, files)) or "embedded",
        fingerprint(bilm),
        bilm.num_layers,
        bilm.options.embedding_dim,
    )
    sizes = [InputFile(name, (root / name).stat().st_size) for name in names]
    new = Plan(replace(settings, threads=1), planned, machine, sizes, [])
    read = [*(root / name for name in names), *files]
    output.mkdir(parents=True, exist_ok=True)
    progress = progress if progress is not None else tqdm(disable=True)
    with ExitStack() as stack:
        lock = stack.enter_context(ExitStack())
        lock.enter_context(locked_folder(output, wait=shard is not None))
        old_files = files_of_earlier_run(output, WRITTEN, PLAN, read) if force else []
        if (output / PLAN).exists() and not force:
            plan = Plan.load(output)
            check_plan(plan, output, new)
            _show(progress, "checking the input")
            check_shards(plan.shards[first::every], names, root)
            if machine != plan.machine:
                note(progress, f"planned on {plan.machine}, resumed on {machine}: {UP_TO_ROUNDING}")
        else:
            plan = new
            _cut(plan, output, root, progress, force)
            remove_files(old_files)  # no earlier, because bad input must not cost old files
            plan.save(output)
        if shard:  # the other runs work in the folder too, so lock it only to plan
            lock.close()
        ours = range(first, len(plan.shards), every)
        found = {n for n in ours if is_complete(output / part_name(n), plan, n)}
        missing = [number for number in ours if number not in found]
        # The bar's speed does not count the shards that exist already.
        progress.reset(sum(plan.shards[number].tokens for number in ours))
        progress.n = progress.initial = sum(plan.shards[number].tokens for number in found)
        if not progress.disable:
            progress.last_print_n = progress.n
        if missing:
            job = pickled(bilm, ShardEmbedder(plan, output, root).compute)
            started: Workers = LocalWorkers(job, settings.threads)
            if engine == "ray":
                started = ray_workers = RayWorkers(job, settings.threads, ray_address)
                stack.callback(ray_workers.close)
            size = workers or max(1, started.num_processors() // settings.threads)
            size = min(size, len(missing))

            def show(number: int | None = None) -> None:
                if number is not None:
                    found.add(number)
                _show(progress, f"{len(found)} of {len(ours)} shards, workers: {size}")

            show()
            run_shards(
                ((number, None) for number in missing),
                started,
                size,
                output,
                progress,
                timeout,
                done=show,
                machine=plan.machine,
                describe=lambda one: (
                    f"shard {one[0]} ({describe(plan.shards[one[0]], plan.names)})"
                ),
            )
        if shard:
            if not all(
                is_complete(output / part_name(n), plan, n) for n in range(len(plan.shards))
            ):
                return None
            stack.enter_context(locked_folder(output, wait=True))
        return _complete(plan, output)


def _cut(plan: Plan, output: Path, root: Path, progress: tqdm, force: bool) -> None:
    """Divide the input into the plan's shards; refuse a folder with other files, unless `force`."""
    foreign = sorted(path.name for pattern in (COMPLETE, *PARTS) for path in output.glob(pattern))
    if foreign and not force:
        raise ValueError(
            f"{output} has {foreign[0]} but no {PLAN}, expected an empty folder or that of an "
            "earlier run"
        )
    # Other lines of the row group come before a long one.
    most_tokens = (MOST_NUMBERS - GROUP_BYTES // 2) // (plan.num_layers * plan.bilm.embedding_dim)
    sizes = plan.settings.shard_tokens, plan.settings.replace_bad_utf8, most_tokens
    for shard in cut_shards(plan.names, root, *sizes):
        plan.shards.append(shard)
        _show(progress, f"planning: shard {len(plan.shards)}, {plan.names[shard.ranges[-1].file]}")


def _show(progress: tqdm, text: str) -> None:
    """Set the text after the progress bar; it is shown when the bar is next drawn."""
    progress.set_postfix_str(text, refresh=False)
    progress.update(0)


def _complete(plan: Plan, output: Path) -> dict[str, Any]:
    """Remove what killed runs left, write `complete.json`, and return its content."""
    remove_temporary_files(output)
    remove_files(output.glob(PROGRESS_FILES))
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
