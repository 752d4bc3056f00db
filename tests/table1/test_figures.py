from made_runs import make

from elmo_plugin.commands.layer_weights import LearnedMix
from elmo_plugin.table1.figures import layer_weights, learning_curves
from elmo_plugin.table1.plan import ELMO, plan
from elmo_plugin.table1.report import write
from elmo_plugin.table1.results import read_known


def test_learning_curves(tmp_path):
    runs = plan(["sst5", "ner"], 2, [0.1, 1])
    for run in runs:
        make(tmp_path, run, run.fraction / 2 + 0.01 * run.seed)
    path = learning_curves(runs, tmp_path)
    drawn = path.read_text()
    assert drawn.count("<!-- with ELMo -->") == 2
    assert "<!-- % of the training set -->" in drawn
    assert "<!-- SST-5 -->" in drawn


def test_no_curve_of_one_part(tmp_path):
    runs = plan(["sst5"], 1)
    for run in runs:
        make(tmp_path, run, 0.5)
    assert learning_curves(runs, tmp_path) is None


def test_no_weights_without_runs(tmp_path):
    assert layer_weights(plan(["sst5"], 1), tmp_path) is None


def test_weights_of_each_task(tmp_path):
    """Of the first seed there is, here or made elsewhere; two mixes are input and output."""
    there, here = tmp_path / "there", tmp_path / "here"
    runs = plan(["squad", "sst5"], 2)
    for run in runs:
        mixes = [
            LearnedMix(f"elmo {place}", [0.1 * run.seed, 0.25, 0.75 - 0.1 * run.seed], 0.5 + place)
            for place in range({"squad": 2, "sst5": 1}[run.task])
        ]
        folder = here if run.task == "sst5" else there
        make(folder, run, 0.5, ((1, 1, 1), (0, 1, 1)), mixes=mixes * (run.arm == ELMO))
    write(runs, there, {})
    known = read_known(there / "runs.csv")
    write(runs, here, {}, known)
    drawn = layer_weights(runs, here, known).read_text()
    # The next table takes both from this one's.
    (tmp_path / "next").mkdir()
    known = read_known(here / "runs.csv")
    assert list(known.mixes) == [run for run in runs if run.arm == ELMO]
    again = layer_weights(runs, tmp_path / "next", known).read_text()
    for text in (drawn, again):
        assert all(f"<!-- {one} -->" in text for one in ("SQuAD input", "SQuAD output", "SST-5"))
        assert text.count("<!-- 0.10 -->") == text.count("<!-- 0.65 -->") == 3
        assert "<!-- 0.55 -->" not in text
        assert "<!-- γ = 1.50 -->" in text
