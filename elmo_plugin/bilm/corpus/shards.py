"""Divide the input files into shards: byte ranges that end at the end of a line."""

import glob
import hashlib
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from elmo_plugin.bilm.extraction.batches import Sentence, read_sentences
from elmo_plugin.bilm.files.text import decode_lines, is_unicode, open_bytes, quoted


class Range(NamedTuple):
    """
    Byte range `start` to `stop` of the input file with index `file`, decompressed. `first_line` is
    the line number, from 1, of its first line.
    """

    file: int
    start: int
    stop: int
    first_line: int


class Shard(NamedTuple):
    """Part of the input: byte ranges, numbers of lines and tokens, and a hash of all bytes."""

    ranges: list[Range]
    lines: int
    tokens: int
    digest: str


def find_files(inputs: Iterable[str | Path], root: Path) -> list[str]:
    """
    List the files that names and glob patterns match, each once, under its first name; matches of a
    pattern such as `text/**/*.txt` are sorted. Relative names are resolved against `root`.

    A name or pattern that matches no file causes a `FileNotFoundError`; a folder, a pipe, or a name
    that is not UTF-8 a `ValueError`.
    """
    found: dict[Path, str] = {}
    for name in map(str, inputs):
        files = [name]
        if not (root / name).exists():
            matches = sorted(glob.glob(name, root_dir=root, recursive=True))  # noqa: PTH207 (root)
            files = [file for file in matches if (root / file).is_file()]
        if not files:
            raise FileNotFoundError(
                f"there is no file {name}, expected text files, or patterns in quotes"
            )
        for file in files:
            found.setdefault((root / file).resolve(), file)
    for file in found.values():
        if not (root / file).is_file():
            raise ValueError(f"{file} is a folder or a device, expected a file of text")
        if not is_unicode(file):
            raise ValueError(f"the file's name is {quoted(file)}, expected one in UTF-8")
    return list(found.values())


def cut_shards(
    files: Sequence[str],
    root: Path,
    shard_tokens: int,
    replace_bad_utf8: bool = False,
    most_tokens: int | None = None,
) -> Iterator[Shard]:
    """
    Read the files from `find_files` once, line by line, and yield the shards: each ends once it has
    `shard_tokens` tokens, for which an empty line counts as one.

    A line with more than `most_tokens` tokens, or one that is not UTF-8 (unless
    `replace_bad_utf8`), causes a `ValueError` with file and line.
    """
    ranges: list[Range] = []
    size = num_lines = num_tokens = 0
    digest = hashlib.blake2b(digest_size=16)
    for file, name in enumerate(files):
        with open_bytes(root / name) as stream:
            raw, again = itertools.tee(stream)
            # A file in which a lone \r ends lines is one piece, which comes with its first line.
            pieces, stop = itertools.chain(again, itertools.repeat(b"")), 0
            for line, piece in zip(_decoded(raw, name, replace_bad_utf8), pieces):
                count = len(line.tokens)
                if most_tokens is not None and count > most_tokens:
                    raise ValueError(
                        f"{name}:{line.number}: a line of {count} tokens, expected at most "
                        f"{most_tokens}: a list in Parquet holds no more numbers"
                    )
                if piece:
                    if size >= shard_tokens:
                        yield Shard(ranges, num_lines, num_tokens, digest.hexdigest())
                        ranges, digest = [], hashlib.blake2b(digest_size=16)
                        size = num_lines = num_tokens = 0
                    start, stop = stop, stop + len(piece)
                    digest.update(piece)
                    if ranges and ranges[-1].file == file:
                        ranges[-1] = ranges[-1]._replace(stop=stop)
                    else:
                        ranges.append(Range(file, start, stop, line.number))
                size += max(1, count)
                num_lines += 1
                num_tokens += count
    if ranges:
        yield Shard(ranges, num_lines, num_tokens, digest.hexdigest())


def _decoded(raw: Iterable[bytes], name: str, replace_bad_utf8: bool) -> Iterator[Sentence]:
    texts = (text for _, text in decode_lines(raw, name, keep_bad_bytes=True))
    return read_sentences(texts, replace_bad_utf8, name)


def _read(shards: Iterable[Shard], files: Sequence[str], root: Path) -> Iterator[list[bytes]]:
    """Yield the bytes in each shard's ranges; a changed text causes a `ValueError`."""
    opened: int | None = None
    with ExitStack() as stack:
        for shard in shards:
            pieces: list[bytes] = []
            for one in shard.ranges:
                if one.file != opened:  # a new seek in a gzip file would read it again
                    stack.close()
                    stream = stack.enter_context(open_bytes(root / files[one.file]))
                    opened = one.file
                stream.seek(one.start)
                pieces.append(stream.read(one.stop - one.start))
            if hashlib.blake2b(b"".join(pieces), digest_size=16).hexdigest() != shard.digest:
                raise ValueError(
                    f"{describe(shard, files)}: the text has changed since the corpus was planned; "
                    "expected the same text, or --force to start again"
                )
            yield pieces


def read_shard(
    shard: Shard, files: Sequence[str], root: Path, replace_bad_utf8: bool = False
) -> Iterator[Sentence]:
    """Yield a shard's lines; bytes that have changed since the plan cause a `ValueError`."""
    (pieces,) = _read([shard], files, root)
    for one, piece in zip(shard.ranges, pieces):
        lines: Iterator[bytes] = io.BytesIO(piece)
        if one.start == 0:
            yield from _decoded(lines, files[one.file], replace_bad_utf8)
            continue
        # The decoder treats the first line of a file differently (byte order mark, lone \r). This
        # piece does not begin its file, so add an empty first line and drop it afterwards.
        numbered = _decoded(itertools.chain([b"\n"], lines), files[one.file], replace_bad_utf8)
        for line in itertools.islice(numbered, 1, None):
            yield line._replace(number=line.number - 2 + one.first_line)


def check_shards(shards: Iterable[Shard], files: Sequence[str], root: Path) -> None:
    """Raise a `ValueError` for the first shard whose bytes have changed since the plan."""
    for _ in _read(shards, files, root):
        pass


def describe(shard: Shard, files: Sequence[str]) -> str:
    """Describe a shard for a message: its number of lines, and the file and line it starts at."""
    first = shard.ranges[0]
    return f"{shard.lines} lines from {files[first.file]}:{first.first_line} on"
