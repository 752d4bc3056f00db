import json
import os
import signal
import subprocess
import sys

import pytest
from made_runs import make

from experiments.table1 import runner
from experiments.table1.one_run import CONFIG, FAILED, ITEMS, LOG, is_complete
from experiments.table1.plan import plan
from experiments.table1.results import in_seconds
from experiments.table1.runner import Estimate, train

RUNS = plan(["sst5"], 2)


@pytest.fixture
def program(monkeypatch, tmp_path):
    """Runs this in place of `one_run`; `folder` is the run's."""
    real = subprocess.Popen

    def program(text):
        (tmp_path / "program.py").write_text(
            "import json, pathlib, sys, time\nfolder = pathlib.Path(sys.argv[3])\n" + text
        )

        def start(command, **kwargs):
            return real([sys.executable, str(tmp_path / "program.py"), *command[1:]], **kwargs)

        monkeypatch.setattr(runner.subprocess, "Popen", start)
        monkeypatch.setattr(runner, "PAUSE", 0.02)

    return program


WHOLE = """
(folder / "training").mkdir(exist_ok=True)
(folder / "training" / "metrics.json").write_text(json.dumps({"training_duration": "0:00:01"}))
(folder / "items.json").write_text("{}")
"""


def test_trains_what_is_not_whole(program, tmp_path):
    program(WHOLE)
    make(tmp_path, RUNS[1], 0.5)
    said = []
    train(RUNS, tmp_path, lambda run: {}, 2, said.append)
    assert all(is_complete(tmp_path / run.folder) for run in RUNS)
    assert said[0] == "1 of 4 runs are complete already"
    assert [line[:5] for line in said[1:]] == ["[2/4]", "[3/4]", "[4/4]"]
    assert "left at this pace" in said[1]
    said.clear()
    train(RUNS, tmp_path, lambda run: {}, 2, said.append)
    assert said == ["4 of 4 runs are complete already"]


def test_a_failure_does_not_stop_the_others_and_is_tried_again(program, tmp_path):
    program("if 'elmo' in folder.name: sys.exit('no memory')\n" + WHOLE)
    said = []
    train(RUNS, tmp_path, lambda run: {}, 2, said.append)
    failed = [run for run in RUNS if not is_complete(tmp_path / run.folder)]
    assert [run.arm for run in failed] == ["elmo", "elmo"]
    text = (tmp_path / failed[0].folder / FAILED).read_text()
    assert "failed with status 1: no memory" in text
    assert LOG in text
    program(WHOLE)
    train(RUNS, tmp_path, lambda run: {}, 2, said.append)
    assert all(is_complete(tmp_path / run.folder) for run in RUNS)
    assert not (tmp_path / failed[0].folder / FAILED).exists()


def test_other_settings_are_refused_before_anything_runs(program, tmp_path):
    program(WHOLE)
    train(RUNS[:1], tmp_path, lambda run: {"a": 1}, 1, lambda line: None)
    with pytest.raises(
        ValueError, match=r"config.json is of other settings .*sst5, baseline, seed"
    ):
        train(RUNS, tmp_path, lambda run: {"a": 2}, 1, lambda line: None)
    assert json.loads((tmp_path / RUNS[0].folder / CONFIG).read_text()) == {"a": 1}
    assert not is_complete(tmp_path / RUNS[1].folder)


def test_ctrl_c_asks_the_processes_and_waits(program, tmp_path):
    program(
        "import signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: ((folder / 'saved').touch(), sys.exit(1)))\n"
        "(folder / 'began').touch()\n"
        "time.sleep(60)\n"
    )

    def sleep(seconds):
        if all((tmp_path / run.folder / "began").exists() for run in RUNS[:2]):
            raise KeyboardInterrupt

    runner_time = runner.time.sleep
    runner.time.sleep = sleep
    try:
        with pytest.raises(KeyboardInterrupt):
            train(RUNS, tmp_path, lambda run: {}, 2, lambda line: None)
    finally:
        runner.time.sleep = runner_time
    assert all((tmp_path / run.folder / "saved").exists() for run in RUNS[:2])
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.slow
def test_no_more_at_a_time_than_asked_for(program, tmp_path):
    program(
        "(folder.parent / f'{folder.name}.on').touch()\n"
        "two, limit = folder.parent / 'two', time.monotonic() + 60\n"
        "while len(list(folder.parent.glob('*.on'))) < 2 and not two.exists():\n"
        "    assert time.monotonic() < limit\n"
        "two.touch()\n"
        "time.sleep(0.3)\n"
        "on = len(list(folder.parent.glob('*.on')))\n"
        "(folder.parent / f'{folder.name}.on').unlink()\n"
        "(folder / 'beside').write_text(str(on))\n" + WHOLE
    )
    train(RUNS, tmp_path, lambda run: {}, 2, lambda line: None)
    beside = [int((tmp_path / run.folder / "beside").read_text()) for run in RUNS]
    assert max(beside) <= 2


def test_a_run_knows_its_table_and_a_terminals_ctrl_c_reaches_it_once(program, tmp_path):
    told = "[int(sys.argv[4]), os.getppid(), os.getpgrp()]"
    program(f"import os\n(folder / 'told').write_text(json.dumps({told}))\n" + WHOLE)
    train(RUNS[:1], tmp_path, lambda run: {}, 1, lambda line: None)
    table, parent, group = json.loads((tmp_path / RUNS[0].folder / "told").read_text())
    assert table == parent == os.getpid()
    assert group != os.getpgrp()


@pytest.mark.slow
def test_a_run_of_a_table_that_is_gone_ends():
    watch = (
        "import sys, time\nfrom experiments.table1.one_run import _end_with\n"
        "_end_with(int(sys.argv[1]))\ntime.sleep(int(sys.argv[2]))\nprint('lives')"
    )
    for table, seconds, said in ((0, 100, ""), (os.getpid(), 1, "lives\n")):
        child = subprocess.run(
            [sys.executable, "-c", watch, str(table), str(seconds)], capture_output=True, text=True
        )
        assert (child.returncode, child.stdout) == (int(not said), said), child.stderr


def test_durations():
    assert in_seconds("0:00:01.5") == 1.5
    assert in_seconds("1:02:03") == 3723
    assert in_seconds("2 days, 0:00:10") == 2 * 86400 + 10


def test_an_estimate_goes_by_task_and_arm(tmp_path):
    estimate = Estimate([], tmp_path)
    assert estimate.seconds(RUNS) == 0
    estimate.add(RUNS[0], 10.0)
    assert estimate.seconds(RUNS[:2]) == 20  # nothing else is known
    estimate.add(RUNS[1], 30.0)
    assert estimate.seconds(RUNS) == 80
    quarter = RUNS[0]._replace(fraction=0.25)  # converges in more epochs
    assert estimate.seconds([quarter]) == 5
    estimate.add(quarter, 20.0)
    assert estimate.seconds(RUNS[:1]) == (10 + 40) / 2
    make(tmp_path, RUNS[0], 0.5)
    assert (tmp_path / RUNS[0].folder / ITEMS).exists()
    assert Estimate(RUNS, tmp_path).seconds(RUNS[:1]) == pytest.approx(1800.5)
