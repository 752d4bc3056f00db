"""What a worker does: a shard's vectors, into its file. Nothing else decides about their bytes."""

import itertools
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch

from elmo_plugin.bilm.corpus.machine import machine_of
from elmo_plugin.bilm.corpus.parquet import PartWriter
from elmo_plugin.bilm.corpus.plan import Plan, part_name
from elmo_plugin.bilm.corpus.shards import Line, read_shard
from elmo_plugin.bilm.extraction.batches import WINDOW_BATCHES, windows
from elmo_plugin.bilm.extraction.vectors import window_vectors
from elmo_plugin.bilm.files.digest import fingerprint
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.whole_file import whole_file
from elmo_plugin.bilm.model.bilm import BiLm

# Vectors of a group of rows, which is in memory as a whole: a line's at least.
GROUP_BYTES = 1 << 26
# Characters of a reason: what a process tells at once must arrive as a whole.
MOST_TEXT = 1000


class Place(NamedTuple):
    """
    Where a worker finds what it needs; on every machine the same.

    `folder`: of the plan and the parts. `root`: where relative names of the input begin.
    `options_file`, `weight_file`: see `load_bilm`.
    """

    folder: str
    root: str
    options_file: str | None
    weight_file: str | None


class Event(NamedTuple):
    """
    What a worker tells. `kind` and `value`: `"placed"`, where it runs; `"ready"`, its machine;
    `"tokens"`, how many more are computed; `"done"`; `"failed"`, why.
    """

    kind: str
    value: Any = None


class ShardEmbedder:
    """
    A worker's plan and biLM.

    # Parameters

    place : `Place`
        Where they are.
    """

    def __init__(self, place: Place) -> None:
        self._place = place

    def load(self) -> Iterator[Event]:
        """`"ready"`, or `"failed"`, for one if the biLM here is another than the plan's."""
        return _events(self._load(), "ready")

    def embed(self, number: int) -> Iterator[Event]:
        """Makes a shard's file: `"tokens"` after each batch, then `"done"`, or `"failed"`."""
        folder, root = Path(self._place.folder), Path(self._place.root)
        return _events(embed_shard(self._bilm, self._plan, number, folder, root), "done")

    def _load(self) -> Generator[int, None, dict[str, str]]:
        self._plan = plan = Plan.load(Path(self._place.folder))
        torch.set_num_threads(plan.settings.threads)
        self._bilm = load_for(plan.settings.state, self._place)
        found = fingerprint(self._bilm)
        if found != plan.bilm.fingerprint:
            raise ValueError(
                f"the digest of the biLM {plan.bilm.source} is {found} here, expected the plan's, "
                f"{plan.bilm.fingerprint}"
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


def load_for(state: str, place: Place) -> BiLm:
    """In evaluation mode, on the CPU; the embedded one where none is named."""
    bilm = load_bilm(place.options_file, place.weight_file, state=state, default="embedded")
    return bilm.eval()


def embed_shard(bilm: BiLm, plan: Plan, number: int, folder: Path, root: Path) -> Generator[int]:
    """
    Writes a shard's file, aside first; the same bytes each time.

    # Parameters

    bilm : `BiLm`
        The plan's, in its state.
    plan : `Plan`
        What is to be made.
    number : `int`
        The shard's.
    folder : `Path`
        Where the file is to be.
    root : `Path`
        Where relative names of the input begin.

    # Returns

    `Generator[int]`
        Tokens, a batch at a time. The file is there when it has ended.

    # Raises

    `ValueError`
        If the text is another than what was planned.
    `OSError`
        If a file cannot be read or written.
    """
    # A token remembered from another shard may differ in its last bit.
    bilm.char_cnn.forget_token_vectors()
    settings = plan.settings
    token_size = plan.num_layers * plan.bilm.embedding_dim
    group_steps = GROUP_BYTES // (token_size * numpy.dtype(settings.dtype).itemsize)
    max_tokens = min(settings.max_tokens, group_steps // WINDOW_BATCHES)
    lines = read_shard(plan.shards[number], plan.names, root, settings.replace_bad_utf8)
    with whole_file(folder / part_name(number)) as aside:
        writer = PartWriter(aside, plan, number)
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
                    for place, first, vectors in pieces:
                        arrays[place][:, first : first + vectors.shape[1]] = vectors
                    yield sum(piece.vectors.shape[1] for piece in pieces)
                writer.write(group, offsets, numbers)
        finally:
            writer.close()


def groups(lines: Iterator[Line], max_tokens: int) -> Iterator[Sequence[Line]]:
    """Cut as `windows` cuts sentences."""
    kept: list[Line] = []

    def sentences() -> Iterator[Any]:
        for line in lines:
            kept.append(line)
            yield line.sentence

    for window in windows(sentences(), max(1, max_tokens)):
        yield kept[: len(window)]
        del kept[: len(window)]
