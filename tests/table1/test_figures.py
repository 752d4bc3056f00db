from made_runs import make

from elmo_plugin.table1.figures import layer_weights, learning_curves
from elmo_plugin.table1.plan import plan


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
