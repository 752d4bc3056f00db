"""
Intermediate results of an extraction, which survive a kill at any moment.

An HDF5 file that is open when its process dies may become unreadable. A run therefore writes plain
files to the folder `OUTPUT.partial`, and makes the HDF5 file from them at the end. The plain files
only grow. `progress.json`, which is replaced atomically, gives the number of their valid bytes. A
resumed run truncates the files to this number.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy

from elmo_plugin.bilm.extraction.batches import Sentence
from elmo_plugin.bilm.files.atomic_write import atomic_write, write_json
from elmo_plugin.bilm.files.folder_lock import NAME as LOCK
from elmo_plugin.bilm.files.folder_lock import lock_folder
from elmo_plugin.bilm.files.output_folder import files_of_earlier_run, remove_files
from elmo_plugin.bilm.files.text import quoted

SETTINGS, PROGRESS = "settings.json", "progress.json"
VECTORS, SENTENCES, LENGTHS = "vectors.bin", "sentences.jsonl", "lengths.bin"
WRITTEN = (PROGRESS, VECTORS, SENTENCES, LENGTHS, "state-[0-9]*.npz")
NOTHING = {"sentences": 0, "tokens": 0, "text_bytes": 0, "digest": "", "finished": False}
EXPECTED_THE_SAME = "expected the same, or --force without --resume to start again"
AS_WRITTEN = "expected it as the run wrote it; --force without --resume starts again"


class Journal:
    """
    Journal of a run: its sentences and vectors, stored in the folder `OUTPUT.partial`.

    # Parameters

    output : `Path`
        The HDF5 file that the run will write.
    settings : `dict[str, Any]`
        Everything that the result depends on. A run is resumed only with the same settings.
    token_bytes : `int`
        Number of bytes of one token's vectors.
    resume : `bool`, optional (default = `False`)
        Resume an interrupted run, if there is one.
    restart : `bool`, optional (default = `False`)
        Remove the files of an interrupted run.

    # Raises

    `ValueError`
        If there is an interrupted run, but neither `resume` nor `restart`; if another process works
        on it; if its settings differ or a file is damaged; or if `OUTPUT.partial` is a file, or a
        folder with other files.
    """

    def __init__(
        self,
        output: Path,
        settings: dict[str, Any],
        token_bytes: int,
        resume: bool = False,
        restart: bool = False,
    ) -> None:
        self.folder = output.with_name(output.name + ".partial")
        self.token_bytes = token_bytes
        self._progress: dict[str, Any] = dict(NOTHING)
        try:
            self.folder.mkdir(exist_ok=True)
        except FileExistsError as error:
            raise ValueError(
                f"{self.folder} is a file, expected none or the folder of an interrupted run"
            ) from error
        self._lock = lock_folder(self.folder)
        try:
            self._begin(settings, resume, restart)
        except BaseException:  # release the lock, so that the caller may try again
            self._unlock()
            raise

    def _begin(self, settings: dict[str, Any], resume: bool, restart: bool) -> None:
        old_files = files_of_earlier_run(self.folder, WRITTEN, SETTINGS)
        # Without progress, nothing was committed.
        is_new = not all((self.folder / one).exists() for one in (SETTINGS, PROGRESS))
        if is_new or (restart and not resume):
            remove_files(old_files)
            write_json(self.folder / SETTINGS, settings, indent=None)
        elif not resume:
            raise ValueError(
                f"{self.folder} holds an interrupted run, expected none: --resume continues it, "
                "--force starts again"
            )
        else:
            self._check(settings)
            self._progress = _read_json(self.folder / PROGRESS, NOTHING)
            if self.finished and not all(
                (self.folder / name).exists() for name in (VECTORS, SENTENCES, LENGTHS)
            ):  # a kill during `remove` left only a part of the data: compute it again
                self._progress = dict(NOTHING)
        self._tokens = self.num_tokens
        self._vectors, self._sentences, self._lengths = (
            self._open(name, size)
            for name, size in (
                (VECTORS, self.num_tokens * self.token_bytes),
                (SENTENCES, self._progress["text_bytes"]),
                (LENGTHS, self.num_sentences * 8),
            )
        )

    @property
    def num_sentences(self) -> int:
        """Number `n` of committed sentences: the first `n` sentences of the input."""
        return self._progress["sentences"]

    @property
    def num_tokens(self) -> int:
        """Number of tokens in all committed sentences."""
        return self._progress["tokens"]

    @property
    def digest(self) -> str:
        """Hash of the text of all committed sentences."""
        return self._progress["digest"]

    @property
    def finished(self) -> bool:
        """`True` if all sentences of the input are committed."""
        return self._progress["finished"]

    def _check(self, settings: dict[str, Any]) -> None:
        before = _read_json(self.folder / SETTINGS)
        for name in settings.keys() | before.keys():
            if before.get(name) != settings.get(name):
                raise ValueError(
                    f"{self.folder}: {name} was {before.get(name)!r} when this run began and is "
                    f"{settings.get(name)!r} now; {EXPECTED_THE_SAME}"
                )

    def _open(self, name: str, size: int) -> BinaryIO:
        path = self.folder / name
        path.touch()
        if path.stat().st_size < size:
            raise ValueError(
                f"{path} has {path.stat().st_size} bytes, expected at least {size}: it was changed "
                "since the run was interrupted; --force without --resume starts again"
            )
        os.truncate(path, size)
        file = path.open("r+b")
        file.seek(0, os.SEEK_END)
        return file

    def begin(self, window: Sequence[Sentence]) -> list[int]:
        """
        Append sentences, before their vectors are written. Return the index of each sentence's
        first token among all tokens of the run.
        """
        starts = []
        for sentence in window:
            self._sentences.write(json.dumps(sentence.text).encode() + b"\n")
            starts.append(self._tokens)
            self._tokens += len(sentence.tokens)
        lengths = numpy.array([len(sentence.tokens) for sentence in window], dtype="<i8")
        self._lengths.write(lengths.tobytes())
        return starts

    def write(self, start: int, sentence_length: int, first: int, rows: numpy.ndarray) -> None:
        """
        Write the vectors of consecutive tokens of a sentence.

        `rows` has shape `(number of stored layers, n, embedding_dim)`. `start` is the index of the
        sentence's first token among all tokens of the run, as `begin` returns it. `sentence_length`
        is the sentence's number of tokens. `rows[:, 0]` belongs to token `first` of the sentence.
        """
        layer_bytes = self.token_bytes // len(rows)
        for layer, row in enumerate(rows):
            position = start * self.token_bytes + (layer * sentence_length + first) * layer_bytes
            self._vectors.seek(position)
            self._vectors.write(numpy.ascontiguousarray(row).data)

    def commit(
        self,
        num_sentences: int,
        digest: str,
        finished: bool = False,
        state: dict[str, numpy.ndarray] | None = None,
    ) -> None:
        """
        Flush everything to disk; a resumed run continues after the last commit.

        `num_sentences` is the number of sentences so far, and `digest` the hash of their text.
        `finished` marks the last commit of a run. `state` holds the LSTM states carried to the next
        batch, for a biLM in state `"carry"`.
        """
        for file in (self._vectors, self._sentences, self._lengths):
            file.flush()
            os.fsync(file.fileno())
        if state is not None:
            with (
                atomic_write(self._state_path(num_sentences)) as temporary,
                temporary.open("wb") as file,
            ):
                numpy.savez(file, **state)  # type: ignore[arg-type]
        previous = self.num_sentences
        self._progress = {
            "sentences": num_sentences,
            "tokens": self._tokens,
            "text_bytes": self._sentences.tell(),
            "digest": digest,
            "finished": finished,
        }
        write_json(self.folder / PROGRESS, self._progress, indent=None)
        if previous != num_sentences:
            self._state_path(previous).unlink(missing_ok=True)

    def state(self) -> dict[str, numpy.ndarray] | None:
        """Return the `state` that the last `commit` stored, or `None` if it stored none."""
        path = self._state_path(self.num_sentences)
        if not path.exists():
            return None
        with numpy.load(path) as arrays:
            return dict(arrays)

    def _state_path(self, num_sentences: int) -> Path:
        return self.folder / f"state-{num_sentences}.npz"

    def lengths(self) -> numpy.ndarray:
        """Return the number of tokens of each committed sentence, int64."""
        return numpy.fromfile(self.folder / LENGTHS, dtype="<i8")

    def sentences(self) -> Iterator[str]:
        """Yield each committed sentence as a JSON string."""
        with (self.folder / SENTENCES).open("rb") as file:
            for line in file:
                yield line.rstrip(b"\n").decode()

    def vectors(self, num_layers: int, dim: int, dtype: str) -> Iterator[numpy.ndarray]:
        """Yield the vectors of each committed sentence, shape `(num_layers, num_tokens, dim)`."""
        with (self.folder / VECTORS).open("rb") as file:
            for length in self.lengths():
                shape = (num_layers, int(length), dim)
                data = file.read(int(length) * self.token_bytes)
                yield numpy.frombuffer(data, dtype=dtype).reshape(shape)

    def close(self) -> None:
        """Close the files and release the lock, so that another run may resume."""
        for file in (self._vectors, self._sentences, self._lengths):
            # On a full disk, flushing fails; those bytes were not committed.
            with contextlib.suppress(OSError):
                file.close()
        self._unlock()

    def _unlock(self) -> None:
        if not self._lock.closed:
            (self.folder / LOCK).unlink(missing_ok=True)
            self._lock.close()

    def remove(self) -> None:
        """Delete the files of the run, and the folder."""
        self.close()
        _remove(self.folder)


def remove_finished_journal(output: Path, digest: str) -> None:
    """
    Remove the folder `OUTPUT.partial` of a run that was killed after it had written `output`.

    `digest` is the hash of the input text from which `output` was computed. The folder is kept if
    its run is unfinished or had another input.
    """
    folder = output.with_name(output.name + ".partial")
    note = folder / PROGRESS
    if note.exists():
        progress = _read_json(note, NOTHING)
        if progress["finished"] and progress["digest"] == digest:
            _remove(folder)


def _remove(folder: Path) -> None:
    files = files_of_earlier_run(folder, WRITTEN, SETTINGS)
    # The progress goes after the data: it tells `remove_finished_journal` that a removal was
    # interrupted.
    remove_files(sorted(files, key=lambda path: path.name in (PROGRESS, SETTINGS)))
    (folder / LOCK).unlink(missing_ok=True)  # left by a run that was killed
    folder.rmdir()


def _read_json(path: Path, keys: Iterable[str] = ()) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}), {AS_WRITTEN}") from error
    if not isinstance(content, dict) or not content.keys() >= set(keys):
        raise ValueError(f"{path} holds {quoted(content)}, {AS_WRITTEN}")
    return content
