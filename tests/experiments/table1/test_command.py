"""`python -m experiments.table1` on the sample data: complete, killed, bad arguments."""

import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy
import pytest

from elmo_plugin.bilm.files.folder_lock import locked_folder
from experiments.table1.__main__ import main
from experiments.table1.item_scores import score as item_score
from experiments.table1.tasks import TASKS

ARGUMENTS = ["--tasks", "ner", "--seeds", "1", "--fraction", "0.4", "1", "--processes", "2"]
SHORT = '{"trainer.num_epochs": 2, "model.encoder.hidden_size": 8}'


@pytest.fixture
def data(repository, tmp_path, monkeypatch):
    for name in TASKS["ner"].variables:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "data" / "wikigold"
    folder.mkdir(parents=True)
    for name in ("train.txt", "dev.txt"):
        sentences = (repository / "examples/ner" / name).read_text().split("\n\n")
        (folder / name).write_text("\n\n".join(sentences[:60]) + "\n")
    with gzip.open(tmp_path / "data" / "vectors.txt.gz", "wt") as file:
        rng = random.Random(0)
        for word in ("the", "a", "of", "river", "in"):
            file.write(f"{word} {' '.join(f'{rng.gauss(0, 1):.3f}' for _ in range(100))}\n")
    return str(tmp_path / "data")


def arguments(data, out):
    return [data, str(out), *ARGUMENTS, "-o", SHORT]


def rows(out):
    """The table and the runs, without minutes and commit."""
    text = re.sub(r"^- elmo_plugin: .*$", "", (out / "table.md").read_text(), flags=re.M)
    table = re.sub(r"\| [\d.]+ / [\d.]+ \|$", "|", text, flags=re.M)
    csv = [line.rsplit(",", 2)[0] for line in (out / "runs.csv").read_text().splitlines()]
    return table, csv


