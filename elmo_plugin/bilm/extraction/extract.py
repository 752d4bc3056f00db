"""A biLM's layers for every line of a text, into an HDF5 file: streamed, and safe to interrupt."""

import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy
import torch
from tqdm import tqdm

from elmo_plugin.bilm.extraction.batches import Sentence, read_sentences, windows
from elmo_plugin.bilm.extraction.journal import EXPECTED_THE_SAME, Journal, remove_leftover
from elmo_plugin.bilm.extraction.layouts import read_about, write_file
from elmo_plugin.bilm.extraction.settings import CARRIED_BATCH_SIZE, Extraction
from elmo_plugin.bilm.extraction.vectors import window_vectors
from elmo_plugin.bilm.files.digest import fingerprint
from elmo_plugin.bilm.files.whole_file import check_replaceable, whole_file
from elmo_plugin.bilm.kernels.processors import processor
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.lstm import LstmState

# A killed run loses this much work, or a window where that takes longer; in carry, where a window
# is one small batch, this many windows.
COMMIT_SECONDS = 1.0
CARRIED_WINDOWS = 16


def extract(
    bilm: BiLm,
    lines: Iterable[str],
    output: str | Path,
    wanted: Extraction = Extraction(),  # noqa: B008 (it is frozen)
    *,
    resume: bool = False,
    force: bool = False,
    replace_bad_utf8: bool = False,
    name: str = "input",
    progress: tqdm | None = None,
) -> int:
    """
    Layout `sentences`: the datasets `"0"`, `"1"`, ... of shape
    `(mixture_size, num_tokens, embedding_dim)`, without the first axis for `top` and `average`, and
    `sentence_to_index`, one JSON string from text to name: AllenNLP 0.9's file. Layout `ragged`:
    `embeddings` of shape `(mixture_size, all tokens, embedding_dim)`, `offsets` of shape
    `(number of lines + 1,)`, so that line `i` has `embeddings[:, offsets[i]:offsets[i + 1]]`, and
    `sentences`. Blank lines have no tokens. The attribute `elmo_plugin` says how it was made.

    Memory is bounded by `max_tokens`, not by the input: vectors go to the folder `OUTPUT.partial`
    as they are computed, and from there to `OUTPUT` once all are there; the disk needs room for
    both.

    # Parameters

    bilm : `BiLm`
        In evaluation mode. Where it carries its state, every batch is `batch_size` lines that are
        not blank, in their order.
    lines : `Iterable[str]`
        One sentence a line, tokens apart by white space; read as they are needed.
    output : `str | Path`
        The HDF5 file to make.
    wanted : `Extraction`, optional (default = `Extraction()`)
        Which vectors, and how they are stored.
    resume : `bool`, optional (default = `False`)
        Whether to go on where an interrupted run stopped, if there is one; the result has the same
        bytes as if it had not stopped.
    force : `bool`, optional (default = `False`)
        Whether to replace an output that exists, and to throw away what an interrupted run left
        (unless `resume`).
    replace_bad_utf8, name
        See `read_sentences`.
    progress : `tqdm | None`, optional (default = `None`)
        Moves on by one for every line.

    # Returns

    `int`
        Lines.

    # Raises

    `ValueError`
        If the output exists, or is a folder; if an interrupted run is in the way, or is resumed
        with other settings, weights or input; if a line is not UTF-8.
    `OSError`
        If the disk is full. What was computed is kept for `resume`.
    """
    output = Path(output)
    if not output.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {output.parent} to write {output.name} to")
    check_replaceable(output)
    settings = {**asdict(wanted), "state": bilm.state, "bilm": fingerprint(bilm)}
    sentences = read_sentences(lines, replace_bad_utf8, name)
    if output.exists() and not force:
        if not resume or (read_about(output) or {}).get("settings") != settings:
            raise ValueError(f"{output} exists, expected a new file; --force replaces it")
        return _check_finished(output, sentences)

    mixed = 1 if wanted.layers != "all" else bilm.options.num_layers + 1
    token_bytes = mixed * bilm.options.embedding_dim * numpy.dtype(wanted.dtype).itemsize
    # The number of threads may change the last digit of a product, and so may its kernel.
    run_settings = {
        **settings,
        "threads": torch.get_num_threads(),
        "device": bilm.device.type,
        "processor": processor(),
    }
    journal = Journal(output, run_settings, token_bytes, resume=resume, restart=force)
    try:
        _Run(bilm, wanted, journal, progress).over(sentences)
        if progress is not None:
            progress.set_postfix_str(f"writing {output.name}")
        about = {"settings": settings, "digest": journal.digest}
        with whole_file(output) as aside:
            write_file(aside, journal, wanted, mixed, bilm.options.embedding_dim, about)
        count = journal.num_sentences
        journal.remove()
        return count
    except ValueError:
        # Of the input: one of which nothing is computed yet is not in another's way.
        if journal.num_sentences == 0:
            journal.remove()
        raise
    finally:
        journal.close()


