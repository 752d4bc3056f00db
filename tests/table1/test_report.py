import csv

import pytest
from made_runs import make

from elmo_plugin.table1.one_run import FAILED
from elmo_plugin.table1.plan import BASELINE, ELMO, Run, plan
from elmo_plugin.table1.report import fewer_errors, read, read_known, write


@pytest.fixture(autouse=True)
def no_paper_data(monkeypatch):
    monkeypatch.delenv("SST_TRAIN_DATA_PATH", raising=False)


def test_fewer_errors_as_in_table_1():
    assert fewer_errors(81.1, 85.8) == pytest.approx(24.9, abs=0.05)
    assert fewer_errors(51.4, 54.7) == pytest.approx(6.8, abs=0.05)
    assert fewer_errors(50, 40) == pytest.approx(-20)


def test_a_row_by_hand(tmp_path):
    runs = plan(["sst5"], 2)
    for run, score in zip(runs, (0.30, 0.40, 0.34, 0.46), strict=True):
        right = 1.0 if run.arm == ELMO else 0.0
        make(tmp_path, run, score, [[right, 1.0]] * 40)
    text = write(runs, tmp_path, {"machine": "two cores"})
    assert (
        "| SST-5 | SST-5 | dev | 32.00 ± 2.83 | 43.00 ± 4.24 | +11.00 | 16.2% "
        "| 51.4 → 54.7, 6.8% | 0.0001 | 2 / 2 | 5 / 5 | 60 / 60 |"
    ) in text
    assert "- machine: two cores" in text
    assert (tmp_path / "table.md").read_text("utf-8") == text
    rows = list(csv.DictReader((tmp_path / "runs.csv").open()))
    assert [float(row["score"]) for row in rows] == pytest.approx([30, 40, 34, 46])
    assert {row["best"] for row in rows} == {"3"}


def test_a_failed_run_is_shown(tmp_path):
    runs = plan(["sst5"], 2)
    for run in runs[:3]:
        make(tmp_path, run, 0.5)
    failed = tmp_path / runs[3].folder / FAILED
    failed.parent.mkdir(parents=True)
    failed.write_text("failed with status 1: no memory")
    text = write(runs, tmp_path, {})
    assert "50.00 (1 failed)" in text
    assert "- **no score**: sst5, elmo, seed 2: failed with status 1: no memory" in text


def test_nothing_run(tmp_path):
    text = write(plan(["sst5"], 1), tmp_path, {})
    assert "| not run | not run |" in text
    assert "- **not run**: sst5, baseline, seed 1; sst5, elmo, seed 1\n" in text


def test_what_was_not_run_is_not_called_failed(tmp_path):
    runs = plan(["sst5"], 2)
    for run in runs[:3]:
        make(tmp_path, run, 0.5)
    text = write(runs, tmp_path, {})
    assert "| 50.00 ± 0.00 | 50.00 | +0.00 |" in text
    assert "| 2 / 1 |" in text
    assert "- **not run**: sst5, elmo, seed 2\n" in text
    assert "failed" not in text


def test_a_test_set_comes_before_dev(tmp_path):
    run = Run("sst5", BASELINE, 1, 1)
    make(tmp_path, run, 0.25, split="test")
    assert read(run, tmp_path)[1:3] == (25, "test")


def test_variants_have_tables_of_their_own(tmp_path):
    runs = plan(["sst5"], 1, [1], ["mix", "placement", "state"])
    for number, run in enumerate(runs):
        make(tmp_path, run, number / 100)
    text = write(runs, tmp_path, {})
    assert "| task | baseline | elmo | last | lambda-1 | lambda-0.001 |" in text
    assert "| SST-5 | 0.00 | 1.00 | 2.00 | 3.00 | 4.00 |" in text
    assert "| SST-5 | 0.00 | 1.00 | 5.00 | 6.00 |" in text
    assert "| SST-5 | 0.00 | 1.00 | 7.00 | 8.00 |" in text


def test_parts_of_the_training_set_are_rows(tmp_path):
    runs = plan(["sst5"], 1, [0.1, 1])
    for run in runs:
        make(tmp_path, run, run.fraction / 2)
    text = write(runs, tmp_path, {})
    assert "| SST-5 | SST-5, 0.1 of it | dev | 5.00 |" in text
    assert "| SST-5 | SST-5 | dev | 50.00 |" in text


def test_runs_that_were_made_elsewhere(tmp_path):
    """The first seed there, the second here: the mean is of both, p of what is here."""
    there, here = tmp_path / "there", tmp_path / "here"
    runs = plan(["sst5"], 2)
    for run, score in zip(runs[:2], (0.30, 0.40), strict=True):
        make(there, run, score, [[0.0, 1.0]] * 40)
    write(runs, there, {})
    (tmp_path / "neither").mkdir()
    for run, score in zip(runs[2:], (0.34, 0.46), strict=True):
        make(here, run, score, [[float(run.arm == ELMO), 1.0]] * 40)
    known = read_known(there / "runs.csv")
    assert list(known.results) == list(known.counts) == runs[:2]
    text = write(runs, here, {}, known)
    assert "| 32.00 ± 2.83 | 43.00 ± 4.24 | +11.00 | 16.2% " in text
    # The first seeds got the same items right, of which there are two.
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


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sst5,elmo,1.0,one,40,dev,5,3,3,", r"line 2: .* is no run, expected .*'one'"),
        ("sst5,elmo,1.0,1,forty,dev,5,3,3,", "line 2: .*'forty'"),
        ("sst5,elmo,1.0", "line 2: .*not enough values"),
    ],
)
def test_a_wrong_table_from_elsewhere(tmp_path, line, message):
    path = tmp_path / "runs.csv"
    write([], tmp_path, {})
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=message):
        read_known(path)
    path.write_text("task,score\n")
    with pytest.raises(ValueError, match=r"has the columns .* expected those of runs\.csv"):
        read_known(path)
