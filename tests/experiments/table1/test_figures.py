import pytest
from made_runs import make, make_all
from matplotlib.axes import Axes

from elmo_plugin.pages.learned_mixes import LearnedMix
from experiments.table1.figures import layer_weights, learning_curves
from experiments.table1.plan import ELMO, plan
from experiments.table1.report import write
from experiments.table1.results import read_known


def test_learning_curves(tmp_path, monkeypatch):
    curves = []
    errorbar = Axes.errorbar

    def keep(axes, percents, means, deviations, label, **settings):
        curves.append((label, percents, means, deviations))
        return errorbar(axes, percents, means, deviations, label=label, **settings)

    monkeypatch.setattr(Axes, "errorbar", keep)
    runs = plan(["sst5", "ner"], 2, [0.1, 1], variant_seeds=1)
    for run in runs:
        make(tmp_path, run, run.fraction / 2 + 0.02 * run.seed + 0.2 * (run.arm == ELMO))
    drawn = learning_curves(runs, tmp_path).read_text()
    assert "<!-- % of the training set -->" in drawn
    assert drawn.index("<!-- SST-5 -->") < drawn.index("<!-- NER -->")
    assert [label for label, *_ in curves] == ["baseline", "with ELMo"] * 2
    for label, *points in curves:
        low = 27 if label == "with ELMo" else 7
        # One seed of the tenth, two of the whole.
        assert points == [pytest.approx(one) for one in ([10, 100], [low, low + 46], [0, 2**0.5])]


def test_no_curve_of_one_part(tmp_path):
    runs = plan(["sst5"], 1)
    make_all(tmp_path, runs, [0.5, 0.5])
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
        make(folder, run, 0.5, mixes=mixes * (run.arm == ELMO))
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
