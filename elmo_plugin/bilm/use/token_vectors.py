"""Export of a vocabulary's context-independent vectors, as HDF5 or as text like GloVe's."""

import gzip
import io
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import h5py
import numpy
import torch
from tqdm import tqdm

from elmo_plugin.bilm.files.atomic_write import atomic_write
from elmo_plugin.bilm.files.stderr import stderr
from elmo_plugin.bilm.files.text import quoted, read_lines
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.characters import BEGIN_OF_SENTENCE, END_OF_SENTENCE

HDF5_SUFFIXES = (".hdf5", ".h5")
# First line of AllenNLP's vocabulary files. The padding token (id 0) has no line.
ALLENNLP_UNKNOWN = "@@UNKNOWN@@"
BATCH_SIZE = 1024


def read_vocabulary(path: str | Path) -> list[str]:
    """
    Read a vocabulary file of AllenNLP or bilm-tf: UTF-8, one token per line.

    Raise a `ValueError` if the file is empty, and one with the line number if a line is empty,
    repeated or not UTF-8.
    """
    seen: dict[str, int] = {}
    for number, line in read_lines(path):
        token = line.removesuffix("\n").removesuffix("\r")
        if not token:
            raise ValueError(f"{path}, line {number} is empty, expected a token")
        if token in seen:
            raise ValueError(
                f"{path}, line {number}: {quoted(token)} is on line {seen[token]} too, expected it "
                "once"
            )
        seen[token] = number
    if not seen:
        raise ValueError(f"{path} is empty, expected one token a line")
    return list(seen)


def with_boundaries(
    tokens: Sequence[str], boundaries: Sequence[str] = (BEGIN_OF_SENTENCE, END_OF_SENTENCE)
) -> list[str]:
    """
    Return the vocabulary with both `boundaries`, each once: after the first token, or first.

    As in AllenNLP 0.9's script, they follow the first token, which is the unknown token.
    If `tokens` begins with a boundary, as bilm-tf's files do, both come first.
    """
    rest = [token for token in tokens if token not in boundaries]
    first = rest[: tokens[0] not in boundaries]
    return [*first, *boundaries, *rest[len(first) :]]


def write_token_vectors(
    bilm: BiLm, tokens: Sequence[str], path: str | Path, header: bool = False
) -> None:
    """
    Compute the token layer's vector of each token in a vocabulary, and write the vectors to a file.

    A path that ends with `.hdf5` or `.h5` gives HDF5 with the dataset `embedding`, shape
    `(len(tokens), projection_dim)`, as in bilm-tf. If the first token is AllenNLP's `@@UNKNOWN@@`,
    a row of zeros for the padding token is put before it, as AllenNLP's `embedding` expects. Any
    other path gives text as in GloVe, with a token and its numbers on each line, compressed if the
    path ends with `.gz`. With `header`, the text begins with the number of tokens and the number of
    dimensions, as in word2vec.

    Raise a `ValueError` if `tokens` is empty, or a token for a text file contains white space.
    """
    path = Path(path)
    if not tokens:
        raise ValueError(f"{path}: the vocabulary has 0 tokens, expected 1 or more")
    with atomic_write(path) as temporary:
        if path.suffix in HDF5_SUFFIXES:
            _write_hdf5(bilm, tokens, temporary)
        else:
            _write_text(bilm, tokens, temporary, path.suffix == ".gz", header)


def _write_hdf5(bilm: BiLm, tokens: Sequence[str], path: Path) -> None:
    first = int(tokens[0] == ALLENNLP_UNKNOWN)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset(
            "embedding", (first + len(tokens), bilm.options.projection_dim), dtype="float32"
        )
        for start, _, vectors in _batches(bilm, tokens):
            dataset[first + start : first + start + len(vectors)] = vectors


def _write_text(
    bilm: BiLm, tokens: Sequence[str], path: Path, compress: bool, header: bool
) -> None:
    for number, token in enumerate(tokens, start=1):
        if token.split() != [token]:
            raise ValueError(
                f"token {number}, {token!r}, holds white space, which a text file of vectors "
                "cannot have; expected an output that ends with .hdf5"
            )
    # The gzip header has no name and no time, so that equal vectors give equal files.
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if compress else nullcontext(raw) as stream,
        io.TextIOWrapper(stream, encoding="utf-8", newline="\n") as file,
    ):
        if header:
            file.write(f"{len(tokens)} {bilm.options.projection_dim}\n")
        for _, batch, vectors in _batches(bilm, tokens):
            for token, vector in zip(batch, vectors):
                # `astype(str)` writes as many digits as float32 needs.
                file.write(f"{token} {' '.join(vector.astype(str))}\n")


def _batches(
    bilm: BiLm, tokens: Sequence[str]
) -> Iterator[tuple[int, Sequence[str], numpy.ndarray]]:
    with tqdm(total=len(tokens), unit=" tokens", mininterval=0.5, file=stderr()) as bar:
        for start in range(0, len(tokens), BATCH_SIZE):
            batch = tokens[start : start + BATCH_SIZE]
            with torch.no_grad():
                yield start, batch, bilm.token_vectors(batch).float().cpu().numpy()
            bar.update(len(batch))
