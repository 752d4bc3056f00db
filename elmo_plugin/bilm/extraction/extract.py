"""
Write a biLM's layers for every line of a text to an HDF5 file; an interrupted run can be resumed.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import torch
from tqdm import tqdm

from elmo_plugin.bilm.extraction.batches import Sentence, read_sentences
from elmo_plugin.bilm.extraction.engine import (
    LocalWorkers,
    Shard,
    parse_share,
    pickled,
    refuse_in_worker,
    run_shards,
)
from elmo_plugin.bilm.extraction.layouts import read_attribute, write_file
from elmo_plugin.bilm.extraction.parts import EXPECTED_THE_SAME, Parts, cut, texts_of
from elmo_plugin.bilm.extraction.vectors import Extraction
from elmo_plugin.bilm.files.atomic_write import (
    atomic_write,
    check_output_path,
    remove_temporary_files,
)
from elmo_plugin.bilm.files.digest import fingerprint
from elmo_plugin.bilm.files.folder_lock import locked_folder
from elmo_plugin.bilm.files.text import quoted
from elmo_plugin.bilm.kernels.fast import kernels_of
from elmo_plugin.bilm.model.bilm import BiLm

# Default batch size in state "carry", as in AllenNLP 0.9. Sentence n starts from the final state
# of sentence n - batch size.
CARRIED_BATCH_SIZE = 64


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
    workers: int = 1,
    shard: str | None = None,
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
    on `max_tokens` and not on the size of the input. Vectors are first written to files in the
    folder `OUTPUT.partial` and copied to `OUTPUT` at the end, so the disk needs room for both.

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
    workers : `int`, optional (default = `1`)
        Number of processes. With 1, this process computes; with more, each worker gets a copy of
        the biLM and a part of the threads. The file has the same bytes.
    shard : `str | None`, optional (default = `None`)
        `"i/n"`, from `"1/n"` to `"n/n"`: compute only each nth shard of the text, from the ith on,
        for n processes or machines that share the disk. The last of them writes `output`.

    # Returns

    `int`
        Number of lines. With `shard`, `output` exists once all parts are there.

    # Raises

    `ValueError`
        If `lines` is a string or a path. If the output exists or is a folder; if there is an
        interrupted run that may not be resumed or was made with other settings, weights or input;
        if a line is not UTF-8; if `workers` or `shard` is given in state `"carry"`, in which a line
        continues from the lines before it.
    `OSError`
        If the output's folder does not exist, or the disk is full, or workers failed three times.
        Vectors computed before are kept for `resume`.
    `RuntimeError`
        If a script calls this function with `workers` outside `if __name__ == "__main__":`.
    """
    refuse_in_worker()
    if isinstance(lines, (str, Path)):  # the lines of a string would be its characters
        raise ValueError(f"lines is {quoted(lines)}, expected an open file or a list of sentences")
    if workers < 1:
        raise ValueError(f"workers is {workers}, expected 1 or more")
    shares = shard is not None
    first, every = parse_share(shard, force)
    if bilm.state == "carry" and (workers > 1 or shares):
        raise ValueError(
            "state is 'carry', in which a line continues from the lines before it; expected "
            "workers 1 and no shard, or state primed or reset"
        )
    resume = resume or shares
    if resume and bilm.plain_weights is None:
        raise ValueError(
            "the biLM has a hook, a mask (pruning) or another layer, which no hash covers, so no "
            "run of it can be resumed or shared out; expected a biLM of weights alone"
        )
    output = Path(output)
    check_output_path(output)
    settings = {**asdict(wanted), "state": bilm.state, "bilm": fingerprint(bilm)}
    sentences = _Input(read_sentences(lines, replace_bad_utf8, name))
    num_layers = 1 if wanted.layers != "all" else bilm.options.num_layers + 1
    folder = output.with_name(output.name + ".partial")
    parts = Parts(folder, wanted, num_layers, bilm.options.embedding_dim)
    if output.exists() and not force:
        if not resume or (read_attribute(output) or {}).get("settings") != settings:
            raise ValueError(f"{output} exists, expected a new file; --force replaces it")
        return _check_finished(output, parts, sentences)

    # A resumed run must use the same kernels, because others may give different last bits.
    weights = bilm.lstm.layers("forward")[0].plain_weights
    kernels = {} if weights is None else kernels_of(weights, bilm.dtype)
    threads = max(1, torch.get_num_threads() // workers)
    if "threads" in kernels:
        kernels["threads"] = str(threads)
    run_settings = {**settings, "device": bilm.device.type, **kernels}
    progress = tqdm(disable=True) if progress is None else progress
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise ValueError(
            f"{folder} is a file, expected none or the folder of an interrupted run"
        ) from error

    shards = (one for one in sentences.missing(parts, bilm, progress) if one[0] % every == first)

    def compute() -> None:
        if workers == 1:
            for one in shards:
                parts.compute(bilm, one, progress.update)
        else:
            job = pickled(bilm, parts.compute)
            run_shards(shards, LocalWorkers(job, threads), workers, folder, progress)

    def write() -> None:
        progress.set_postfix_str(f"writing {output.name}")
        digest = sentences.digest.hexdigest()
        parts.finish(digest)
        remove_temporary_files(output.parent, output.name)  # the lock keeps others from writing it
        with atomic_write(output) as temporary:
            write_file(temporary, parts, {"settings": settings, "digest": digest})
        parts.remove()

    def is_done() -> bool:  # by another run
        return shares and output.exists()

    try:
        with ExitStack() as lock:
            lock.enter_context(locked_folder(folder, wait=shares))
            if not is_done():
                parts.begin(run_settings, resume, force, shares)
                if shares:  # the others work in the folder too: lock it only to begin and to end
                    lock.close()
                try:
                    compute()
                except ValueError:
                    # If the input was bad before a part was there, nothing is left to resume.
                    if not (shares or parts.paths()):
                        parts.remove()
                    raise
                if shares:
                    lock.enter_context(locked_folder(folder, wait=True))
                num_parts = len(parts.paths())
                if num_parts == sentences.num_shards and not is_done():
                    write()
                elif not shares:
                    raise ValueError(
                        f"{folder} has {num_parts} parts, expected {sentences.num_shards}: another "
                        "program has removed one; --resume computes it again"
                    )
    except OSError:
        # The run that wrote the output has removed the folder, maybe before the first lock here.
        if not is_done():
            raise
    if shares:
        with contextlib.suppress(OSError):  # the lock may have made the removed folder again
            folder.rmdir()
    return _check_finished(output, parts, sentences) if is_done() else sentences.count


class _Input:
    """Sentences of a run. `count`, `digest` and `num_shards` cover those read so far."""

    def __init__(self, sentences: Iterator[Sentence]) -> None:
        self._sentences, self.count, self.num_shards = sentences, 0, 0
        self.digest = hashlib.blake2b(digest_size=16)

    def __iter__(self) -> Iterator[Sentence]:
        for sentence in self._sentences:
            self.count += 1
            self.digest.update(sentence.text.encode() + b"\n")
            yield sentence

    def missing(self, parts: Parts, bilm: BiLm, progress: tqdm) -> Iterator[Shard]:
        """Yield the shards whose part is missing; a changed input causes a `ValueError`."""
        max_tokens, state_of, known_lines, carried_batch_size = parts.wanted.max_tokens, -1, 0, None
        if bilm.state == "carry":
            carried_batch_size = parts.wanted.batch_size or CARRIED_BATCH_SIZE
        for number, shard in enumerate(cut(self, max_tokens, carried_batch_size)):
            self.num_shards += 1
            lines = list(chain.from_iterable(shard))
            known = parts.texts(number)
            if known is None:
                if carried_batch_size and state_of != number - 1:
                    parts.restore(number - 1, bilm)
                state_of = number
                yield number, shard
            elif known != texts_of(lines):
                raise ValueError(
                    f"{parts.folder}: lines {self.count - len(lines) + 1} to {self.count} of the "
                    f"input have changed since this run was interrupted; {EXPECTED_THE_SAME}"
                )
            else:
                # The bar's speed must not count lines that the interrupted run computed.
                known_lines += len(lines)
                progress.n, progress.initial = progress.n + len(lines), known_lines
        if any(parts.number(path) >= self.num_shards for path in parts.paths()):
            raise ValueError(
                f"{parts.folder}: the input has {self.count} lines, and had more when this run was "
                f"interrupted; {EXPECTED_THE_SAME}"
            )


def _check_finished(output: Path, parts: Parts, sentences: _Input) -> int:
    """
    Return the number of sentences, and remove the partial folder of a run that was killed after it
    had written `output`. Raise a `ValueError` if `output` was made from other sentences.
    """
    for _ in sentences:
        pass
    about = read_attribute(output)
    if about is None or about["digest"] != sentences.digest.hexdigest():
        raise ValueError(
            f"{output} exists and was made from another text, expected a new file; --force "
            "replaces it"
        )
    with contextlib.suppress(OSError, ValueError):  # an unfinished or damaged run is left alone
        if parts.settings().get("finished") == about["digest"]:
            parts.remove()
    return sentences.count
