"""
Write and read a shard's Parquet file, which has one row per line of text.

The columns are `file`, `line`, `text`, `tokens` (the number of tokens), and `vectors`, a flat list
of numbers. The metadata key `elmo_plugin` of the schema holds JSON with the shape of `vectors`.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from elmo_plugin.bilm.corpus.plan import COMPLETE, PLAN, Plan, part_name
from elmo_plugin.bilm.extraction.batches import Sentence
from elmo_plugin.bilm.files.optional_packages import import_optional
from elmo_plugin.bilm.files.plain_tensors import UNREADABLE
from elmo_plugin.bilm.files.text import quoted

METADATA_KEY = b"elmo_plugin"
# Largest length of an Arrow list, whose offsets are signed 32-bit integers.
MOST_NUMBERS = 2**31 - 1
RowGroup = tuple[Sequence[Sentence], numpy.ndarray, numpy.ndarray]


class CorpusLine(NamedTuple):
    """
    One line of an embedded corpus, with its vectors.

    `line` is the line's number in `file`, from 1. `array` has shape `(num_tokens, embedding_dim)`,
    or `(mixture_size, num_tokens, embedding_dim)` if all layers are stored.
    """

    file: str
    line: int
    text: str
    array: numpy.ndarray


def pyarrow_modules() -> tuple[Any, Any]:
    """Import `pyarrow` and `pyarrow.parquet`, or raise a `ModuleNotFoundError` with advice."""
    return import_optional("pyarrow"), import_optional("pyarrow.parquet")


def part_metadata(plan: Plan, number: int) -> dict[str, Any]:
    """
    Return the metadata of a shard's Parquet file. It has no time, host name or worker number, so
    that identical runs write identical files.
    """
    return {
        "shape": plan.shape,
        "layers": plan.settings.layers,
        "state": plan.settings.state,
        "bilm": plan.bilm.fingerprint,
        "plan": plan.fingerprint,
        "part": number,
    }


def write_part(path: Path, plan: Plan, number: int, groups: Iterable[RowGroup]) -> None:
    """
    Write the Parquet file of shard `number` of a plan.

    A row group is lines, `offsets` (int64, shape `(number of lines + 1,)`) and the vectors of all
    lines, flattened, as `numbers`: line `i` has `numbers[offsets[i]:offsets[i + 1]]`.
    """
    arrow, parquet = pyarrow_modules()
    list_type = arrow.list_(
        arrow.field("element", arrow.from_numpy_dtype(numpy.dtype(plan.settings.dtype)))
    )
    schema = arrow.schema(
        [
            ("file", arrow.string()),
            ("line", arrow.int64()),
            ("text", arrow.string()),
            ("tokens", arrow.int32()),
            ("vectors", list_type),
        ],
        metadata={METADATA_KEY: json.dumps(part_metadata(plan, number))},
    )
    with parquet.ParquetWriter(
        path,
        schema,
        compression="zstd",
        use_dictionary=["file"],
        write_statistics=["file", "line", "tokens"],
        # Floats compress well only if the bytes of their exponents are stored together.
        use_byte_stream_split=["vectors.list.element"],
        write_page_checksum=True,
    ) as writer:
        for lines, offsets, numbers in groups:
            columns = (
                [line.file for line in lines],
                [line.number for line in lines],
                [line.text for line in lines],
                [len(line.tokens) for line in lines],
            )
            arrays = [arrow.array(one, field.type) for one, field in zip(columns, schema)]
            ends = arrow.array(offsets, arrow.int32())
            arrays.append(arrow.ListArray.from_arrays(ends, arrow.array(numbers), list_type))
            table = arrow.Table.from_arrays(arrays, schema=schema)
            writer.write_table(table, row_group_size=max(1, len(lines)))


def is_complete(path: Path, plan: Plan, number: int) -> bool:
    """Return whether a file is a shard's complete Parquet file; only the footer is read."""
    arrow, parquet = pyarrow_modules()
    try:
        footer = parquet.read_metadata(path)
        metadata = json.loads(footer.metadata[METADATA_KEY])
    except (OSError, ValueError, KeyError, TypeError, arrow.ArrowException):
        return False
    return footer.num_rows == plan.shards[number].lines and metadata == part_metadata(plan, number)


def read_corpus(folder: str | Path) -> Iterator[CorpusLine]:
    """
    Yield every line of an embedded corpus with its vectors, in the order of the input.

    One row group at a time is in memory: up to 64 MB of vectors, or one line that has more.

    # Parameters

    folder : `str | Path`
        Output folder of `embed_corpus`.

    # Raises

    `ValueError`
        If the corpus is not complete, or a Parquet file belongs to another shard or corpus.
    `OSError`
        If a Parquet file is damaged or missing; the message names it.
    """
    folder = Path(folder)
    path = folder / COMPLETE
    if not path.is_file():
        has_plan = (folder / PLAN).is_file()
        raise ValueError(
            f"{folder} is not complete, expected {COMPLETE}; "
            + ("run embed-corpus again" if has_plan else f"it has no {PLAN} either")
        )
    try:
        complete = json.loads(path.read_text("utf-8"))
        plan, num_lines = complete["plan"], [part["lines"] for part in complete["parts"]]
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); run embed-corpus again") from error
    return itertools.chain.from_iterable(
        _lines_of_part(folder / part_name(number), (plan, number, expected))
        for number, expected in enumerate(num_lines)
    )


def _lines_of_part(path: Path, expected: tuple[str, int, int]) -> Iterator[CorpusLine]:
    """Yield a Parquet file's lines; `expected` are its plan, number, and number of lines."""
    arrow, parquet = pyarrow_modules()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}, which {COMPLETE} names")
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as part:
            metadata = json.loads(part.schema_arrow.metadata[METADATA_KEY])
            shape = metadata["shape"]
            found = metadata["plan"], metadata["part"], part.metadata.num_rows
            groups = range(part.num_row_groups) if found == expected else ()
            for group in groups:
                table = part.read_row_group(group).combine_chunks()
                vectors = table["vectors"].chunk(0)
                offsets, numbers = vectors.offsets.to_numpy(), vectors.values.to_numpy()
                columns = (table[name].to_pylist() for name in ("file", "line", "text"))
                for row, (file, line, text) in enumerate(zip(*columns)):
                    # A copy: a view would keep the whole row group in memory.
                    array = numbers[offsets[row] : offsets[row + 1]].reshape(shape)
                    yield CorpusLine(file, line, text, array.copy())
    # A damaged footer raises different errors, depending on the damaged field.
    except (arrow.ArrowException, *UNREADABLE) as error:
        raise OSError(
            f"{path} is damaged: {type(error).__name__}: {error}; remove it and run embed-corpus "
            "again"
        ) from error
    if found != expected:
        raise ValueError(
            f"{path} is part {quoted(found[1])} of the plan {quoted(found[0])} with {found[2]} "
            f"lines, expected part {expected[1]} of {expected[0]!r} with {expected[2]}; it was "
            "copied from elsewhere: remove it and run embed-corpus again"
        )