class _Run:
    """From the sentences to a finished journal."""

    def __init__(
        self, bilm: BiLm, wanted: Extraction, journal: Journal, progress: tqdm | None
    ) -> None:
        self.bilm = bilm
        self.wanted = wanted
        self.journal = journal
        self.progress = progress
        self.batch_size = wanted.batch_size
        self.carried_batch_size: int | None = None
        if bilm.state == "carry":
            self.carried_batch_size = wanted.batch_size or CARRIED_BATCH_SIZE
            self.batch_size = None  # the window is the batch; parts of it fit in memory

    def over(self, sentences: Iterator[Sentence]) -> None:
        """Computes what the journal does not have yet."""
        digest, count = hashlib.blake2b(digest_size=16), 0
        if self.journal.num_sentences:
            for count, sentence in enumerate(sentences, start=1):
                _add(digest, sentence)
                if count == self.journal.num_sentences:
                    break
            if digest.hexdigest() != self.journal.digest:
                raise ValueError(
                    f"{self.journal.folder}: the first {self.journal.num_sentences} lines of the "
                    f"input are others than when this run was interrupted ({count} were read); "
                    f"{EXPECTED_THE_SAME}"
                )
            # The last batch of all may have been a part of one.
            if self.journal.finished and next(sentences, None) is not None:
                raise ValueError(
                    f"{self.journal.folder}: the input has more than the {count} lines that were "
                    f"all of it when this run was interrupted; {EXPECTED_THE_SAME}"
                )
            if self.progress is not None:
                # Not counted into sentences per second.
                self.progress.n = self.progress.initial = count
            self._restore_state()
        last_commit = time.monotonic()
        between = 1 if self.carried_batch_size is None else CARRIED_WINDOWS
        cut = windows(sentences, self.wanted.max_tokens, self.carried_batch_size)
        for number, window in enumerate(cut, start=1):
            if number % between == 1 % between:
                # A token remembered from another batch may differ in its last bit. A run that goes
                # on remembers none, so none is remembered past a place where one may go on.
                self.bilm.char_cnn.forget_token_vectors()
            self._run(window)
            count += len(window)
            for sentence in window:
                _add(digest, sentence)
            if number % between == 0 and time.monotonic() - last_commit >= COMMIT_SECONDS:
                self.journal.commit(count, digest.hexdigest(), state=self._carried_state())
                last_commit = time.monotonic()
        self.journal.commit(count, digest.hexdigest(), finished=True, state=self._carried_state())

    def _run(self, window: list[Sentence]) -> None:
        starts = self.journal.begin(window)
        self._advance(sum(not sentence.tokens for sentence in window))
        for pieces in window_vectors(self.bilm, window, self.wanted, self.batch_size):
            for place, first, vectors in pieces:
                num_tokens = len(window[place].tokens)
                self.journal.write(starts[place], num_tokens, first, vectors)
                self._advance(int(first + vectors.shape[1] == num_tokens))

    def _advance(self, count: int) -> None:
        if self.progress is not None:
            self.progress.update(count)

    def _carried_state(self) -> dict[str, numpy.ndarray] | None:
        if self.bilm.state != "carry" or self.bilm.carried is None:
            return None
        return {
            f"{direction}_{part}": getattr(state, part).cpu().numpy()
            for direction, state in zip(("forward", "backward"), self.bilm.carried)
            for part in LstmState._fields
        }

    def _restore_state(self) -> None:
        arrays = self.journal.state()
        if self.bilm.state == "carry":
            self.bilm.reset_states()
            if arrays is not None:
                states = [
                    LstmState(
                        *(
                            torch.from_numpy(arrays[f"{direction}_{part}"]).to(self.bilm.device)
                            for part in LstmState._fields
                        )
                    )
                    for direction in ("forward", "backward")
                ]
                self.bilm.keep_states(*states)


def _add(digest: Any, sentence: Sentence) -> None:
    digest.update(sentence.text.encode() + b"\n")


def _check_finished(output: Path, sentences: Iterator[Sentence]) -> int:
    """`resume` of a run that had ended."""
    digest, count = hashlib.blake2b(digest_size=16), 0
    for sentence in sentences:
        _add(digest, sentence)
        count += 1
    about = read_about(output)
    if about is None or about["digest"] != digest.hexdigest():
        raise ValueError(
            f"{output} exists and is of another text, expected a new file; --force replaces it"
        )
    remove_leftover(output, about["digest"])
    return count
