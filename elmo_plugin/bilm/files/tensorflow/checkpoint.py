"""
TensorFlow's checkpoints of format V2, without TensorFlow: `X.index`, a sorted table of what each
variable is and where it stands, and `X.data-00000-of-0000N`, the numbers themselves
(tensorflow/core/protobuf/tensor_bundle.proto and util/tensor_bundle/tensor_bundle.h).
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy

from elmo_plugin.bilm.files.tensorflow.crc32c import crc32c
from elmo_plugin.bilm.files.tensorflow.table import MAGIC, read_table, unmasked
from elmo_plugin.bilm.files.tensorflow.varint import varint

# tensorflow/core/framework/types.proto
DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 6: "i1", 9: "<i8", 10: "?", 19: "<f2"}
# Checkpoints have one index, of some 100 bytes a variable.
MOST_INDEX_BYTES = 1 << 28


class Variable(NamedTuple):
    """
    `dtype`: TensorFlow's number. `shape`: its sizes. `shard`, `offset`, `size`: which data file,
    and which of its bytes. `checksum`: the masked CRC-32C of these.
    """

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    is_sliced: bool


class TensorFlowCheckpoint:
    """
    A checkpoint's variables; the index is read and checked at once, numbers when they are asked
    for.

    # Parameters

    prefix : `str | Path`
        The path without `.index`: `folder/model.ckpt-1250`.

    # Raises

    `FileNotFoundError`
        If there is no `.index`.
    `ValueError`
        If it is damaged, or not an index of this format.
    """

    def __init__(self, prefix: str | Path) -> None:
        self.prefix = Path(prefix)
        path = Path(f"{prefix}.index")
        if not path.is_file():
            raise FileNotFoundError(_without_index(self.prefix))
        if path.stat().st_size > MOST_INDEX_BYTES:
            raise ValueError(f"{path} has more than {MOST_INDEX_BYTES} bytes, expected an index")
        try:
            table = dict(read_table(path.read_bytes()))
            self.num_shards = _num_shards(table.pop(b"", None))
            self.variables = {
                name.decode("utf-8"): _variable(entry) for name, entry in table.items()
            }
        except ValueError as error:
            raise ValueError(
                f"{path} is not a whole index of a TensorFlow checkpoint: {error}"
            ) from error

    def check(self, name: str) -> tuple[Variable, Path]:
        """
        Whether a variable can be read, before memory is taken for it.

        # Parameters

        name : `str`
            One of `variables`.

        # Returns

        `tuple[Variable, Path]`
            What it is, and the data file that holds it.

        # Raises

        `ValueError`, `FileNotFoundError`
            As `read`, but for the checksum.
        """
        if name not in self.variables:
            raise ValueError(f"{self.prefix} has no variable {name}")
        found = self.variables[name]
        if found.dtype not in DTYPES or found.is_sliced:
            what = "was saved in slices" if found.is_sliced else f"has type {found.dtype}"
            raise ValueError(f"{self.prefix}: {name} {what}, expected a whole tensor of numbers")
        dtype = numpy.dtype(DTYPES[found.dtype])
        if found.size != math.prod(found.shape) * dtype.itemsize:
            raise ValueError(
                f"{self.prefix}: {name} has {found.size} bytes, expected those of shape "
                f"{found.shape}"
            )
        path = Path(f"{self.prefix}.data-{found.shard:05}-of-{self.num_shards:05}")
        if not path.is_file():
            raise FileNotFoundError(f"there is no {path}, which the index names")
        with path.open("rb") as file:
            if file.seek(0, 2) < found.offset + found.size:
                raise ValueError(
                    f"{path} ends at byte {file.tell()}, expected {name} up to byte "
                    f"{found.offset + found.size}"
                )
        return found, path

    def read(self, name: str) -> numpy.ndarray:
        """
        # Parameters

        name : `str`
            One of `variables`.

        # Returns

        `numpy.ndarray`
            Its values.

        # Raises

        `ValueError`
            If there is no such variable, it is not a whole tensor of numbers, or its bytes are
            others than were written.
        `FileNotFoundError`
            If its data file is not there.
        """
        found, path = self.check(name)
        with path.open("rb") as file:
            file.seek(found.offset)
            values = numpy.fromfile(file, dtype=numpy.uint8, count=found.size)
        if crc32c(values) != unmasked(found.checksum):
            raise ValueError(
                f"{path} is damaged: the checksum of {name} ({found.size} bytes from byte "
                f"{found.offset} on) is wrong"
            )
        return values.view(DTYPES[found.dtype]).reshape(found.shape)


def latest_checkpoint(directory: str | Path) -> Path:
    """
    # Parameters

    directory : `str | Path`
        Where TensorFlow's `Saver` wrote.

    # Returns

    `Path`
        The prefix that its file `checkpoint` names, in this directory; without such a file, that of
        the highest step.

    # Raises

    `FileNotFoundError`
        If there is no checkpoint, or not the one that is named.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise FileNotFoundError(f"there is no directory {directory}, expected one of checkpoints")
    state = directory / "checkpoint"
    if state.is_file():
        text = state.read_text("utf-8", "replace")
        named = re.search(r'^model_checkpoint_path:\s*"(.*)"\s*$', text, re.MULTILINE)
        if named is None:
            raise ValueError(f'{state} has no line model_checkpoint_path: "...", expected one')
        # Where it was written may be far from here.
        return directory / re.split(r"[/\\]", named[1])[-1]
    found = [path.with_suffix("") for path in directory.glob("*.index")]
    if not found:
        held = ", ".join(sorted(path.name for path in directory.iterdir())[:5]) or "nothing"
        raise FileNotFoundError(
            f"{directory} holds {held}, expected a TensorFlow checkpoint: NAME.index and "
            "NAME.data-00000-of-00001"
        )
    return max(found, key=lambda path: (_step(path), path.name))


