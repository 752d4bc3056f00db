"""Write the HDF5 file of an extraction: one dataset per sentence, or one ragged array."""

import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy

from elmo_plugin.bilm.extraction.parts import Parts

SENTENCE_TO_INDEX = "sentence_to_index"
ATTRIBUTE = "elmo_plugin"
TEXT = h5py.string_dtype("utf-8")
# Bytes of vectors per write, number of sentences per write, and bytes of an HDF5 chunk.
BLOCK_BYTES = 1 << 22
SENTENCES_AT_ONCE = 4096
CHUNK_BYTES = 1 << 18

# In HDF5 names, `/` leads into a group, `.` is the group itself, and NUL ends the name.
UNSAFE_IN_KEYS = {"/": "\u2215", "\0": "\u2400"}


def sentence_key(sentence: str, occurrence: int = 1) -> str:
    """
    Return the name of a sentence's dataset, as used with the option `use_sentence_keys`.

    # Parameters

    sentence : `str`
        A line of the input.
    occurrence : `int`, optional (default = `1`)
        1 for the first line with this text, 2 for the second, and so on.

    # Returns

    `str`
        The sentence, with `/` replaced by U+2215 (DIVISION SLASH) and NUL by U+2400. The sentence
        `.` becomes U+2024. Names of repeated and of blank lines end with a newline and
        `occurrence`.
    """
    key = sentence.strip()
    for character, replacement in UNSAFE_IN_KEYS.items():
        key = key.replace(character, replacement)
    key = "\u2024" if key == "." else key
    return key if occurrence == 1 and key else f"{key}\n{occurrence}"


def write_file(path: Path, parts: Parts, about: dict[str, Any]) -> None:
    """
    Write the HDF5 file of an extraction from its parts. Its attribute `elmo_plugin` is `about`, the
    settings and a hash of the text.
    """
    # `track_order` lists datasets in the order of the input, instead of "0", "1", "10", ...
    with h5py.File(path, "w", track_order=True) as file:
        file.attrs[ATTRIBUTE] = json.dumps(about)
        if parts.wanted.layout == "ragged":
            _write_ragged(file, parts)
        else:
            _write_sentences(file, parts)


def read_attribute(path: Path) -> dict[str, Any] | None:
    """
    Return the attribute `elmo_plugin` of an HDF5 file from `write_file`, or `None` for another
    file.
    """
    try:
        with h5py.File(path, "r") as file:
            return json.loads(file.attrs[ATTRIBUTE])
    except (OSError, KeyError, ValueError, TypeError):
        return None


def _write_sentences(file: h5py.File, parts: Parts) -> None:
    wanted = parts.wanted
    keys = _sentence_keys(parts) if wanted.use_sentence_keys else map(str, itertools.count())
    for layers, key in zip(parts.vectors(), keys):
        array = layers if wanted.layers == "all" else layers[0]
        compression = _compression(array.shape, array.itemsize) if wanted.compress else {}
        file.create_dataset(key, data=array, **compression)
    if not wanted.forget_sentences and not wanted.use_sentence_keys:
        # A repeated line becomes a duplicate JSON key, for which JSON parsers keep the last value.
        entries = (f'{text}: "{index}"' for index, text in enumerate(parts.sentences()))
        dataset = file.create_dataset(SENTENCE_TO_INDEX, (1,), dtype=TEXT)
        dataset[0] = "{" + ", ".join(entries) + "}"


def _sentence_keys(parts: Parts) -> Iterator[str]:
    seen: dict[bytes, int] = {}
    for text in parts.sentences():
        key = sentence_key(json.loads(text), 2)[:-2]
        digest = hashlib.blake2b(key.encode(), digest_size=12).digest()
        seen[digest] = seen.get(digest, 0) + 1
        yield sentence_key(key, seen[digest])


def _write_ragged(file: h5py.File, parts: Parts) -> None:
    wanted, lengths = parts.wanted, parts.lengths()
    shape = (parts.num_layers, int(lengths.sum()), parts.dim)
    whole = shape if wanted.layers == "all" else shape[1:]
    compression = _compression(whole, numpy.dtype(wanted.dtype).itemsize) if wanted.compress else {}
    dataset = file.create_dataset("embeddings", whole, dtype=wanted.dtype, **compression)
    start = 0
    for block in _blocks(parts):
        stop = start + block.shape[1]
        if wanted.layers == "all":
            dataset[:, start:stop] = block
        else:
            dataset[start:stop] = block[0]
        start = stop
    file["offsets"] = numpy.concatenate([[0], numpy.cumsum(lengths)]).astype("int64")
    if not wanted.forget_sentences:
        texts = file.create_dataset("sentences", (len(lengths),), dtype=TEXT)
        # A NUL would end the string in HDF5, so replace it.
        nul = UNSAFE_IN_KEYS["\0"]
        sentences = (json.loads(text).replace("\0", nul) for text in parts.sentences())
        for start in range(0, len(lengths), SENTENCES_AT_ONCE):
            block_of_texts = list(itertools.islice(sentences, SENTENCES_AT_ONCE))
            texts[start : start + len(block_of_texts)] = block_of_texts


def _blocks(parts: Parts) -> Iterator[numpy.ndarray]:
    """Yield the vectors of many sentences at a time, about `BLOCK_BYTES`."""
    block: list[numpy.ndarray] = []
    size = 0
    for layers in parts.vectors():
        block.append(layers)
        size += layers.nbytes
        if size >= BLOCK_BYTES:
            yield numpy.concatenate(block, axis=1)
            block, size = [], 0
    if size:
        yield numpy.concatenate(block, axis=1)


def _compression(shape: tuple[int, ...], itemsize: int) -> dict[str, Any]:
    """
    Return the keyword arguments of `create_dataset` for compression. For an empty dataset, which
    HDF5 cannot compress, the dict is empty.
    """
    if 0 in shape:
        return {}
    rows = max(1, min(shape[-2], CHUNK_BYTES // (shape[-1] * itemsize)))
    chunks = (1,) * (len(shape) - 2) + (rows, shape[-1])
    return {"chunks": chunks, "compression": "gzip", "shuffle": True}
