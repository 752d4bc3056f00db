import json
import sys
from pathlib import Path

import pytest

from elmo_plugin.__main__ import main


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("texts.jsonl").write_text(json.dumps({"text": "the boat sank", "label": "sad"}) + "\n")
    config = {
        "dataset_reader": {"type": "text_classification_json"},
        "train_data_path": "texts.jsonl",
        "model": {
            "type": "basic_classifier",
            "text_field_embedder": {
                "token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 10}}
            },
            "seq2vec_encoder": {"type": "lstm", "input_size": 10, "hidden_size": 4},
        },
        "data_loader": {"batch_size": 2},
        "trainer": {"num_epochs": 1, "optimizer": "adam"},
    }
    Path("mine.jsonnet").write_text(json.dumps(config))
    return config


PRINTED = """--- my own.jsonnet
+++ my own_elmo.jsonnet
@@ dataset_reader.token_indexers: READER
+ {"tokens": {"type": "single_id"}, "elmo": {"type": "elmo_characters"}}
@@ model.text_field_embedder.token_embedders.elmo: ELMo adds 512 elements to each token's vector
+ {"type": "elmo_token_embedder", "options_file": "embedded", "dropout": 0.0}
@@ model.seq2vec_encoder.input_size: its input grows by 512
- 10
+ 522
checked: one batch of the data's first instances was run with embedded: FINITE
to train it: allennlp train 'my own_elmo.jsonnet' -s FOLDER --include-package elmo_plugin
""".replace("FINITE", "loss and gradients are finite").replace(
    "READER", "the reader also gives each token's characters, beside its own indexers"
)


def test_it_prints_what_it_writes_and_the_result_trains(capsys, tmp_path):
    from allennlp.commands.train import train_model_from_file

    Path("mine.jsonnet").rename("my own.jsonnet")
    main(["add-elmo", "my own.jsonnet"])
    assert capsys.readouterr() == (PRINTED, "")
    assert '"input_size"+: 512' in Path("my own_elmo.jsonnet").read_text()
    model = train_model_from_file("my own_elmo.jsonnet", tmp_path / "run")
    assert model._seq2vec_encoder.get_input_dim() == 522


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mine.jsonnet", "-o", "texts.jsonl"], "texts.jsonl exists"),
        (["mine.jsonnet", "-o", "mine.jsonnet", "--force"], "mine.jsonnet is an input too"),
        (
            ["mine.jsonnet", "--weights", "texts.jsonl", "-o", "texts.jsonl", "--force"],
            "texts.jsonl is an input too",
        ),
        (["none.jsonnet"], "there is no config none.jsonnet"),
        (["mine.jsonnet", "--weights", "no_such"], "there is no file no_such"),
        (["mine.jsonnet", "-o", "no/folder.jsonnet"], "no"),
    ],
)
def test_it_refuses_in_one_line(arguments, message, error_line):
    before = sorted(Path().iterdir())
    assert message in error_line("add-elmo", *arguments)
    assert sorted(Path().iterdir()) == before


def test_a_model_that_stops_leaves_the_config_and_says_so(config, error_line):
    config["model"]["seq2vec_encoder"] = {"type": "cnn", "embedding_dim": 10, "num_filters": 2}
    config["model"]["seq2seq_encoder"] = {
        "type": "pytorch_transformer",
        "input_dim": 10,
        "num_layers": 1,
        "num_attention_heads": 5,
    }
    Path("mine.json").write_text(json.dumps(config))
    assert "out.json is unfinished" in error_line("add-elmo", "mine.json", "-o", "out.json")
    assert "elmo" in Path("out.json").read_text()


def test_allennlp_has_it_too(capsys, monkeypatch):
    from allennlp.commands import main as allennlp

    monkeypatch.setattr(sys, "argv", ["allennlp", "add-elmo", "mine.jsonnet", "-o", "out.jsonnet"])
    monkeypatch.chdir(Path.cwd())
    Path(".allennlp_plugins").write_text("elmo_plugin\n")
    allennlp()
    assert "gradients are finite" in capsys.readouterr().out
    assert Path("out.jsonnet").exists()
