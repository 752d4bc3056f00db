"""The input, cut into shards: ranges of bytes that end where a line ends."""

import glob
import hashlib
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from elmo_plugin.bilm.extraction.batches import Sentence, read_sentences
from elmo_plugin.bilm.files.text import decode_lines, is_unicode, quoted

BLOCK_BYTES = 1 << 20


class Range(NamedTuple):
    """Of the file of this number the bytes `start` to `stop`; `first_line` counts from 1."""

    file: int
    start: int
    stop: int
    first_line: int


class Shard(NamedTuple):
    """`digest`: of all bytes of the ranges. `tokens`: of all lines."""

    ranges: list[Range]
    lines: int
    tokens: int
    digest: str


class Line(NamedTuple):
    """`number`: in its file, from 1."""

    file: str
    number: int
    sentence: Sentence


def find_files(inputs: Iterable[str | Path], root: Path) -> list[str]:
    """
    # Parameters

    inputs : `Iterable[str | Path]`
        Names of files, or patterns such as `text/**/*.txt`, whose files come in sorted order.
    root : `Path`
        The folder that relative names begin in.

    # Returns

    `list[str]`
        Each file once, by the first of its names.

    # Raises

    `FileNotFoundError`
        If there is no such file.
    `ValueError`
        If it is none, but a folder or a pipe.
    """
    found: dict[Path, str] = {}
    for name in map(str, inputs):
        files = [name]
        if not (root / name).exists():
            matches = sorted(glob.glob(name, root_dir=root, recursive=True))  # noqa: PTH207 (root)
            files = [file for file in matches if (root / file).is_file()]
        if not files:
            raise FileNotFoundError(f"there is no file {name}")
        for file in files:
            found.setdefault((root / file).resolve(), file)
    for file in found.values():
        if not (root / file).is_file():
            raise ValueError(f"{file} is a folder or a device, expected a file of text")
        if not is_unicode(file):
            raise ValueError(f"the file's name is {quoted(file)}, expected one in UTF-8")
    return list(found.values())


def cut(
    files: Sequence[str],
    root: Path,
    shard_tokens: int,
    replace_bad_utf8: bool = False,
    most_tokens: int | None = None,
) -> Iterator[Shard]:
    """
    Reads all files once, a line at a time.

    # Parameters

    files, root
        From `find_files`.
    shard_tokens : `int`
        A shard ends with the line that brings it to so many tokens; a line counts as one at least.
    replace_bad_utf8 : `bool`, optional (default = `False`)
        See `read_sentences`.
    most_tokens : `Optional[int]`, optional (default = `None`)
        Of a line.

    # Returns

    `Iterator[Shard]`

    # Raises

    `ValueError`
        If a line is not UTF-8, or has too many tokens; the text names file and line.
    """
    shard = _Open()
    for file, name in enumerate(files):
        with (root / name).open("rb") as stream:
            raw = _Lines(stream)
            for line in _decoded(raw, name, replace_bad_utf8):
                if most_tokens is not None and len(line.sentence.tokens) > most_tokens:
                    raise ValueError(
                        f"{name}:{line.number}: a line of {len(line.sentence.tokens)} tokens, "
                        f"expected at most {most_tokens}: a list in Parquet holds no more numbers"
                    )
                # Of what a lone carriage return ends, several lines are one piece of bytes.
                if raw.start >= shard.stop_in(file):
                    if shard.size >= shard_tokens:
                        yield shard.closed()
                        shard = _Open()
                    shard.extend(file, raw, line.number)
                shard.add(line.sentence)
    if shard.ranges:
        yield shard.closed()


class _Lines:
    """A file's lines, and where the last one is."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.start = self.stop = 0
        self.line = b""

    def __iter__(self) -> Iterator[bytes]:
        for line in self._file:
            self.line = line
            self.start, self.stop = self.stop, self.stop + len(self.line)
            yield self.line


class _Open:
    """A shard that grows."""

    def __init__(self) -> None:
        self.ranges: list[Range] = []
        self.size = self._lines = self._tokens = 0
        self._digest = new_digest()

    def stop_in(self, file: int) -> int:
        """Where the range ends, if it is of this file."""
        same = self.ranges and self.ranges[-1].file == file
        return self.ranges[-1].stop if same else 0

    def extend(self, file: int, raw: _Lines, number: int) -> None:
        """With the bytes of a line."""
        self._digest.update(raw.line)
        if self.ranges and self.ranges[-1].file == file:
            self.ranges[-1] = self.ranges[-1]._replace(stop=raw.stop)
        else:
            self.ranges.append(Range(file, raw.start, raw.stop, number))

    def add(self, sentence: Sentence) -> None:
        """Counts it."""
        self.size += max(1, len(sentence.tokens))
        self._lines += 1
        self._tokens += len(sentence.tokens)

    def closed(self) -> Shard:
        """As it is."""
        return Shard(self.ranges, self._lines, self._tokens, self._digest.hexdigest())


def new_digest() -> Any:
    """Cryptographic."""
    return hashlib.blake2b(digest_size=16)


def _decoded(raw: Iterable[bytes], name: str, replace_bad_utf8: bool) -> Iterator[Line]:
    texts = (text for _, text in decode_lines(raw, name, keep_bad_bytes=True))
    sentences = read_sentences(texts, replace_bad_utf8, name)
    return (Line(name, number, sentence) for number, sentence in enumerate(sentences, start=1))


def read_shard(
    shard: Shard, files: Sequence[str], root: Path, replace_bad_utf8: bool = False
) -> Iterator[Line]:
    """
    The lines that `cut` counted into it, in their order.

    # Raises

    `ValueError`
        If the bytes are others than those that were cut.
    """
    pieces = [_bytes(root / files[one.file], one) for one in shard.ranges]
    digest = new_digest()
    for piece in pieces:
        digest.update(piece)
    _check(digest, shard, files)
    for one, piece in zip(shard.ranges, pieces):
        lines: Iterator[bytes] = io.BytesIO(piece)
        if one.start == 0:
            yield from _decoded(lines, files[one.file], replace_bad_utf8)
            continue
        # What is said of a file's first line, a byte order mark for one, is not said of this one.
        numbered = _decoded(itertools.chain([b"\n"], lines), files[one.file], replace_bad_utf8)
        for line in itertools.islice(numbered, 1, None):
            yield line._replace(number=line.number - 2 + one.first_line)


def check_shard(shard: Shard, files: Sequence[str], root: Path) -> None:
    """Raises the `ValueError` of `read_shard`; reads without decoding."""
    digest = new_digest()
    for one in shard.ranges:
        with (root / files[one.file]).open("rb") as file:
            file.seek(one.start)
            left = one.stop - one.start
            while left and (block := file.read(min(left, BLOCK_BYTES))):
                digest.update(block)
                left -= len(block)
    _check(digest, shard, files)


def describe(shard: Shard, files: Sequence[str]) -> str:
    """Where it begins, for messages."""
    first = shard.ranges[0]
    return f"{shard.lines} lines from {files[first.file]}:{first.first_line} on"


def _bytes(path: Path, one: Range) -> bytes:
    with path.open("rb") as file:
        file.seek(one.start)
        return file.read(one.stop - one.start)


def _check(digest: Any, shard: Shard, files: Sequence[str]) -> None:
    if digest.hexdigest() != shard.digest:
        raise ValueError(
            f"{describe(shard, files)}: the text is another than when the corpus was planned; "
            "expected the same, or --force to start again"
        )