@pytest.mark.slow
def test_killed_at_any_moment_it_gives_the_same_table(data, tmp_path):
    whole = tmp_path / "whole"
    start = time.time()
    main(arguments(data, whole))
    seconds = time.time() - start
    assert "| NER | WikiGold | dev |" in rows(whole)[0]
    for line in rows(whole)[1][1:]:  # what p is of gives the score beside it
        task, arm, fraction, seed, score, *_ = line.split(",")
        items = whole / task / f"{arm}-{float(fraction):g}-seed{seed}" / "items.json"
        counts = numpy.sum(json.loads(items.read_text())["counts"], axis=0)
        assert 100 * item_score("f1-measure-overall", counts) == pytest.approx(float(score))
    assert (whole / "figure1.svg").exists()
    assert (whole / "figure2.svg").exists()
    # One run is whole. Of the others: a kill while the archive was written, one while the metrics
    # were, and one after the config, which is all that is left.
    out = tmp_path / "killed"
    shutil.copytree(whole, out)
    cut, torn, gone = (
        out / "ner" / name for name in ("baseline-1-seed1", "baseline-0.4-seed1", "elmo-1-seed1")
    )
    for path in (cut / "training" / "model.tar.gz", torn / "training" / "metrics.json"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    shutil.rmtree(gone / "training")
    for run in (cut, torn, gone):
        (run / "items.json").unlink()
    for name in ("table.md", "runs.csv", "counts.json.gz"):
        (out / name).unlink()
    rng = random.Random(1)
    kills = 0
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = subprocess.Popen(
            [sys.executable, "-m", "experiments.table1", *arguments(data, out)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            process.wait(rng.uniform(0.1, 0.6) * seconds)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, number)
            kills += 1
        process.communicate(timeout=400)
    assert kills
    main(arguments(data, out))
    assert rows(out) == rows(whole)
    assert (out / "counts.json.gz").read_bytes() == (whole / "counts.json.gz").read_bytes()
    made = {
        run.name for run in (out / "ner").iterdir()
        if (run / "items.json").stat().st_mtime_ns
        != (whole / "ner" / run.name / "items.json").stat().st_mtime_ns
    }  # fmt: skip
    assert made == {cut.name, torn.name, gone.name}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--variant-seeds", "0"], "--variant-seeds is 0, expected at least 1"),
        (["--seeds", "0"], "--seeds has '0', expected a number above 0, or one for a task"),
        (["--seeds", "3", "nre=5"], "--seeds has 'nre=5', expected a number above 0"),
        (["--processes", "0"], "--processes is 0, expected at least 1"),
        (["--fraction", "0"], "--fraction is 0.0, expected above 0"),
        (["--fraction", "1.5"], "--fraction is 1.5, expected above 0"),
        (["-o", "{"], "--overrides is '{', expected JSON"),
        (["-o", "[1]"], "--overrides is '[1]', expected an object"),
        (["--tasks", "srl"], "srl_ewt is not there, expected the folder of English EWT"),
        (["--vectors", "nowhere"], "nowhere are not there"),
    ],
)
def test_wrong_arguments(data, tmp_path, capsys, arguments, error):
    with pytest.raises(SystemExit) as raised:
        main([data, str(tmp_path / "out"), "--tasks", "ner", *arguments])
    assert raised.value.code == 1
    assert error in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_two_tables_in_one_folder(data, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    with locked_folder(out), pytest.raises(SystemExit) as raised:
        main([data, str(out), "--tasks", "ner"])
    assert raised.value.code == 1
    error = f"error: {out} is in use by another process, expected none"
    assert capsys.readouterr().err.splitlines()[-1] == error
    assert list(out.iterdir()) == []


def test_a_task_that_is_none(capsys):
    with pytest.raises(SystemExit):
        main(["data", "out", "--tasks", "ner,parsing"])
    assert "'parsing' is no task, expected one of squad, snli" in capsys.readouterr().err


def test_report_trains_nothing(data, tmp_path, capsys):
    """And may look at a table that is being made."""
    out = tmp_path / "out"
    out.mkdir()
    with locked_folder(out):
        main([data, str(out), *ARGUMENTS, "--report"])
    assert "| NER | WikiGold |  | not run | not run |" in capsys.readouterr().out
    written = {"table.md", "runs.csv", "counts.json.gz", "mixes.json"}
    assert {path.name for path in out.iterdir()} == written
    # Of a table with every run there is none left to train.
    known = tmp_path / "runs.csv"
    header, *runs = (out / "runs.csv").read_text().splitlines()
    known.write_text(
        "\n".join(
            [header, *(run.replace(",,,0,0,0.0,not run", ",50,dev,3,2,1.0,") for run in runs)]
        )
    )
    main([data, str(out), *ARGUMENTS, "--known", str(known)])
    said = capsys.readouterr().out
    assert "| dev | 50.00 | 50.00 | +0.00 |" in said
    assert f"- runs made elsewhere: {len(runs)}, of {known}" in said
    assert not (out / "ner").exists()


def test_no_report_on_a_folder_that_is_not_there(data, tmp_path, capsys):
    out = tmp_path / "oout"
    with pytest.raises(SystemExit):
        main([data, str(out), *ARGUMENTS, "--report"])
    assert f"{out} is not there" in capsys.readouterr().err
    assert not out.exists()


def test_quick(data, tmp_path, capsys, monkeypatch):
    configs = []

    def keep(runs, out, make_config, processes, say):
        configs.extend(make_config(run) for run in runs)

    monkeypatch.setattr("experiments.table1.runner.train", keep)
    main([data, str(tmp_path / "out"), "--tasks", "ner", "--quick"])
    assert len(configs) == 2
    for config in configs:
        assert config["dataset_reader"]["fraction"] == 0.1
        assert config["validation_dataset_reader"]["max_instances"] == 1000
        assert config["trainer"]["patience"] == 6
        assert "max_instances" not in config["dataset_reader"]["reader"]
    assert "WikiGold, 0.1 of it" in capsys.readouterr().out
