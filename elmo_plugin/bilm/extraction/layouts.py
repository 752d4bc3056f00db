"""The HDF5 files: a dataset a sentence, or one ragged array."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy

from elmo_plugin.bilm.extraction.journal import Journal
from elmo_plugin.bilm.extraction.settings import Extraction

SENTENCE_TO_INDEX = "sentence_to_index"
ATTRIBUTE = "elmo_plugin"
TEXT = h5py.string_dtype("utf-8")
# Rows of the ragged array written at once, and the size of a compressed piece, in bytes.
BLOCK_BYTES = 1 << 22
PIECE_BYTES = 1 << 18

# HDF5 takes `/` for the way into a group, `.` for the group itself, and ends names at NUL.
UNSAFE_IN_KEYS = {"/": "\u2215", "\0": "\u2400"}


def sentence_key(sentence: str, occurrence: int = 1) -> str:
    """
    The name of a sentence's dataset with `use_sentence_keys`: the sentence itself, but what HDF5
    cannot have in a name.

    # Parameters

    sentence : `str`
        A line of the input.
    occurrence : `int`, optional (default = `1`)
        Which of the lines with this text, from 1.

    # Returns

    `str`
        With `/` as U+2215 (DIVISION SLASH), NUL as U+2400 and the sentence `.` as U+2024. Further
        occurrences, and every blank line, end with a newline and their number.
    """
    key = sentence.strip()
    for character, replacement in UNSAFE_IN_KEYS.items():
        key = key.replace(character, replacement)
    key = "\u2024" if key == "." else key
    return key if occurrence == 1 and key else f"{key}\n{occurrence}"


def write_file(
    path: Path,
    journal: Journal,
    wanted: Extraction,
    num_layers: int,
    dim: int,
    about: dict[str, Any],
) -> None:
    """
    Makes the HDF5 file of a finished journal.

    # Parameters

    path : `Path`
        The file to write.
    journal : `Journal`
        All sentences and vectors.
    wanted : `Extraction`
        The layout.
    num_layers : `int`
        Layers of each token's vectors.
    dim : `int`
        `embedding_dim`.
    about : `dict[str, Any]`
        What the file was made from; kept as the attribute `elmo_plugin`.
    """
    # Names are then listed in the order of the input, not "0", "1", "10".
    with h5py.File(path, "w", track_order=True) as file:
        file.attrs[ATTRIBUTE] = json.dumps(about)
        vectors = journal.vectors(num_layers, dim, wanted.dtype)
        if wanted.layout == "ragged":
            _write_ragged(file, journal, vectors, wanted, (num_layers, journal.num_tokens, dim))
        else:
            _write_sentences(file, journal, vectors, wanted)


def read_about(path: Path) -> dict[str, Any] | None:
    """What `write_file` was told; `None` for a file of another kind."""
    try:
        with h5py.File(path, "r") as file:
            return json.loads(file.attrs[ATTRIBUTE])
    except (OSError, KeyError, ValueError, TypeError):
        return None


def _write_sentences(
    file: h5py.File, journal: Journal, vectors: Iterable[numpy.ndarray], wanted: Extraction
) -> None:
    keys = _sentence_keys(journal) if wanted.use_sentence_keys else map(str, _count())
    for key, layers in zip(keys, vectors):
        array = layers if wanted.layers == "all" else layers[0]
        pieces = _compression(array.shape, array.itemsize) if wanted.compress else {}
        file.create_dataset(key, data=array, **pieces)
    if not wanted.forget_sentences and not wanted.use_sentence_keys:
        # Of lines with the same text the last wins: who reads JSON keeps the last.
        entries = (f'{text}: "{index}"' for index, text in enumerate(journal.sentences()))
        dataset = file.create_dataset(SENTENCE_TO_INDEX, (1,), dtype=TEXT)
        dataset[0] = "{" + ", ".join(entries) + "}"


def _count() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def _sentence_keys(journal: Journal) -> Iterator[str]:
    seen: dict[bytes, int] = {}
    for text in journal.sentences():
        key = sentence_key(json.loads(text), 2)[:-2]
        digest = hashlib.blake2b(key.encode(), digest_size=12).digest()
        seen[digest] = seen.get(digest, 0) + 1
        yield sentence_key(key, seen[digest])


def _write_ragged(
    file: h5py.File,
    journal: Journal,
    vectors: Iterable[numpy.ndarray],
    wanted: Extraction,
    shape: tuple[int, int, int],
) -> None:
    whole = shape if wanted.layers == "all" else shape[1:]
    pieces = _compression(whole, numpy.dtype(wanted.dtype).itemsize) if wanted.compress else {}
    dataset = file.create_dataset("embeddings", whole, dtype=wanted.dtype, **pieces)
    block: list[numpy.ndarray] = []
    start = rows = 0

    def flush() -> None:
        nonlocal start, rows
        if rows:
            array = numpy.concatenate(block, axis=1)
            selection = slice(start, start + rows)
            if wanted.layers == "all":
                dataset[:, selection] = array
            else:
                dataset[selection] = array[0]
        start, rows = start + rows, 0
        block.clear()

    row_bytes = shape[0] * shape[2] * dataset.dtype.itemsize
    for layers in vectors:
        block.append(layers)
        rows += layers.shape[1]
        if rows * row_bytes >= BLOCK_BYTES:
            flush()
    flush()
    file["offsets"] = numpy.concatenate([[0], numpy.cumsum(journal.lengths())]).astype("int64")
    if not wanted.forget_sentences:
        texts = file.create_dataset("sentences", (journal.num_sentences,), dtype=TEXT)
        for index, text in _blocks(journal.sentences(), 4096):
            texts[index : index + len(text)] = text


def _blocks(texts: Iterable[str], size: int) -> Iterator[tuple[int, list[str]]]:
    block: list[str] = []
    index = 0
    for text in texts:
        # HDF5 strings end at NUL.
        block.append(json.loads(text).replace("\0", UNSAFE_IN_KEYS["\0"]))
        if len(block) == size:
            yield index, block
            index, block = index + size, []
    if block:
        yield index, block


def _compression(shape: tuple[int, ...], itemsize: int) -> dict[str, Any]:
    """HDF5 compresses piece by piece; empty arrays have none."""
    if 0 in shape:
        return {}
    rows = max(1, min(shape[-2], PIECE_BYTES // (shape[-1] * itemsize)))
    pieces = (1,) * (len(shape) - 2) + (rows, shape[-1])
    return {"chunks": pieces, "compression": "gzip", "shuffle": True}
