"""From text to parts: the vectors, the bytes, going on, and what is refused."""

import functools
import gzip
import hashlib
import json
import multiprocessing
import random
from dataclasses import replace

import numpy
import pytest
import torch
from tqdm import tqdm

pytest.importorskip("pyarrow", reason="Parquet is written by pyarrow, which is not installed")

from elmo_plugin import CorpusSettings, embed_corpus, read_corpus
from elmo_plugin.bilm.corpus import embed
from elmo_plugin.bilm.corpus.plan import Plan
from elmo_plugin.bilm.extraction import engine
from elmo_plugin.bilm.extraction.extract import extract
from elmo_plugin.bilm.extraction.vectors import Extraction
from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.use.embedder import ElmoEmbedder
from tests import fresh_process
from tests.bilm.extraction.inline_workers import InlineWorkers
from tests.bilm.extraction.test_extract import text, vectors
from tests.tiny_bilm import random_bilm, write

SMALL = CorpusSettings(layers="all", dtype="float32", state="reset", shard_tokens=25)


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Two files of text, a biLM's files beside them; workers of this process."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    for seed, name in enumerate("ab"):
        lines = [*text(15, seed), "a very long line " * 20]
        (tmp_path / "text" / f"{name}.txt").write_text("".join(f"{one}\n" for one in lines))
    monkeypatch.setattr(embed, "LocalWorkers", InlineWorkers)
    threads = torch.get_num_threads()
    yield write(tmp_path)
    torch.set_num_threads(threads)


def make(files, output="out", settings=SMALL, inputs=("text/*.txt",), **more):
    return embed_corpus(
        inputs, output, settings, options_file=files.options, weight_file=files.weights, **more
    )


def digests(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("part-*.parquet"))
    }


def lines_of(folder):
    return [
        (f"text/{name}.txt", number, line)
        for name in "ab"
        for number, line in enumerate(
            (folder / "text" / f"{name}.txt").read_text().splitlines(), start=1
        )
    ]


@pytest.mark.parametrize("layers", ["all", "top", "average"])
@pytest.mark.parametrize("max_tokens", [9, 4096])
def test_vectors_are_those_of_the_elmo_command(tmp_path, corpus, monkeypatch, layers, max_tokens):
    monkeypatch.setattr(embed, "GROUP_BYTES", 8000)  # several groups a part
    settings = replace(
        SMALL, layers=layers, state="primed", max_tokens=max_tokens, shard_tokens=200
    )
    complete = make(corpus, settings=settings)
    expected_lines = lines_of(tmp_path)
    wanted = Extraction(layers=layers)
    bilm = random_bilm().eval()
    bilm.state = "primed"
    extract(bilm, [line for *_, line in expected_lines], tmp_path / "out.hdf5", wanted)
    found = list(read_corpus("out"))
    assert [line[:3] for line in found] == [(f, n, one.strip()) for f, n, one in expected_lines]
    for line, expected in zip(found, vectors("out.hdf5", len(found)), strict=True):
        assert line.array.dtype == numpy.float32
        assert line.array.shape == expected.shape
        assert line.array.flags.owndata
        numpy.testing.assert_allclose(line.array, expected, atol=1e-6, rtol=0)
    assert complete["lines"] == len(found)
    assert complete["tokens"] == sum(len(line.text.split()) for line in found)


def test_half_floats_are_rounded_and_nothing_else(tmp_path, corpus):
    make(corpus)
    make(corpus, "half", replace(SMALL, dtype="float16"))
    for exact, half in zip(read_corpus("out"), read_corpus("half"), strict=True):
        assert half.array.dtype == numpy.float16
        numpy.testing.assert_array_equal(half.array, exact.array.astype(numpy.float16))


