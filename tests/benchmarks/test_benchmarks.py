"""The benchmark's command on tiny shapes: it runs through, and its report has every part."""

import contextlib
import importlib
import io
import json
import runpy
import sys
import time

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import (
    extraction,
    fine_tuning,
    inference,
    memory,
    ner_epoch,
    noisy_neighbours,
    pretraining,
    rounds,
    startup,
    workload,
)
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions

TINY = ElmoOptions(8, 16, 2, 4, ((1, 4), (2, 6)), 1)
# As wide as the released setup's tagger expects.
WIDE = ElmoOptions(512, 16, 2, 4, ((1, 4), (2, 6)), 1)


def test_a_round_that_the_machine_slowed_down_is_repeated(monkeypatch):
    rates = iter([100, 100, 100, 100, 80, 100, 99, 95, 97])
    monkeypatch.setattr(rounds, "MatrixRate", lambda clock: lambda: next(rates))
    ticks = iter(range(100))
    works = {"stock": lambda: None, "ours": lambda: None}
    found = rounds.in_turn(lambda: works, rounds=3, clock=lambda: next(ticks))
    assert found["rounds"] == 3
    assert found["repeated_rounds"] == 1
    assert found["torch.mm_gflops"]["least"] == 95
    assert found["candidates"]["ours"]["ratio"] == 1


@pytest.mark.slow
@pytest.mark.usefixtures("steady_machine")
def test_epochs_of_ner_after_the_first_only_read(monkeypatch, tmp_path):
    monkeypatch.setattr(workload, "SHAPES", {"original": WIDE})
    monkeypatch.setattr(ner_epoch, "NUM_SENTENCES", 8)
    runs = []
    run = BiLm.run
    monkeypatch.setattr(BiLm, "run", lambda *ids: runs.append(1) or run(*ids))
    found = ner_epoch.run(workload.write_weights("original", tmp_path), 2, time.perf_counter)
    assert len(runs) == 2  # one batch, two caches
    assert found["rounds"] == 2
    assert found["losses_differ"] == 0
    assert found["candidates"]["ready vectors"]["ratio"] == 1
    for name in ner_epoch.CACHES:
        one = found["candidates"][name]
        assert 0 < one["least"] <= one["ratio"] <= one["most"]


def run_here(module, *arguments, threads=None):
    """`in_process` in this process, which has imported AllenNLP."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(sys, "argv", [module, *map(str, arguments)])
        importlib.import_module(f"benchmarks.{module}").main()
    return json.loads(printed.getvalue().splitlines()[-1])


@pytest.mark.slow
@pytest.mark.usefixtures("steady_machine")
def test_the_whole_command(monkeypatch, tmp_path):
    # Most of its time would go to processes that import AllenNLP.
    for module in (fine_tuning, memory, noisy_neighbours):
        monkeypatch.setattr(module, "in_process", run_here)
    monkeypatch.setattr(startup, "COMMANDS", {"import torch": (["-c", "import json"], True)})
    monkeypatch.setattr(inference, "DTYPES", (None, "int8"))
    monkeypatch.setattr(noisy_neighbours, "RUNS", 2)
    monkeypatch.setattr(workload, "SHAPES", {"original": WIDE, "small": TINY})
    monkeypatch.setattr(ner_epoch, "NUM_SENTENCES", 8)
    monkeypatch.setattr(pretraining, "OPTIONS", TINY)
    monkeypatch.setattr(pretraining, "BATCH_SIZE", 3)
    monkeypatch.setattr(pretraining, "NUM_STEPS", 4)
    monkeypatch.setattr(command, "QUICK", [("original", 1, 1), ("original", 64, 1)])
    monkeypatch.setattr(command, "LINES", (70, 70))
    monkeypatch.setattr(command, "ROUNDS", (1, 1))
    # Threads that wait for each other would take minutes on a busy machine.
    arguments = ["--quick", "--threads", "1", "--reports", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    threads = torch.get_num_threads()
    try:
        command.main()
    finally:
        torch.set_num_threads(threads)
    (report,) = tmp_path.glob("*.md")
    (results,) = tmp_path.glob("*.json")
    found = json.loads(results.read_text())
    batch_64 = found["inference"][1]
    assert batch_64["candidates"]["stock"]["ratio"] == 1
    without_cache = {"stock", "float32 cold", "int8 cold", inference.WITHOUT_LIBRARY}
    shares = {name: one["share"] for name, one in batch_64["candidates"].items() if "share" in one}
    assert shares.keys() == without_cache
    assert batch_64["largest_deviation"]["float32"] < 1e-5 < batch_64["largest_deviation"]["int8"]
    assert found["pretraining"]["difference"]["largest_gradient"] < 1e-4
    assert found["memory"]["stock"]["whole"] > 100
    losses = [one["losses"] for one in found["fine_tuning"].values()]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[2] == pytest.approx(losses[1], rel=1e-4)
    trained = *found["fine_tuning"].values(), *found["pretraining"]["candidates"].values()
    assert len(trained) == 3 + 4
    assert all(0 < share < 10 for share in (*shares.values(), *(one["share"] for one in trained)))
    assert found["extraction"]["lines"] == 70
    assert found["startup"]["import torch"] > 0
    neighbours = found["noisy_neighbours"]
    assert list(neighbours) == ["quiet", "one a core"]
    for one in neighbours.values():
        assert tuple(one) == noisy_neighbours.CANDIDATES
        assert all(0 < times["median"] <= times["worst"] for times in one.values())
    header, *cells = noisy_neighbours.rows(neighbours)
    assert header[1] == "stock, median (worst), s"
    assert [row[0] for row in cells] == list(neighbours)
    for heading in (
        "## A fine-tuning step",
        "## Extraction",
        "## Startup",
        "## Original, batch 1",
        "## Peak memory",
        "## An epoch",
    ):
        assert heading in report.read_text()


def test_lines_of_the_sample_again_and_again(tmp_path):
    tokens = extraction.write_lines(tmp_path / "lines.txt", 2_000, None)
    lines = (tmp_path / "lines.txt").read_text("utf-8").splitlines()
    assert len(lines) == 2_000
    assert sum(len(line.split()) for line in lines) == tokens
    assert all(line.split() for line in lines)


@pytest.mark.filterwarnings("ignore:'benchmarks.__main__' found in sys.modules")
def test_it_is_run_as_a_module(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--help"])
    with pytest.raises(SystemExit) as exit_:
        runpy.run_module("benchmarks", run_name="__main__")
    assert exit_.value.code == 0
    assert "--quick" in capsys.readouterr().out
