"""Compute the vectors of one shard, and write them to one Parquet file."""

import itertools
from collections.abc import Generator, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch

from elmo_plugin.bilm.corpus.parquet import PartWriter
from elmo_plugin.bilm.corpus.plan import Plan, part_name
from elmo_plugin.bilm.corpus.shards import Line, read_shard
from elmo_plugin.bilm.extraction.batches import WINDOW_BATCHES, windows
from elmo_plugin.bilm.extraction.vectors import window_vectors
from elmo_plugin.bilm.files.atomic_write import atomic_write
from elmo_plugin.bilm.files.digest import fingerprint
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.kernels.fast import kernels_of
from elmo_plugin.bilm.model.bilm import BiLm

# Approximate limit on the vectors of a row group, in bytes, because a whole row group is held in
# memory. A single long line may exceed the limit.
GROUP_BYTES = 1 << 26
# Maximum length of an error message, in characters. A message this short is sent in one write, so
# the supervisor never gets a part of it from a worker that dies.
MOST_TEXT = 1000


class WorkerFiles(NamedTuple):
    """
    Paths that a worker needs, valid on every machine of the run, and the worker's thread count.

    `folder`: output folder with the plan and the Parquet files. `root`: folder to which relative
    names of input files refer. `options_file`, `weight_file`: files of the biLM, see `load_bilm`.
    """

    folder: str
    root: str
    options_file: str | None
    weight_file: str | None
    threads: int = 1


class Event(NamedTuple):
    """
    Message from a worker to the supervisor. The meaning of `value` depends on `kind`.

    `"placed"`: text that names the worker's process and machine. `"ready"`: the biLM is loaded; the
    value is the result of `machine_of`. `"tokens"`: number of tokens just computed. `"done"`: the
    shard is written; no value. `"failed"`: text that gives the reason.
    """

    kind: str
    value: Any = None


class ShardEmbedder:
    """
    Computes shards in a worker, with the plan and the biLM loaded once.

    # Parameters

    files : `WorkerFiles`
        Paths that the worker needs.
    """

    def __init__(self, files: WorkerFiles) -> None:
        self._files = files

    def load(self) -> Iterator[Event]:
        """Load plan and biLM; yield a `"ready"` event, or `"failed"` after any error."""
        return _events(self._load(), "ready")

    def embed(self, number: int) -> Iterator[Event]:
        """
        Compute a shard; yield `"tokens"` events, then `"done"`, or `"failed"` after any error.
        """
        folder, root = Path(self._files.folder), Path(self._files.root)
        return _events(embed_shard(self._bilm, self._plan, number, folder, root), "done")

    def _load(self) -> Generator[int, None, dict[str, str]]:
        self._plan = plan = Plan.load(Path(self._files.folder))
        torch.set_num_threads(self._files.threads)
        self._bilm = load_for(plan.settings.state, self._files)
        found = fingerprint(self._bilm)
        if found != plan.bilm.fingerprint:
            raise ValueError(
                f"the fingerprint of the biLM {plan.bilm.source} is {found} here, expected the "
                f"plan's, {plan.bilm.fingerprint}"
            )
        return machine_of(self._bilm)
        yield


def _events(work: Generator[int, None, Any], last: str) -> Iterator[Event]:
    try:
        while True:
            yield Event("tokens", next(work))
    except StopIteration as end:
        yield Event(last, end.value)
    except Exception as error:
        yield Event("failed", f"{type(error).__name__}: {error}"[:MOST_TEXT])


def load_for(state: str, files: WorkerFiles) -> BiLm:
    """Load a worker's biLM on the CPU, in evaluation mode; by default the package's own biLM."""
    bilm = load_bilm(files.options_file, files.weight_file, state=state, default="embedded")
    return bilm.eval()


def machine_of(bilm: BiLm) -> dict[str, str]:
    """
    Describe everything in this process that may change the last bits of a biLM's vectors.

    The description names the kernels for matrix products and the versions of packages. If PyTorch's
    own operators are used, it also names the processor. Equal descriptions mean bitwise identical
    vectors.
    """
    layer = bilm.lstm.layers("forward")[0]
    return {
        **kernels_of(layer.weights, bilm.dtype),
        "torch": torch.__version__,
        "pyarrow": version("pyarrow"),
    }


def embed_shard(bilm: BiLm, plan: Plan, number: int, folder: Path, root: Path) -> Generator[int]:
    """
    Compute shard `number` of a plan and write its Parquet file; yield the number of tokens of each
    batch.

    The file is complete when the generator ends. Its bytes depend only on the arguments and on
    `machine_of(bilm)`. `folder` is the output folder, and `root` the folder to which relative names
    of input files refer. A text that has changed since it was planned causes a `ValueError`.
    """
    # Empty the cache: a vector that was cached for another shard may differ in its last bit.
    bilm.char_cnn.forget_token_vectors()
    settings = plan.settings
    token_size = plan.num_layers * plan.bilm.embedding_dim
    group_steps = GROUP_BYTES // (token_size * numpy.dtype(settings.dtype).itemsize)
    max_tokens = min(settings.max_tokens, group_steps // WINDOW_BATCHES)
    lines = read_shard(plan.shards[number], plan.names, root, settings.replace_bad_utf8)
    with atomic_write(folder / part_name(number)) as temporary:
        writer = PartWriter(temporary, plan, number)
        try:
            for group in groups(lines, max_tokens):
                sizes = [len(line.sentence.tokens) * token_size for line in group]
                offsets = numpy.concatenate([[0], numpy.cumsum(sizes)]).astype(numpy.int64)
                numbers = numpy.empty(offsets[-1], settings.dtype)
                arrays = [
                    numbers[start:stop].reshape(plan.num_layers, -1, plan.bilm.embedding_dim)
                    for start, stop in itertools.pairwise(offsets)
                ]
                window = [line.sentence for line in group]
                for pieces in window_vectors(bilm, window, settings.extraction):
                    for sentence, first, vectors in pieces:
                        arrays[sentence][:, first : first + vectors.shape[1]] = vectors
                    yield sum(piece.vectors.shape[1] for piece in pieces)
                writer.write(group, offsets, numbers)
        finally:
            writer.close()


def groups(lines: Iterator[Line], max_tokens: int) -> Iterator[Sequence[Line]]:
    """Divide lines into the row groups of a Parquet file, at the ends of `windows`."""
    pending: list[Line] = []

    def sentences() -> Iterator[Any]:
        for line in lines:
            pending.append(line)
            yield line.sentence

    for window in windows(sentences(), max(1, max_tokens)):
        yield pending[: len(window)]
        del pending[: len(window)]