def test_reset_is_another_state(corpus):
    make(corpus, settings=replace(SMALL, layers="average"))
    embedder = ElmoEmbedder(*corpus, state="reset")
    line = next(line for line in read_corpus("out") if line.text)
    expected = embedder.embed_sentence(line.text.split()).mean(axis=0)
    numpy.testing.assert_allclose(line.array, expected, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_bytes_do_not_depend_on_who_works_in_which_order(tmp_path, corpus, monkeypatch, seed):
    make(corpus, "one", workers=1)
    monkeypatch.setattr(InlineWorkers, "order", random.Random(seed))
    monkeypatch.setattr(engine, "TICK", 0.001)
    make(corpus, "three", workers=3)
    assert digests(tmp_path / "one") == digests(tmp_path / "three")
    assert len(digests(tmp_path / "one")) > 5
    for name in ("plan.json", "complete.json"):
        assert (tmp_path / "one" / name).read_text() == (tmp_path / "three" / name).read_text()


@pytest.mark.skipif(
    library.variant() is None, reason="without the library the last bits may differ"
)
def test_bytes_do_not_depend_on_threads(tmp_path, corpus, capsys):
    make(corpus, "one")
    for threads in (2, 3):
        make(corpus, str(threads), replace(SMALL, threads=threads))
        assert digests(tmp_path / str(threads)) == digests(tmp_path / "one")
    for part in sorted((tmp_path / "3").glob("part-*"))[::2]:
        part.unlink()
    (tmp_path / "3" / "complete.json").unlink()
    make(corpus, "3", replace(SMALL, threads=2))
    assert digests(tmp_path / "3") == digests(tmp_path / "one")
    assert torch.get_num_threads() == 2
    assert "resumed on" not in capsys.readouterr().err


def test_threads_that_may_change_bits_are_noted(corpus, capsys, monkeypatch):
    monkeypatch.setenv(library.VARIABLE, library.NONE)
    with tqdm() as progress:
        make(corpus, progress=progress)
        make(corpus, settings=replace(SMALL, threads=2), progress=progress)
    said = capsys.readouterr().err
    assert said.count("resumed on") == 1
    assert "'threads': '2'" in said


def test_what_is_whole_is_not_made_again(tmp_path, corpus, monkeypatch):
    make(corpus, "whole")
    expected = digests(tmp_path / "whole")
    monkeypatch.setattr(InlineWorkers, "made", engines := [])
    make(corpus)
    assert sorted(engines[0].given) == list(range(len(expected)))
    folder = tmp_path / "out"
    (folder / "complete.json").unlink()
    (folder / "part-000002.parquet").unlink()
    # Of another shard, cut off, and nothing at all.
    (folder / "part-000003.parquet").write_bytes((folder / "part-000004.parquet").read_bytes())
    damaged = (folder / "part-000005.parquet").read_bytes()
    (folder / "part-000005.parquet").write_bytes(damaged[: len(damaged) // 2])
    (folder / "part-000001.parquet").write_bytes(b"")
    for name in ("part-000006.parquet", "plan.json", "complete.json"):
        (folder / f".{name}.0123456789ab.part").touch()
    (folder / ".000006.progress").touch()
    make(corpus)
    assert sorted(engines[1].given) == [1, 2, 3, 5]
    assert digests(folder) == expected
    assert sorted(path.name for path in folder.iterdir()) == [
        "complete.json",
        *sorted(expected),
        "plan.json",
    ]
    make(corpus)
    assert len(engines) == 2  # nobody is started where nothing is to be done


@pytest.mark.parametrize(
    ("inputs", "bilm", "message"),
    [
        ("none.txt", {}, r"no file none\.txt"),
        ("bad.txt", {}, r"bad\.txt, line 2"),
        ("text/*.txt", {"options_file": "none.json"}, r"none\.json"),
    ],
)
def test_what_cannot_begin_again_leaves_what_is_there(tmp_path, corpus, inputs, bilm, message):
    make(corpus)
    before = digests(tmp_path / "out")
    (tmp_path / "bad.txt").write_bytes(b"good\n\xff\n")
    files = {"options_file": corpus.options, "weight_file": corpus.weights, **bilm}
    with pytest.raises((ValueError, OSError), match=message):
        embed_corpus([inputs], "out", SMALL, force=True, **files)
    assert digests(tmp_path / "out") == before
    assert {"plan.json", "complete.json"} <= {path.name for path in (tmp_path / "out").iterdir()}
    with pytest.raises((ValueError, OSError), match=message):
        embed_corpus([inputs], "new", SMALL, **files)
    # A text is read under the folder's lock.
    assert (tmp_path / "new").exists() == (inputs == "bad.txt")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *(
            (f"out/{name}/", f"out holds {name}, which an earlier run did not make")
            for name in ("part-000099.parquet", "complete.json", "plan.json", "mine")
        ),
        ("out/part-00000-9d3c.c000.parquet", r"out holds part-0+-9d3c\.c000\.parquet, which an"),
        ("out/notes.txt", r"out holds notes\.txt, which an earlier run did not make"),
        ("out/lock", "lock has 4 bytes"),
        ("text/c.txt", r"text holds .*a\.txt, which this command reads"),
        ("file", "file is a file, expected a folder"),
    ],
)
def test_force_removes_nothing_else(tmp_path, corpus, name, message):
    output = tmp_path / name.split("/")[0]
    if output.name == "out":
        make(corpus)
    path = tmp_path / name
    if name.endswith("/"):
        path.unlink(missing_ok=True)
        path.mkdir()
    else:
        path.write_text("mine")
    before = {one: one.is_file() and one.read_bytes() for one in tmp_path.rglob("*")}
    with pytest.raises(ValueError, match=message):
        make(corpus, output.name, force=True)
    assert {one: one.is_file() and one.read_bytes() for one in tmp_path.rglob("*")} == before


def test_force_removes_no_parts_without_a_plan(tmp_path, corpus):
    make(corpus)
    (tmp_path / "out" / "plan.json").unlink()
    before = digests(tmp_path / "out")
    with pytest.raises(ValueError, match=r"out holds complete\.json but no plan\.json"):
        make(corpus, force=True)
    with pytest.raises(ValueError, match=r"out has complete\.json but no plan\.json, expected an"):
        make(corpus)
    assert digests(tmp_path / "out") == before


def test_a_name_is_no_folder_of_that_name(tmp_path, corpus):
    (tmp_path / "embedded").mkdir()
    embed_corpus(["text/*.txt"], "out", SMALL, options_file="embedded")
    assert Plan.load(tmp_path / "out").bilm.embedding_dim == 512


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": replace(SMALL, layers="top")}, "layers was 'all' when .* and is 'top' now"),
        ({"inputs": ["text/b.txt"]}, "number of inputs was 2 when .* and is 1 now"),
        ({"inputs": ["text/b.txt", "text/a.txt"]}, "input 1 was 'text/a.txt' when .*/b.txt' now"),
        ({"seed": 2}, "the biLM's digest was"),
        ({"append": "more\n"}, r"bytes in text/b\.txt was \d+"),
        ({"replace": ("the", "THE")}, r"lines from text/b\.txt:\d+ on: the text has changed"),
    ],
)
def test_a_run_goes_on_only_with_the_same(tmp_path, corpus, change, message):
    make(corpus)
    before = digests(tmp_path / "out")
    path = tmp_path / "text" / "b.txt"
    if "seed" in change:
        write(tmp_path, random_bilm(seed=change.pop("seed")))
    if "append" in change:
        path.write_text(path.read_text() + change.pop("append"))
    if "replace" in change:
        path.write_text(path.read_text().replace(*change.pop("replace")))
    with pytest.raises(ValueError, match=message):
        make(corpus, **change)
    assert digests(tmp_path / "out") == before
    complete = make(corpus, force=True, **change)
    after = digests(tmp_path / "out")
    assert after != before
    assert list(after) == [part["name"] for part in complete["parts"]]  # no other is left


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"state": "carry"}, "state is 'carry', in which a sentence continues from the"),
        ({"state": "warm"}, "state is 'warm', expected one of"),
        ({"threads": 0}, "threads is 0, expected 1 or more"),
        ({"shard_tokens": 0}, "shard_tokens is 0, expected 1 or more"),
        ({"max_tokens": 2}, "max_tokens is 2, expected 3 or more"),
    ],
)
def test_settings_that_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        CorpusSettings(**settings)


