"""Context-independent vectors of a vocabulary, in the files that embedding readers take."""

import contextlib
import gzip
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import h5py
import numpy
import torch
from tqdm import tqdm

from elmo_plugin.bilm.files.text import is_unicode, quoted, read_lines
from elmo_plugin.bilm.files.whole_file import whole_file
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.characters import BEGIN_OF_SENTENCE, END_OF_SENTENCE

HDF5_SUFFIXES = (".hdf5", ".h5")
# The first line of AllenNLP's vocabulary files; its padding token, row 0, has no line.
ALLENNLP_UNKNOWN = "@@UNKNOWN@@"
BATCH_SIZE = 1024


def read_vocabulary(path: str | Path) -> list[str]:
    """
    # Parameters

    path : `Union[str, Path]`
        UTF-8, one token a line: AllenNLP's `tokens.txt` or bilm-tf's vocabulary.

    # Raises

    `ValueError`
        If a line is empty, comes twice or is not UTF-8, or there is none; the text names the line.
    """
    seen: dict[str, int] = {}
    for number, line in read_lines(path, keep_bad_bytes=True):
        token = line.removesuffix("\n").removesuffix("\r")
        if not is_unicode(token):
            raise ValueError(f"{path}, line {number} is not UTF-8: {quoted(token)}")
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
    `<S>` and `</S>` behind the first token, as AllenNLP 0.9's script puts them; before all where
    that is one of them, as in bilm-tf's vocabulary.
    """
    rest = [token for token in tokens if token not in boundaries]
    first = rest[: tokens[0] not in boundaries]
    return [*first, *boundaries, *rest[len(first) :]]


def write_token_vectors(
    bilm: BiLm, tokens: Sequence[str], path: str | Path, header: bool = False
) -> None:
    """
    Writes the token layer of a vocabulary: `projection_dim` numbers for each token.

    # Parameters

    bilm : `BiLm`
        Any.
    tokens : `Sequence[str]`
        The vocabulary.
    path : `Union[str, Path]`
        `.hdf5` or `.h5`: the dataset `embedding`, shape `(len(tokens), projection_dim)`, as bilm-tf
        writes it; where the first token is AllenNLP's `@@UNKNOWN@@`, a row of zeros for its padding
        token comes before all, as AllenNLP's `embedding` expects it. Any other name: text, a token
        and its numbers a line, as GloVe's; `.gz` for compressed text.
    header : `bool`, optional (default = `False`)
        Whether a text starts with the number of tokens and of dimensions, as word2vec's.

    # Raises

    `ValueError`
        If there is no token, or one holds white space, which a text file cannot have.
    """
    path = Path(path)
    if not tokens:
        raise ValueError(f"{path}: the vocabulary has 0 tokens, expected 1 or more")
    with whole_file(path) as aside:
        if path.suffix in HDF5_SUFFIXES:
            _write_hdf5(bilm, tokens, aside)
        else:
            _write_text(bilm, tokens, aside, path, header)


def _write_hdf5(bilm: BiLm, tokens: Sequence[str], path: Path) -> None:
    first = int(tokens[0] == ALLENNLP_UNKNOWN)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset(
            "embedding", (first + len(tokens), bilm.options.projection_dim), dtype="float32"
        )
        for start, _, vectors in _batches(bilm, tokens):
            dataset[first + start : first + start + len(vectors)] = vectors


def _write_text(bilm: BiLm, tokens: Sequence[str], aside: Path, path: Path, header: bool) -> None:
    for number, token in enumerate(tokens, start=1):
        if token.split() != [token]:
            raise ValueError(
                f"token {number}, {token!r}, holds white space, which a text file of vectors "
                "cannot have; expected an output that ends with .hdf5"
            )
    with _open_text(aside, path.suffix == ".gz") as file:
        if header:
            file.write(f"{len(tokens)} {bilm.options.projection_dim}\n")
        for _, batch, vectors in _batches(bilm, tokens):
            for token, vector in zip(batch, vectors):
                # As many digits as float32 needs.
                file.write(f"{token} {' '.join(vector.astype(str))}\n")


@contextlib.contextmanager
def _open_text(path: Path, compress: bool) -> Iterator[TextIO]:
    if not compress:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        return
    # Without name and time: the same vectors give the same file.
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as file,
    ):
        yield file


def _batches(
    bilm: BiLm, tokens: Sequence[str]
) -> Iterator[tuple[int, Sequence[str], numpy.ndarray]]:
    with tqdm(total=len(tokens), unit=" tokens", mininterval=0.5) as bar:
        for start in range(0, len(tokens), BATCH_SIZE):
            batch = tokens[start : start + BATCH_SIZE]
            with torch.no_grad():
                yield start, batch, bilm.token_vectors(batch).cpu().numpy()
            bar.update(len(batch))
