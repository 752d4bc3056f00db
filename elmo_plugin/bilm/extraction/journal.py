"""
What a run has computed so far, safe against being killed at any moment.

An HDF5 file that was open when its process died may be unreadable. So a run first writes plain
files, to the folder `OUTPUT.partial`, and the HDF5 file is made from them at the end. The files
only grow; `progress.json`, replaced as a whole, says how much of them counts, and what is past that
is cut off when a run goes on.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy

from elmo_plugin.bilm.extraction.batches import Sentence
from elmo_plugin.bilm.files.folder_lock import NAME as LOCK
from elmo_plugin.bilm.files.folder_lock import lock_folder
from elmo_plugin.bilm.files.text import quoted
from elmo_plugin.bilm.files.whole_file import check_no_folder, whole_file

VECTORS, SENTENCES, LENGTHS = "vectors.bin", "sentences.jsonl", "lengths.bin"
NOTHING = {"sentences": 0, "tokens": 0, "text_bytes": 0, "digest": "", "finished": False}
EXPECTED_THE_SAME = "expected the same, or --force without --resume to start again"
AS_WRITTEN = "expected it as the run wrote it; --force without --resume starts again"


class Journal:
    """
    The folder `OUTPUT.partial`.

    # Parameters

    output : `Path`
        The HDF5 file that will be made.
    settings : `dict[str, Any]`
        Whatever changes the result; a run goes on only under the same.
    token_bytes : `int`
        Bytes of one token's vectors.
    resume : `bool`, optional (default = `False`)
        Whether to go on where an interrupted run stopped, if there is one.
    restart : `bool`, optional (default = `False`)
        Whether what an interrupted run left is thrown away.

    # Raises

    `ValueError`
        If there is an interrupted run and neither is asked for; if another process is at work on
        it; if its settings are others: the text names them; if a file of it is damaged; or if
        `OUTPUT.partial` is a file, or holds a folder.
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
        is_new = not self.folder.exists()
        try:
            self.folder.mkdir(exist_ok=True)
        except FileExistsError as error:
            raise ValueError(
                f"{self.folder} is a file, expected none or the folder of an interrupted run"
            ) from error
        self._lock = lock_folder(self.folder)
        try:
            self._begin(settings, is_new, resume, restart)
        except BaseException:  # whoever catches it may try again
            self._lock.close()
            raise

    def _begin(self, settings: dict[str, Any], is_new: bool, resume: bool, restart: bool) -> None:
        check_no_folder(self.folder.iterdir())  # it is all removed in the end
        if restart and not resume:
            self._clear()
            is_new = True
        # A run that was killed before it wrote its settings left nothing.
        if is_new or not (self.folder / "settings.json").exists():
            self._clear()
            _write_json(self.folder / "settings.json", settings)
        elif not resume:
            raise ValueError(
                f"{self.folder} holds an interrupted run, expected none: --resume goes on with it, "
                "--force starts again"
            )
        else:
            self._check(settings)
            if (self.folder / "progress.json").exists():
                self._progress = _read_json(self.folder / "progress.json", NOTHING)
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
        """Sentences that are safe."""
        return self._progress["sentences"]

    @property
    def num_tokens(self) -> int:
        """Their tokens."""
        return self._progress["tokens"]

    @property
    def digest(self) -> str:
        """Of their text, as it was when they were committed."""
        return self._progress["digest"]

    @property
    def finished(self) -> bool:
        """Whether these are all."""
        return self._progress["finished"]

    def _clear(self) -> None:
        for path in self.folder.iterdir():
            if path.name != LOCK:
                path.unlink()

    def _check(self, settings: dict[str, Any]) -> None:
        before = _read_json(self.folder / "settings.json")
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
        """Notes the sentences to come; gives each one's first token."""
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
        # Parameters

        start : `int`
            The sentence's first token, from `begin`.
        sentence_length : `int`
            Its tokens.
        first : `int`
            The first token that `rows` has, counted in the sentence.
        rows : `numpy.ndarray`
            Shape `(number of layers, n, embedding_dim)`.
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
        From here on a run goes on behind what was written until now.

        # Parameters

        num_sentences : `int`
            Sentences so far.
        digest : `str`
            Of their text.
        finished : `bool`, optional (default = `False`)
            Whether there are no more.
        state : `Optional[dict[str, numpy.ndarray]]`, optional (default = `None`)
            The LSTM state that the next sentence starts from, where it is carried.
        """
        for file in (self._vectors, self._sentences, self._lengths):
            file.flush()
            os.fsync(file.fileno())
        if state is not None:
            with whole_file(self._state_path(num_sentences)) as aside, aside.open("wb") as file:
                numpy.savez(file, **state)  # type: ignore[arg-type]
        previous = self.num_sentences
        self._progress = {
            "sentences": num_sentences,
            "tokens": self._tokens,
            "text_bytes": self._sentences.tell(),
            "digest": digest,
            "finished": finished,
        }
        _write_json(self.folder / "progress.json", self._progress)
        if previous != num_sentences:
            self._state_path(previous).unlink(missing_ok=True)

    def state(self) -> dict[str, numpy.ndarray] | None:
        """What was given to the last `commit`."""
        path = self._state_path(self.num_sentences)
        if not path.exists():
            return None
        with numpy.load(path) as arrays:
            return dict(arrays)

    def _state_path(self, num_sentences: int) -> Path:
        return self.folder / f"state-{num_sentences}.npz"

    # --- reading it back ------------------------------------------------------------------------

    def lengths(self) -> numpy.ndarray:
        """Tokens of each sentence."""
        return numpy.fromfile(self.folder / LENGTHS, dtype="<i8")

    def sentences(self) -> Iterator[str]:
        """The text of each sentence, as a JSON string."""
        with (self.folder / SENTENCES).open("rb") as file:
            for line in file:
                yield line.rstrip(b"\n").decode()

    def vectors(self, num_layers: int, dim: int, dtype: str) -> Iterator[numpy.ndarray]:
        """The vectors of each sentence, shape `(num_layers, num_tokens, dim)`."""
        with (self.folder / VECTORS).open("rb") as file:
            for length in self.lengths():
                shape = (num_layers, int(length), dim)
                data = file.read(int(length) * self.token_bytes)
                yield numpy.frombuffer(data, dtype=dtype).reshape(shape)

    # --- the end --------------------------------------------------------------------------------

    def close(self) -> None:
        """Lets go of the files; another run may go on."""
        for file in (self._vectors, self._sentences, self._lengths, self._lock):
            # What a full disk did not take is not committed either.
            with contextlib.suppress(OSError):
                file.close()

    def remove(self) -> None:
        """Deletes the folder."""
        self.close()
        shutil.rmtree(self.folder)


def remove_leftover(output: Path, digest: str) -> None:
    """What a run left that was killed after `output` was in place and before it had tidied up."""
    folder = output.with_name(output.name + ".partial")
    note = folder / "progress.json"
    if note.exists():
        progress = _read_json(note, NOTHING)
        if progress["finished"] and progress["digest"] == digest:
            shutil.rmtree(folder)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with whole_file(path) as aside:
        aside.write_text(json.dumps(content))


def _read_json(path: Path, keys: Iterable[str] = ()) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}), {AS_WRITTEN}") from error
    if not isinstance(content, dict) or not content.keys() >= set(keys):
        raise ValueError(f"{path} holds {quoted(content)}, {AS_WRITTEN}")
    return content