def test_what_else_is_refused(tmp_path, corpus):
    for more, message in (
        ({"engine": "dask"}, "engine is 'dask', expected one of"),
        ({"workers": 0}, "workers is 0, expected 1 or more"),
        ({"ray_address": "auto"}, "ray_address is 'auto', expected none with engine 'local'"),
        ({"shard": "1/3", "force": True}, "shard was given with force"),
        ({"timeout": 0.0}, "timeout is 0.0, expected more than 0 seconds"),
        ({"timeout": float("nan")}, "timeout is nan, expected more than 0 seconds"),
    ):
        with pytest.raises(ValueError, match=message):
            make(corpus, **more)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "part-000001.parquet").touch()
    with pytest.raises(ValueError, match=r"other has part-000001\.parquet but no plan\.json"):
        make(corpus, "other")
    with pytest.raises(ValueError, match=r"not complete, expected complete\.json; it has no plan"):
        read_corpus("other")
    with embed.locked_folder(tmp_path / "other"), pytest.raises(ValueError, match="is in use by"):
        make(corpus, "other")


def test_a_worker_that_imports_a_script_without_a_guard_says_so(corpus, monkeypatch):
    monkeypatch.setattr(multiprocessing.current_process(), "name", engine.WORKER)
    with pytest.raises(RuntimeError, match='under if __name__ == "__main__":'):
        make(corpus)


