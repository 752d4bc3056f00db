import csv

import pytest
from made_runs import make, make_all

from experiments.table1.one_run import FAILED
from experiments.table1.plan import ELMO, plan
from experiments.table1.report import fewer_errors, write


def test_fewer_errors_as_in_table_1():
    assert fewer_errors(81.1, 85.8) == pytest.approx(24.9, abs=0.05)
    assert fewer_errors(51.4, 54.7) == pytest.approx(6.8, abs=0.05)
    assert fewer_errors(50, 40) == pytest.approx(-20)


def test_a_row_by_hand(tmp_path):
    runs = plan(["sst5"], 2)
    make_all(tmp_path, runs, (0.30, 0.40, 0.34, 0.46))
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


def test_items_that_do_not_give_the_score_are_told(tmp_path):
    """A `carry`'s; by hand: of 40 items none and all are right, the runs say 30 and 40."""
    runs = plan(["sst5"], 1)
    for run, score in zip(runs, (0.30, 0.40), strict=True):
        make(tmp_path, run, score, [[float(run.arm == ELMO), 1.0]] * 40)
    text = write(runs, tmp_path, {})
    assert "| 0.0001 (of items one by one: 0.00 / 100.00) | 1 / 1 |" in text


def test_a_failed_run_is_shown(tmp_path):
    runs = plan(["sst5"], 2)
    make_all(tmp_path, runs[:3], [0.5] * 3)
    failed = tmp_path / runs[3].folder / FAILED
    failed.parent.mkdir(parents=True)
    failed.write_text("failed with status 1: no memory")
    text = write(runs, tmp_path, {})
    assert "50.00 (1 failed)" in text
    assert "- **no score**: sst5, elmo, seed 2: failed with status 1: no memory" in text


@pytest.mark.parametrize(
    ("planned", "scores", "lines"),
    [
        ((1,), [1.0, 1.0], ["| 100.00 | 100.00 | +0.00 |  | 51.4"]),  # nothing is left to gain
        (
            (1,),
            [],
            [
                "| not run | not run |",
                "- **not run**: sst5, baseline, seed 1; sst5, elmo, seed 1\n",
            ],
        ),
        (
            (2,),
            [0.5, 0.5, 0.5],
            [
                "| 50.00 ± 0.00 | 50.00 | +0.00 |",
                "| 2 / 1 |",
                "- **not run**: sst5, elmo, seed 2\n",
            ],
        ),
        (
            (1, [1], ["mix", "placement", "state"]),
            [number / 100 for number in range(9)],
            [
                "| task | baseline | elmo | last | lambda-1 | lambda-0.001 |",
                "| SST-5 | 0.00 | 1.00 | 2.00 | 3.00 | 4.00 |",
                "| SST-5 | 0.00 | 1.00 | 5.00 | 6.00 |",
                "| SST-5 | 0.00 | 1.00 | 7.00 | 8.00 |",
            ],
        ),
        (
            (1, [0.1, 1]),
            [0.5, 0.5, 0.05, 0.05],
            ["| SST-5 | SST-5, 0.1 of it | dev | 5.00 |", "| SST-5 | SST-5 | dev | 50.00 |"],
        ),
    ],
)
def test_lines_of_the_table(planned, scores, lines, tmp_path):
    runs = plan(["sst5"], *planned)
    make_all(tmp_path, runs, scores)
    text = write(runs, tmp_path, {})
    assert [line for line in lines if line not in text] == []
    assert "failed" not in text