def _step(path: Path) -> int:
    number = re.search(r"-(\d+)$", path.name)
    return int(number[1]) if number else -1


def _without_index(prefix: Path) -> str:
    message = f"there is no {prefix}.index"
    if prefix.is_file():
        with prefix.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - 8))
            if int.from_bytes(file.read(8), "little") == MAGIC:
                return (
                    f"{prefix} is a checkpoint of TensorFlow's format V1 (one file), expected V2, "
                    "which TensorFlow writes since 0.12: NAME.index and NAME.data-..."
                )
    others = sorted(path.stem for path in prefix.parent.glob("*.index"))
    return f"{message}; {prefix.parent} has {', '.join(others[:10]) or 'no checkpoints'}"


def _num_shards(header: bytes | None) -> int:
    if header is None:
        raise ValueError("it has no header")
    fields = dict(_fields(header))
    if fields.get(2, 0):
        raise ValueError("its numbers are big-endian, expected little-endian")
    return _number(fields.get(1, 1))


def _variable(entry: bytes) -> Variable:
    """`BundleEntryProto`."""
    fields = dict(_fields(entry))
    shape = tuple(
        _number(dict(_fields(dim)).get(1, 0))
        for number, dim in _fields(fields.get(2, b""))
        if number == 2 and isinstance(dim, bytes)
    )
    dtype, shard, offset, size, checksum = (_number(fields.get(n, 0)) for n in (1, 3, 4, 5, 6))
    return Variable(dtype, shape, shard, offset, size, checksum, 7 in fields)


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("an entry of another form")
    return value


def _fields(message: int | bytes) -> Iterator[tuple[int, int | bytes]]:
    """A protocol buffer's field numbers and values."""
    if isinstance(message, int):
        raise ValueError("an entry of another form")
    position = 0
    while position < len(message):
        key, position = varint(message, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            value, position = varint(message, position)
            yield number, value
            continue
        width = {1: 8, 5: 4}.get(wire_type)
        if wire_type == 2:
            width, position = varint(message, position)
        if width is None or position + width > len(message):
            raise ValueError("an entry of another form")
        content = message[position : position + width]
        yield number, content if wire_type == 2 else int.from_bytes(content, "little")
        position += width