def test_gzip_input_gives_the_same_lines_and_vectors(tmp_path, corpus):
    """Shards are byte ranges of the decompressed text, also when a run is resumed."""
    make(corpus, "plain")
    for path in list((tmp_path / "text").iterdir()):
        path.with_suffix(".txt.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    packed = {"inputs": ["text/*.txt.gz"]}
    make(corpus, **packed)
    assert len(digests(tmp_path / "out")) == len(digests(tmp_path / "plain")) > 5
    for plain, line in zip(read_corpus("plain"), read_corpus("out"), strict=True):
        assert (f"{plain.file}.gz", plain.line, plain.text) == line[:3]
        numpy.testing.assert_array_equal(plain.array, line.array)
    before = digests(tmp_path / "out")
    (tmp_path / "out" / "part-000003.parquet").unlink()
    make(corpus, **packed)
    assert digests(tmp_path / "out") == before
    changed = gzip.compress((tmp_path / "text" / "b.txt.gz").read_bytes()[:-1])
    (tmp_path / "text" / "b.txt.gz").write_bytes(changed)
    with pytest.raises(ValueError, match=r"bytes in text/b\.txt\.gz was"):
        make(corpus, **packed)


def test_a_plan_that_was_changed_is_refused(tmp_path, corpus):
    make(corpus)
    path = tmp_path / "out" / "plan.json"
    plan = path.read_text()
    for changed in (
        plan.replace('"reset"', '"primed"'),
        plan[:-1],
        "[]",
        plan.replace(": 1,", ": 2,", 1),
    ):
        path.write_text(changed)
        with pytest.raises(ValueError, match=r"plan\.json (is no plan|was changed)"):
            make(corpus)
    path.write_text(plan)
    assert Plan.load(tmp_path / "out").settings == SMALL


def test_a_line_that_is_not_utf_8_is_an_error_before_anything_is_computed(tmp_path, corpus):
    (tmp_path / "text" / "c.txt").write_bytes(b"fine\n" * 100 + b"ol\xe9\n")
    with pytest.raises(ValueError, match=r"text/c\.txt, line 101: the byte 0xe9"):
        make(corpus)
    assert list((tmp_path / "out").iterdir()) == []
    settings = CorpusSettings(layers="top", replace_bad_utf8=True)
    make(corpus, settings=settings)
    assert list(read_corpus("out"))[-1].text == "ol\ufffd"


def test_shards_that_fail_are_named_and_the_rest_is_there(tmp_path, corpus, monkeypatch):
    original = embed.ShardEmbedder.compute

    @functools.wraps(original)  # for pickle
    def failing(self, bilm, shard, report):
        original(self, bilm, shard, report)
        if shard[0] in (3, 5):
            raise OSError(28, "No space left on device", "/out")

    monkeypatch.setattr(embed.ShardEmbedder, "compute", failing)
    monkeypatch.setattr(embed, "is_complete", lambda path, plan, number: False)
    notes = r"^2 shards failed 3 times: 3, 5; shard 3 \(\d+ lines from text/a\.txt:\d+ on\)"
    with pytest.raises(OSError, match=notes + r": OSError: .*No space left"):
        make(corpus)
    assert not (tmp_path / "out" / "complete.json").exists()
    with pytest.raises(ValueError, match=r"not complete, .*; run embed-corpus again"):
        read_corpus("out")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embed, "LocalWorkers", InlineWorkers)
    make(corpus)
    make(corpus, "whole")
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


def test_runs_that_share_the_shards_make_the_same(tmp_path, corpus):
    whole = make(corpus, "whole")
    assert make(corpus, shard="2/3") is None
    assert [int(name[5:11]) % 3 for name in digests(tmp_path / "out")] == [1] * (
        (len(digests(tmp_path / "whole")) + 1) // 3
    )
    assert make(corpus, shard="3/3") is None
    assert not (tmp_path / "out" / "complete.json").exists()
    assert make(corpus, shard="1/3") == whole
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")
    (tmp_path / "text" / "b.txt").write_text("other")
    with pytest.raises(ValueError, match=r"bytes in text/b\.txt was"):
        make(corpus, shard="1/3")


def test_an_empty_corpus_is_complete(tmp_path, corpus):
    (tmp_path / "empty.txt").touch()
    assert make(corpus, inputs=["empty.txt"])["parts"] == []
    assert list(read_corpus("out")) == []


def test_the_digest_is_that_of_what_goes_in(tmp_path, corpus, monkeypatch):
    """Not of the folder where it is, nor of when it was."""
    make(corpus)
    about = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert about["files"][0]["name"] == "text/a.txt"
    assert str(tmp_path) not in json.dumps(about["shards"])
    monkeypatch.chdir("/")
    make(corpus, tmp_path / "away", inputs=[tmp_path / "text" / "*.txt"])
    away = json.loads((tmp_path / "away" / "plan.json").read_text())
    assert away["digest"] != about["digest"]  # names are in the parts


@pytest.mark.slow
def test_real_processes_make_the_same(tmp_path, corpus, monkeypatch):
    make(corpus, "inline")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    make(corpus, workers=2)
    assert digests(tmp_path / "out") == digests(tmp_path / "inline")


def test_neither_ray_nor_pyarrow_is_imported_before_it_is_needed():
    code = (
        "import sys, elmo_plugin\n"
        "from elmo_plugin import embed_corpus, read_corpus, CorpusSettings, ElmoEmbedder\n"
        "import elmo_plugin.bilm.extraction.ray_workers, elmo_plugin.bilm.corpus.embed\n"
        "print({'ray', 'pyarrow'} & set(sys.modules))"
    )
    assert fresh_process.run_core(code).stdout == "set()\n"
