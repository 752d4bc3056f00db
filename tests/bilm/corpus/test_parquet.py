"""The parts, as other programs read them."""

import contextlib
import json
import re
from pathlib import Path

import numpy
import pytest

pytest.importorskip("pyarrow", reason="Parquet is pyarrow's, which is not installed")

import pyarrow
from pyarrow import dataset, parquet

from elmo_plugin import CorpusSettings, read_corpus
from elmo_plugin.bilm.corpus import embed
from tests.bilm.corpus.test_embed_corpus import make
from tests.bilm.extraction.inline_workers import InlineWorkers
from tests.tiny_bilm import write

LINES = ["The cat sat .", "", "Überraschung !", "moon", "a b c d e f g"]


@pytest.fixture(scope="module", params=["all", "average"])
def parts(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(embed, "LocalWorkers", InlineWorkers)
        Path("in.txt").write_text("\n".join(LINES))
        settings = CorpusSettings(layers=request.param, shard_tokens=5)
        make(write(folder), settings=settings, inputs=["in.txt"])
    return sorted(str(path) for path in (folder / "out").glob("part-*.parquet"))


def check(rows, shape, parts):
    """Rows of any reader; `shape` is what the metadata says."""
    expected = list(read_corpus(Path(parts[0]).parent))
    assert [row["text"] for row in rows] == [line.text for line in expected] == LINES
    assert [row["line"] for row in rows] == [1, 2, 3, 4, 5]
    for row, line in zip(rows, expected, strict=True):
        assert row["file"] == "in.txt"
        assert row["tokens"] == len(line.text.split())
        found = numpy.asarray(row["vectors"], dtype=numpy.float16).reshape(shape)
        numpy.testing.assert_array_equal(found, line.array)


def shape_of(parts):
    return json.loads(parquet.read_schema(parts[0]).metadata[b"elmo_plugin"])["shape"]


def test_the_shape_is_in_the_metadata(parts):
    assert len(parts) == 2
    for part in parts:
        schema = parquet.read_schema(part)
        about = json.loads(schema.metadata[b"elmo_plugin"])
        assert about["shape"] == ([3, -1, 12] if about["layers"] == "all" else [-1, 12])
        assert about["state"] == "primed"
        assert schema.field("vectors").type.value_type == pyarrow.float16()


def test_pyarrow_reads_them(parts):
    check(dataset.dataset(parts).to_table().to_pylist(), shape_of(parts), parts)


def test_pandas_reads_them(parts):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    check(pandas.read_parquet(parts).to_dict("records"), shape_of(parts), parts)


def test_datasets_reads_them(parts, tmp_path):
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    found = datasets.load_dataset(
        "parquet", data_files=parts, split="train", cache_dir=str(tmp_path)
    )
    check(list(found), shape_of(parts), parts)


@pytest.mark.slow
def test_ray_reads_them(parts):
    ray = pytest.importorskip("ray", reason="ray is not installed (make test-ray)")
    pytest.importorskip("pandas", reason="pandas is not installed")
    from ray import data

    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        rows = data.read_parquet(parts).to_pandas().to_dict("records")
    finally:
        ray.shutdown()
    check(sorted(rows, key=lambda row: row["line"]), shape_of(parts), parts)


def copied(parts, folder):
    for path in Path(parts[0]).parent.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder / "part-000000.parquet"


def test_a_page_that_was_damaged_is_an_error(parts, tmp_path):
    path = copied(parts, tmp_path)
    column = parquet.ParquetFile(parts[0]).metadata.row_group(0).column(4)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 8] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        OSError, match=r"part-000000\.parquet is damaged: .*CRC.*; remove it and run"
    ):
        list(read_corpus(tmp_path))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_part_that_was_cut_is_named(parts, tmp_path, share):
    path = copied(parts, tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(OSError, match=r"part-000000\.parquet is damaged: .*Parquet "):
        list(read_corpus(tmp_path))


def test_a_part_that_is_gone_is_named(parts, tmp_path):
    copied(parts, tmp_path).unlink()
    with pytest.raises(FileNotFoundError, match=r"part-000000\.parquet"):
        list(read_corpus(tmp_path))


def test_flipped_bits_of_a_footer_are_an_error_that_names_the_part(parts, tmp_path):
    path = copied(parts, tmp_path)
    content = path.read_bytes()
    expected = [line.array.tobytes() for line in read_corpus(Path(parts[0]).parent)]
    length = int.from_bytes(content[-8:-4], "little")
    refused = 0
    for position in range(len(content) - 8 - length, len(content), 7):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        found: list[bytes] = []
        with contextlib.suppress(OSError, ValueError):
            found = [line.array.tobytes() for line in read_corpus(tmp_path)]
        if found != expected:
            with pytest.raises((OSError, ValueError), match=re.escape(str(path))):
                list(read_corpus(tmp_path))
            refused += 1
    assert refused > 10


@pytest.mark.parametrize("from_", ["another place", "another corpus"])
def test_part_copied_over_another_is_refused(parts, tmp_path, from_):
    path = copied(parts, tmp_path)
    if from_ == "another place":
        path.write_bytes(Path(parts[1]).read_bytes())
    else:
        complete = json.loads((tmp_path / "complete.json").read_text())
        (tmp_path / "complete.json").write_text(json.dumps({**complete, "plan": "0" * 32}))
    with pytest.raises(ValueError, match=r"part-000000\.parquet is part [01] of the plan"):
        list(read_corpus(tmp_path))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"plan": "", "parts": [1]}'])
def test_damaged_complete_file_is_named(parts, tmp_path, content):
    copied(parts, tmp_path)
    (tmp_path / "complete.json").write_text(content)
    with pytest.raises(ValueError, match=r"complete\.json is damaged"):
        read_corpus(tmp_path)
