import gzip
import re

import pytest
from made_runs import make, make_all

from elmo_plugin.pages.learned_mixes import LearnedMix
from experiments.table1.plan import BASELINE, ELMO, Run, plan
from experiments.table1.report import write
from experiments.table1.results import NONE_KNOWN, check_nothing_is_lost, read, read_known


def test_a_test_set_comes_before_dev(tmp_path):
    run = Run("sst5", BASELINE, 1, 1)
    make(tmp_path, run, 0.25, split="test")
    assert read(run, tmp_path)[1:3] == (25, "test")


def test_runs_that_were_made_elsewhere(tmp_path):
    """The first seed there, the second here: the mean is of both, p of what is here."""
    there, here = tmp_path / "there", tmp_path / "here"
    runs = plan(["sst5"], 2)
    make_all(there, runs[:2], (0.30, 0.40))
    write(runs, there, {})
    (tmp_path / "neither").mkdir()
    make_all(here, runs[2:], (0.34, 0.46))
    known = read_known(there / "runs.csv")
    assert list(known.results) == list(known.counts) == runs[:2]
    text = write(runs, here, {}, known)
    assert "| 32.00 ± 2.83 | 43.00 ± 4.24 | +11.00 | 16.2% " in text
    assert "| 2 / 2 | 5 / 5 |" in text
    # The next table takes both from this one's.
    assert read_known(here / "runs.csv").results == {run: read(run, here, known) for run in runs}
    assert list(read_known(here / "runs.csv").counts) == runs
    assert "(" not in write(runs[:2], tmp_path / "neither", {}, known).split("| p |")[1]
    # Of lost items no p.
    (there / "counts.json.gz").unlink()
    lost = read_known(there / "runs.csv")
    assert "| 51.4 → 54.7, 6.8% |  | 1 / 1 |" in write(runs[:2], tmp_path / "neither", {}, lost)
    assert "| 0.0001 (1 / 1 seeds) | 2 / 2 |" in write(runs, here, {}, lost)
    # What was made here comes first.
    make(here, runs[0], 0.5)
    assert read(runs[0], here, known).score == 50


def test_runs_made_elsewhere_are_not_lost_by_another_table(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    runs = plan(["sst5"], 2)
    make_all(there, runs, [0.3] * 4)
    write(runs, there, {})
    here.mkdir()
    write(runs, here, {}, read_known(there / "runs.csv"))
    known = read_known(here / "runs.csv")
    alone = known._replace(counts={})
    for trains in (True, False):
        check_nothing_is_lost(runs, here, known, trains)
        check_nothing_is_lost(runs[:1], there, NONE_KNOWN, trains)  # its folders have the others
        for some, kept, lost in (
            (runs[:3], known, "the results of 1 runs"),
            (runs, NONE_KNOWN, "the results of 4 runs"),
            (runs, alone, "the counts of 4 runs"),
        ):
            with pytest.raises(ValueError, match=rf"{lost} in .*runs\.csv would be lost, sst5"):
                check_nothing_is_lost(some, here, kept, trains)
    # What was begun here and is damaged is trained again; a report has it not.
    (there / runs[0].folder / "config.json").write_text("{}")
    (there / runs[0].folder / "items.json").unlink()
    check_nothing_is_lost(runs, there, NONE_KNOWN, trains=True)
    for some, trains in ((runs, False), (runs[1:], True)):
        with pytest.raises(ValueError, match="the results of 1 runs"):
            check_nothing_is_lost(some, there, NONE_KNOWN, trains)


def test_of_other_items_there_is_no_p(tmp_path):
    runs = plan(["sst5"], 1)
    make(tmp_path, runs[0], 0.3, [[0.0, 1.0]] * 4)
    make(tmp_path, runs[1], 0.4, [[0.0, 1.0]] * 5)
    assert "| items differ |" in write(runs, tmp_path, {})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sst5,elmo,1.0,one,40,dev,5,3,3,", r"line 2: .* is no run, expected .*'one'"),
        ("sst5,elmo,1.0,1,forty,dev,5,3,3,", "line 2: .*'forty'"),
        ("sst5,elmo,1.0", "line 2: .*not enough values"),
        ("sst5,elmo,1.0,1,nan,dev,5,3,3,", "line 2: .*the score is nan, expected 0 to 100"),
        ("sst5,elmo,1.0,1,4000,dev,5,3,3,", "line 2: .*the score is 4000"),
        ("sst,elmo,1.0,1,40,dev,5,3,3,", "line 2: .*'sst' is no task"),
    ],
)
def test_a_wrong_table_from_elsewhere(tmp_path, line, message):
    path = tmp_path / "runs.csv"
    write([], tmp_path, {})
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=message):
        read_known(path)
    path.write_bytes(b"task,\xff\n")
    with pytest.raises(ValueError, match=r"runs\.csv is not UTF-8"):
        read_known(path)
    path.write_text("task,score\n")
    with pytest.raises(ValueError, match=r"runs\.csv, line 1: .*expected .*the columns are"):
        read_known(path)


