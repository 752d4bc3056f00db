"""
Parts of an extraction: a file for each shard, with its sentences and their vectors, in the folder
`OUTPUT.partial`. An HDF5 file that is open when its process dies may become unreadable.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy
import torch

from elmo_plugin.bilm.extraction.batches import WINDOW_BATCHES, Sentence, windows
from elmo_plugin.bilm.extraction.engine import PROGRESS_FILES
from elmo_plugin.bilm.extraction.vectors import Extraction, window_vectors
from elmo_plugin.bilm.files.atomic_write import atomic_write, write_json
from elmo_plugin.bilm.files.folder_lock import NAME as LOCK
from elmo_plugin.bilm.files.output_folder import check_same, files_of_earlier_run, remove_files
from elmo_plugin.bilm.files.text import quoted
from elmo_plugin.bilm.kernels.backend import LstmState
from elmo_plugin.bilm.model.bilm import BiLm

# In state "carry", where a window is one small batch, a shard has a multiple of this many windows.
CARRIED_WINDOWS = 16
# Least number of tokens in a shard, with boundaries: a window of batches of 2,048 tokens.
SHARD_STEPS = WINDOW_BATCHES << 11
SETTINGS = "settings.json"
# Part numbers have six digits, or seven from 1,000,000 on. Files with more digits are not ours.
PART_FILES = tuple(f"part-{'[0-9]' * digits}" for digits in (6, 7))
WRITTEN = (*PART_FILES, PROGRESS_FILES)
EXPECTED_THE_SAME = "expected the same, or --force without --resume to start again"


def cut(
    sentences: Iterable[Sentence], max_tokens: int, carried_batch_size: int | None = None
) -> Iterator[list[list[Sentence]]]:
    """Divide a stream of sentences into shards: lists of windows, see `windows`."""
    multiple = 1 if carried_batch_size is None else CARRIED_WINDOWS
    shard: list[list[Sentence]] = []
    steps = 0
    for window in windows(sentences, max_tokens, carried_batch_size):
        shard.append(window)
        steps += sum(sentence.num_steps for sentence in window)
        if len(shard) % multiple == 0 and steps >= SHARD_STEPS:
            yield shard
            shard, steps = [], 0
    if shard:
        yield shard


def texts_of(sentences: Iterable[Sentence]) -> bytes:
    """Return the sentences as lines of JSON."""
    return b"".join(json.dumps(sentence.text).encode() + b"\n" for sentence in sentences)


@dataclass
class Parts:
    """
    Files of an extraction's parts. Each has the number of tokens of each sentence, the sentences as
    lines of JSON, their vectors, and in state `"carry"` the LSTM states at its end. `num_layers` is
    the number of stored layers per token, and `dim` the `embedding_dim`.
    """

    folder: Path
    wanted: Extraction
    num_layers: int
    dim: int

    @property
    def token_bytes(self) -> int:
        """Number of bytes of one token's vectors."""
        return self.num_layers * self.dim * numpy.dtype(self.wanted.dtype).itemsize

    def path(self, number: int) -> Path:
        """Return the path of a part."""
        return self.folder / f"part-{number:06d}"

    def number(self, path: Path) -> int:
        """Return the number of the part at a path."""
        return int(path.name.removeprefix("part-"))

    def paths(self) -> list[Path]:
        """Return the paths of all parts that are there, in order."""
        return sorted(chain.from_iterable(map(self.folder.glob, PART_FILES)), key=self.number)

    def begin(
        self, settings: dict[str, Any], resume: bool, restart: bool = False, share: bool = False
    ) -> None:
        """
        Prepare the folder for a new run, or with `resume` for the rest of an interrupted one. With
        `share`, other processes may work on other parts.

        Raise a `ValueError` if there is an interrupted run but neither `resume` nor `restart`; if
        its settings differ; or if the folder has files that no run wrote.
        """
        settings = {**settings, "shard_steps": SHARD_STEPS}
        old_files = files_of_earlier_run(self.folder, WRITTEN, SETTINGS)
        is_new = not (self.folder / SETTINGS).exists() or not (self.paths() or share)
        if is_new or (restart and not resume):
            remove_files(old_files)
            write_json(self.folder / SETTINGS, settings, indent=None)
        elif not resume:
            raise ValueError(
                f"{self.folder} holds an interrupted run, expected none: --resume continues it, "
                "--force starts again"
            )
        else:
            before = self.settings()
            before.pop("finished", None)
            check_same(self.folder, before, settings, EXPECTED_THE_SAME)

    def settings(self) -> dict[str, Any]:
        """
        Return the content of `settings.json`: everything that the vectors depend on. Once all parts
        are there, `"finished"` is a hash of the text.
        """
        path, expected = self.folder / SETTINGS, "--force without --resume starts again"
        try:
            content = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}); {expected}") from error
        if not isinstance(content, dict):
            raise ValueError(f"{path} holds {quoted(content)}, expected a dictionary; {expected}")
        return content

    def finish(self, digest: str) -> None:
        """Note that all parts are there. `digest` is a hash of the text."""
        write_json(self.folder / SETTINGS, {**self.settings(), "finished": digest}, indent=None)

    def remove(self) -> None:
        """Delete the folder. The settings go last, so that an interrupted removal can go on."""
        remove_files(files_of_earlier_run(self.folder, WRITTEN, SETTINGS))
        (self.folder / LOCK).unlink(missing_ok=True)
        self.folder.rmdir()

    def compute(
        self, bilm: BiLm, shard: tuple[int, list[list[Sentence]]], report: Callable[[int], Any]
    ) -> None:
        """Compute the windows of a shard, and write its file; `report` gets sentence counts."""
        number, all_windows = shard
        sentences = list(chain.from_iterable(all_windows))
        lengths = numpy.array([len(sentence.tokens) for sentence in sentences], dtype="<i8")
        carries = bilm.state == "carry"
        between, batch_size = (CARRIED_WINDOWS, None) if carries else (1, self.wanted.batch_size)
        with atomic_write(self.path(number)) as temporary, temporary.open("r+b") as file:
            numpy.save(file, lengths)
            numpy.save(file, numpy.frombuffer(texts_of(sentences), "u1"))
            ends = file.tell() + numpy.cumsum(lengths) * self.token_bytes
            begin = 0
            for place, window in enumerate(all_windows):
                if place % between == 0:
                    # A vector cached in another batch may differ in its last bit. A resumed run
                    # starts with an empty cache, so empty the cache wherever a shard may begin.
                    bilm.char_cnn.forget_token_vectors()
                report(sum(not sentence.tokens for sentence in window))
                for pieces in window_vectors(bilm, window, self.wanted, batch_size, report):
                    done = 0
                    for index, first, vectors in pieces:
                        length = int(lengths[begin + index])
                        start = int(ends[begin + index]) - length * self.token_bytes
                        self._write(file, start, length, first, vectors)
                        done += first + vectors.shape[1] == length
                    report(done)
                begin += len(window)
            if carries and bilm.carried is not None:
                file.seek(int(ends[-1]))
                for tensor in chain.from_iterable(bilm.carried):
                    known = tensor.float() if tensor.dtype == torch.bfloat16 else tensor  # to NumPy
                    numpy.save(file, known.cpu().numpy())

    def _write(
        self, file: BinaryIO, start: int, length: int, first: int, vectors: numpy.ndarray
    ) -> None:
        """Write vectors from token `first` on of a sentence of `length` tokens at byte `start`."""
        layer_bytes = self.token_bytes // self.num_layers
        for layer, rows in enumerate(vectors):
            file.seek(start + (layer * length + first) * layer_bytes)
            file.write(numpy.ascontiguousarray(rows).data)

    @contextmanager
    def _opened(self, path: Path) -> Iterator[tuple[numpy.ndarray, bytes, BufferedReader]]:
        """Context manager of a part's lengths, texts, and its file, at the first vector."""
        with path.open("rb") as file:
            lengths = numpy.load(file, allow_pickle=False)
            yield lengths, numpy.load(file, allow_pickle=False).tobytes(), file

    def texts(self, number: int) -> bytes | None:
        """Return the texts of a part; `None` if it is missing or damaged, to be computed again."""
        try:
            with self._opened(self.path(number)) as (lengths, texts, file):
                end = file.tell() + int(lengths.sum()) * self.token_bytes
                return texts if file.seek(0, os.SEEK_END) >= end else None
        except (OSError, ValueError, EOFError):
            return None

    def restore(self, number: int, bilm: BiLm) -> None:
        """Let a biLM carry the LSTM states at the end of a part."""
        like, tensors = next(bilm.parameters()), []
        with self._opened(self.path(number)) as (lengths, _, file):
            file.seek(int(lengths.sum()) * self.token_bytes, os.SEEK_CUR)
            while file.peek(1):
                tensors.append(torch.from_numpy(numpy.load(file, allow_pickle=False)).to(like))
        ends = LstmState(*tensors[:2]), LstmState(*tensors[2:])
        bilm.carried = ends if tensors else None

    def lengths(self) -> numpy.ndarray:
        """Return the number of tokens of each sentence, int64."""
        found = [numpy.array([], "<i8")]
        for path in self.paths():
            with self._opened(path) as (lengths, *_):
                found.append(lengths)
        return numpy.concatenate(found)

    def sentences(self) -> Iterator[str]:
        """Yield each sentence as a JSON string."""
        for path in self.paths():
            with self._opened(path) as (_, texts, _):
                yield from texts.decode().splitlines()

    def vectors(self) -> Iterator[numpy.ndarray]:
        """Yield the vectors of each sentence, shape `(num_layers, num_tokens, dim)`."""
        for path in self.paths():
            with self._opened(path) as (lengths, _, file):
                for length in lengths.tolist():
                    data = file.read(length * self.token_bytes)
                    shape = (self.num_layers, length, self.dim)
                    yield numpy.frombuffer(data, self.wanted.dtype).reshape(shape)
