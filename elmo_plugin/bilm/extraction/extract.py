"""
Write a biLM's layers for every line of a text to an HDF5 file; an interrupted run can be resumed.
"""

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
from elmo_plugin.bilm.extraction.journal import EXPECTED_THE_SAME, Journal, remove_finished_journal
from elmo_plugin.bilm.extraction.layouts import read_attribute, write_file
from elmo_plugin.bilm.extraction.vectors import Extraction, window_vectors
from elmo_plugin.bilm.files.atomic_write import atomic_write, check_output_path
from elmo_plugin.bilm.files.digest import fingerprint
from elmo_plugin.bilm.files.text import quoted
from elmo_plugin.bilm.kernels.fast import kernels_of
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.lstm import LstmState

# Names of a carried state's tensors in the journal.
CARRIED = ("forward_hidden", "forward_cell", "backward_hidden", "backward_cell")
# Default batch size in state "carry", as in AllenNLP 0.9. Sentence n starts from the final state
# of sentence n - batch size.
CARRIED_BATCH_SIZE = 64
# Shortest time between two commits to the journal. In state "carry", where a window is one small
# batch, a commit also waits for the end of a group of CARRIED_WINDOWS windows.
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
    Compute a biLM's vectors for every line of a text and write them to an HDF5 file.

    Layout `"sentences"`, as in AllenNLP 0.9: a dataset for each line, named `"0"`, `"1"`, ..., of
    shape `(mixture_size, num_tokens, embedding_dim)`. With `"top"` and `"average"`, the first axis
    is missing. `sentence_to_index` is a JSON string that maps a line to the name of its dataset.

    Layout `"ragged"`: `embeddings` of shape `(mixture_size, number of all tokens, embedding_dim)`;
    `offsets` of shape `(number of lines + 1,)`, such that line `i` has `embeddings[:,
    offsets[i]:offsets[i + 1]]`; and the lines as `sentences`.

    Blank lines have no tokens. The attribute `elmo_plugin` records the settings. Memory use depends
    on `max_tokens` and not on the size of the input. Vectors are first written to the folder
    `OUTPUT.partial` and copied to `OUTPUT` at the end, so the disk needs room for both.

    # Parameters

    bilm : `BiLm`
        A biLM in evaluation mode. In state `"carry"`, a batch is `batch_size` lines that are not
        blank, in order.
    lines : `Iterable[str]`
        One sentence per line, tokens separated by white space; read lazily.
    output : `str | Path`
        The HDF5 file to write.
    wanted : `Extraction`, optional (default = `Extraction()`)
        Layers, dtype and layout to write, and limits of batches.
    resume : `bool`, optional (default = `False`)
        Resume an interrupted run, if there is one. The file gets the same bytes as without the
        interruption.
    force : `bool`, optional (default = `False`)
        Replace an existing output, and (unless `resume`) remove an interrupted run.
    replace_bad_utf8, name
        See `read_sentences`.
    progress : `tqdm | None`, optional (default = `None`)
        Progress bar that counts lines.

    # Returns

    `int`
        Number of lines.

    # Raises

    `ValueError`
        If `lines` is a string or a path. If the output exists or is a folder; if there is an
        interrupted run that may not be resumed or was made with other settings, weights or input;
        if a line is not UTF-8.
    `OSError`
        If the output's folder does not exist, or the disk is full. Vectors computed before the disk
        was full are kept for `resume`.
    """
    if isinstance(lines, (str, Path)):  # the lines of a string would be its characters
        raise ValueError(f"lines is {quoted(lines)}, expected an open file or a list of sentences")
    output = Path(output)
    check_output_path(output)
    settings = {**asdict(wanted), "state": bilm.state, "bilm": fingerprint(bilm)}
    sentences = read_sentences(lines, replace_bad_utf8, name)
    if output.exists() and not force:
        if not resume or (read_attribute(output) or {}).get("settings") != settings:
            raise ValueError(f"{output} exists, expected a new file; --force replaces it")
        return _check_finished(output, sentences)

    num_layers = 1 if wanted.layers != "all" else bilm.options.num_layers + 1
    token_bytes = num_layers * bilm.options.embedding_dim * numpy.dtype(wanted.dtype).itemsize
    # A resumed run must use the same kernels, because others may give different last bits.
    layer = bilm.lstm.layers("forward")[0]
    run_settings = {
        **settings,
        "device": bilm.device.type,
        **kernels_of(layer.weights, bilm.dtype),
    }
    progress = tqdm(disable=True) if progress is None else progress
    journal = Journal(output, run_settings, token_bytes, resume=resume, restart=force)
    try:
        _Run(bilm, wanted, journal, progress).compute(sentences)
        progress.set_postfix_str(f"writing {output.name}")
        about = {"settings": settings, "digest": journal.digest}
        with atomic_write(output) as temporary:
            write_file(temporary, journal, wanted, num_layers, bilm.options.embedding_dim, about)
        count = journal.num_sentences
        journal.remove()
        return count
    except ValueError:
        # If the input was bad before the first commit, the partial folder has nothing to resume.
        if journal.num_sentences == 0:
            journal.remove()
        raise
    finally:
        journal.close()


class _Run:
    """Computes the vectors of sentences and writes them to a journal."""

    def __init__(self, bilm: BiLm, wanted: Extraction, journal: Journal, progress: tqdm) -> None:
        self.bilm = bilm
        self.wanted = wanted
        self.journal = journal
        self.progress = progress
        self.batch_size = wanted.batch_size
        self.carried_batch_size: int | None = None
        if bilm.state == "carry":
            self.carried_batch_size = wanted.batch_size or CARRIED_BATCH_SIZE
            self.batch_size = None  # windows are whole batches, which need no further limit

    def compute(self, sentences: Iterator[Sentence]) -> None:
        """Compute the vectors that the journal lacks; a changed input causes a `ValueError`."""
        digest, count = hashlib.blake2b(digest_size=16), 0
        if self.journal.num_sentences:
            for count, sentence in enumerate(sentences, start=1):
                _add(digest, sentence)
                if count == self.journal.num_sentences:
                    break
            if digest.hexdigest() != self.journal.digest:
                raise ValueError(
                    f"{self.journal.folder}: the first {self.journal.num_sentences} lines of the "
                    f"input have changed since this run was interrupted ({count} were read); "
                    f"{EXPECTED_THE_SAME}"
                )
            # With more lines, the last batch that the run computed would have been a different one.
            if self.journal.finished and next(sentences, None) is not None:
                raise ValueError(
                    f"{self.journal.folder}: the input has more than the {count} lines that it had "
                    f"when this run was interrupted; {EXPECTED_THE_SAME}"
                )
            # The bar's speed must not count lines that the interrupted run computed.
            self.progress.n = self.progress.initial = count
            self._restore_state()
        last_commit = time.monotonic()
        between = 1 if self.carried_batch_size is None else CARRIED_WINDOWS
        all_windows = windows(sentences, self.wanted.max_tokens, self.carried_batch_size)
        for number, window in enumerate(all_windows, start=1):
            if number % between == 1 % between:
                # A vector cached in another batch may differ in its last bit. A resumed run starts
                # with an empty cache, so empty the cache wherever a run may be resumed.
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
        self.progress.update(sum(not sentence.tokens for sentence in window))
        for pieces in window_vectors(self.bilm, window, self.wanted, self.batch_size):
            for sentence, first, vectors in pieces:
                num_tokens = len(window[sentence].tokens)
                self.journal.write(starts[sentence], num_tokens, first, vectors)
                self.progress.update(int(first + vectors.shape[1] == num_tokens))

    def _carried_state(self) -> dict[str, numpy.ndarray] | None:
        if self.bilm.state != "carry" or self.bilm.carried is None:
            return None
        tensors = (tensor for state in self.bilm.carried for tensor in state)
        known = (one.float() if one.dtype == torch.bfloat16 else one for one in tensors)  # to NumPy
        return {name: tensor.cpu().numpy() for name, tensor in zip(CARRIED, known)}

    def _restore_state(self) -> None:
        arrays = self.journal.state()
        if self.bilm.state == "carry":
            self.bilm.reset_states()
            if arrays is not None:
                weight = next(self.bilm.parameters())  # for its dtype and device
                tensors = [torch.from_numpy(arrays[name]).to(weight) for name in CARRIED]
                ends = LstmState(*tensors[:2]), LstmState(*tensors[2:])
                self.bilm.keep_states(range(ends[0].hidden.shape[1]), *ends)


def _add(digest: Any, sentence: Sentence) -> None:
    digest.update(sentence.text.encode() + b"\n")


def _check_finished(output: Path, sentences: Iterator[Sentence]) -> int:
    """
    Return the number of sentences, and remove the partial folder of a run that was killed after it
    had written `output`. Raise a `ValueError` if `output` was made from other sentences.
    """
    digest, count = hashlib.blake2b(digest_size=16), 0
    for sentence in sentences:
        _add(digest, sentence)
        count += 1
    about = read_attribute(output)
    if about is None or about["digest"] != digest.hexdigest():
        raise ValueError(
            f"{output} exists and was made from another text, expected a new file; --force "
            "replaces it"
        )
    remove_finished_journal(output, about["digest"])
    return count