@pytest.mark.parametrize("name", ["counts.json.gz", "mixes.json"])
@pytest.mark.parametrize("damage", ["cut", "no bytes", "a list", "no run", "other content"])
def test_what_is_damaged_beside_a_table_is_named(tmp_path, name, damage):
    run = Run("sst5", ELMO, 1, 1)
    make(tmp_path, run, 0.3)
    write([run], tmp_path, {})
    path = tmp_path / name
    whole = path.read_bytes()
    pack = gzip.compress if name.endswith("gz") else bytes
    damaged = {
        "cut": whole[: len(whole) // 2],
        "no bytes": b"",
        "a list": pack(b"[1]"),
        "no run": pack(b'{"a": NaN}'),
        "other content": pack(b'{"sst5/elmo-1-seed1": [[1, 2], 3]}'),
    }
    path.write_bytes(damaged[damage])
    with pytest.raises(ValueError, match=rf"{name} is damaged \(.+\), expected JSON by the names"):
        read_known(tmp_path / "runs.csv")


DAMAGE = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "no UTF-8": lambda data: b"\xff" + data,
    "a list": lambda data: b"[]",
    "no keys": lambda data: b"{}",
    "null": lambda data: b"null",
    "deep": lambda data: b"[" * 100_000,
    "NaN": lambda data: data.replace(b"0.3", b"NaN").replace(b"1.0", b"NaN"),
    "too large": lambda data: data.replace(b"0.3", b"3.1").replace(b"1.0", b"1e999"),
    "text": lambda data: data.replace(b"0.3", b'"0.3"').replace(b"1.0", b'"one"'),
    "a column more": lambda data: data.replace(b"0:30:00.5", b"0:3").replace(b"[1.0", b"[1, 1.0"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["training/metrics.json", "items.json"])
def test_a_damaged_run_is_named_and_no_table_written(tmp_path, name, damage):
    run = Run("sst5", ELMO, 1, 1)
    make(tmp_path, run, 0.3, [[1.0, 1.0]], mixes=[LearnedMix("elmo", [1.0], 1.0)])
    path = tmp_path / run.folder / name
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    message = rf"^{re.escape(str(path))} is damaged \(.+\), expected what the run wrote"
    with pytest.raises(ValueError, match=message):
        write([run], tmp_path, {})
    assert not (tmp_path / "table.md").exists()


def test_a_failure_that_is_no_text_is_shown(tmp_path):
    run = Run("sst5", ELMO, 1, 1)
    (tmp_path / run.folder).mkdir(parents=True)
    (tmp_path / run.folder / "failed.txt").write_bytes(b"no memory \xff")
    assert read(run, tmp_path).failure == "no memory \N{REPLACEMENT CHARACTER}"
