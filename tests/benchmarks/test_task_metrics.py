"""Metrics in lower precision, of a tagger that is trained here."""

import json
import sys

import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params

from benchmarks import task_metrics
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.kernels.backend import WeightsModule
from tests.tagging_task import tagger_config, with_elmo, write_task
from tests.tiny_bilm import random_bilm, write


def test_where_an_elmo_stands():
    model = {
        "type": "bcn",
        "elmo": {"options": {"lstm": {}}, "num_output_representations": 2},
        "text_field_embedder": {
            "token_embedders": {
                "tokens": {"type": "embedding"},
                "both": {"type": "elmo_token_embedder", "options": {}},
            }
        },
    }
    assert list(task_metrics.elmo_paths(model)) == [
        "model.elmo",
        "model.text_field_embedder.token_embedders.both",
    ]


@pytest.mark.slow
def test_each_dtype_is_evaluated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    write(tmp_path)
    options = random_bilm().options
    config = with_elmo(
        tagger_config(),
        options.embedding_dim,
        options=options_dict(options),
        pretrained_file="weights.hdf5",
        state="reset",
    )
    config["trainer"].update(validation_metric="+accuracy", num_epochs=3)
    train_model(Params(config), "tagger")
    dtypes = []
    evaluate = task_metrics.evaluate

    def watched(archive, data):
        found = {one.dtype for one in archive.model.modules() if isinstance(one, WeightsModule)}
        dtypes.append(found)
        return evaluate(archive, data)

    monkeypatch.setattr(task_metrics, "evaluate", watched)
    monkeypatch.setattr(sys, "argv", ["task_metrics", "tagger/model.tar.gz", "dev.txt",
                                      "--reports", "reports"])  # fmt: skip
    task_metrics.main()
    assert dtypes == [{None}, {"bfloat16"}, {"int8"}]
    (report,) = (tmp_path / "reports").glob("*-task-metrics.md")
    model, data, metric, decisions, exact, *_ = report.read_text().splitlines()[-1].split(" | ")
    assert (model, data, metric) == ("| tagger", "dev.txt", "accuracy")
    assert int(decisions) == (tmp_path / "dev.txt").read_text().count("###")
    trained = json.loads((tmp_path / "tagger" / "metrics.json").read_text())
    assert 0 < trained["best_validation_accuracy"] < 1
    assert float(exact) == pytest.approx(100 * trained["best_validation_accuracy"], abs=0.006)


def test_a_file_without_its_pair(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["task_metrics", "model.tar.gz"])
    with pytest.raises(SystemExit):
        task_metrics.main()
    assert "1 files given, expected pairs" in capsys.readouterr().err
