"""
A shard as a Parquet file, a line a row: `file`, `line`, `text`, `tokens`, and `vectors`, one flat
list, whose shape stands in the schema's metadata under `elmo_plugin`.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from elmo_plugin.bilm.corpus.extras import needed
from elmo_plugin.bilm.corpus.plan import COMPLETE, PLAN, Plan, part_name
from elmo_plugin.bilm.corpus.shards import Line

ABOUT = b"elmo_plugin"
# Numbers in a list at most: Arrow counts them in 32 bits.
MOST_NUMBERS = 2**31 - 1


class CorpusLine(NamedTuple):
    """
    `line`: its number in `file`, from 1. `array`: shape `(num_tokens, embedding_dim)`, for all
    layers `(mixture_size, num_tokens, embedding_dim)`.
    """

    file: str
    line: int
    text: str
    array: numpy.ndarray


def pyarrow_modules() -> tuple[Any, Any]:
    """`pyarrow` and `pyarrow.parquet`."""
    return needed("pyarrow", "parquet"), needed("pyarrow.parquet", "parquet")


def about_part(plan: Plan, number: int) -> dict[str, Any]:
    """What a part says of itself: nothing of when, where or by whom it was made."""
    return {
        "shape": plan.shape,
        "layers": plan.settings.layers,
        "state": plan.settings.state,
        "bilm": plan.bilm.fingerprint,
        "plan": plan.digest,
        "part": number,
    }


class PartWriter:
    """
    # Parameters

    path : `Path`
        The file to write.
    plan : `Plan`
        What it is a part of.
    number : `int`
        Which.
    """

    def __init__(self, path: Path, plan: Plan, number: int) -> None:
        arrow, parquet = pyarrow_modules()
        self._dtype = plan.settings.dtype
        numbers = arrow.from_numpy_dtype(numpy.dtype(self._dtype))
        self._schema = arrow.schema(
            [
                ("file", arrow.string()),
                ("line", arrow.int64()),
                ("text", arrow.string()),
                ("tokens", arrow.int32()),
                ("vectors", arrow.list_(arrow.field("element", numbers))),
            ],
            metadata={ABOUT: json.dumps(about_part(plan, number))},
        )
        self._writer = parquet.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            use_dictionary=["file"],
            write_statistics=["file", "line", "tokens"],
            # Exponents beside exponents are what can be compressed in floating point numbers.
            use_byte_stream_split=["vectors.list.element"],
            write_page_checksum=True,
        )

    def write(self, lines: Sequence[Line], offsets: numpy.ndarray, numbers: numpy.ndarray) -> None:
        """
        # Parameters

        lines : `Sequence[Line]`
            Rows, a group of their own.
        offsets : `numpy.ndarray`
            Int64, shape `(number of lines + 1,)`.
        numbers : `numpy.ndarray`
            Line `i` has `numbers[offsets[i]:offsets[i + 1]]`.
        """
        arrow, _ = pyarrow_modules()
        of_lines = (
            [line.file for line in lines],
            [line.number for line in lines],
            [line.sentence.text for line in lines],
            [len(line.sentence.tokens) for line in lines],
        )
        arrays = [arrow.array(one, field.type) for one, field in zip(of_lines, self._schema)]
        ends = arrow.array(offsets, arrow.int32())
        list_type = self._schema.field("vectors").type
        arrays.append(arrow.ListArray.from_arrays(ends, arrow.array(numbers), list_type))
        table = arrow.Table.from_arrays(arrays, schema=self._schema)
        self._writer.write_table(table, row_group_size=max(1, len(lines)))

    def close(self) -> None:
        """Writes what a file ends with."""
        self._writer.close()


def is_whole(path: Path, plan: Plan, number: int) -> bool:
    """Whether it is the file of this shard. Only its end is read."""
    _, parquet = pyarrow_modules()
    try:
        found = parquet.read_metadata(path)
        about = json.loads(found.metadata[ABOUT])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    lines = plan.shards[number].lines
    return found.num_rows == lines and about == about_part(plan, number)


def read_corpus(folder: str | Path) -> Iterator[CorpusLine]:
    """
    Memory is bounded by a group of rows, some 64 MB.

    # Parameters

    folder : `str | Path`
        What `embed_corpus` made.

    # Returns

    `Iterator[CorpusLine]`
        Every line, in the input's order.

    # Raises

    `ValueError`
        If it is not complete.
    `OSError`
        If a part is damaged, or not there; the text names it.
    """
    folder = Path(folder)
    if not (folder / COMPLETE).is_file():
        has_plan = (folder / PLAN).is_file()
        raise ValueError(
            f"{folder} is not complete, expected {COMPLETE}; "
            + ("embed-corpus goes on with it" if has_plan else f"it has no {PLAN} either")
        )
    count = len(json.loads((folder / COMPLETE).read_text("utf-8"))["parts"])
    return _lines([folder / part_name(number) for number in range(count)])


def _lines(paths: Sequence[Path]) -> Iterator[CorpusLine]:
    for path in paths:
        yield from _lines_of(path)


def _lines_of(path: Path) -> Iterator[CorpusLine]:
    arrow, parquet = pyarrow_modules()
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as part:
            shape = json.loads(part.schema_arrow.metadata[ABOUT])["shape"]
            for group in range(part.num_row_groups):
                table = part.read_row_group(group).combine_chunks()
                vectors = table["vectors"].chunk(0)
                offsets, numbers = vectors.offsets.to_numpy(), vectors.values.to_numpy()
                columns = (table[name].to_pylist() for name in ("file", "line", "text"))
                for row, (file, line, text) in enumerate(zip(*columns)):
                    # A copy: a view would keep the whole group.
                    array = numbers[offsets[row] : offsets[row + 1]].reshape(shape)
                    yield CorpusLine(file, line, text, array.copy())
    except FileNotFoundError:  # it has the name
        raise
    except (arrow.ArrowException, OSError) as error:
        raise OSError(f"{path}: {error}") from error
