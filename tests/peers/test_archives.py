"""Archives of `esim` and `bcn` move between here and allennlp-models, with the same predictions."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.predictors import Predictor

from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions

pytest.importorskip(
    "allennlp_models", reason="allennlp-models is not installed; `make peers` installs it apart"
)
pytestmark = pytest.mark.peers

ROOT = Path(__file__).parents[2]
INPUTS = {
    "esim": {"premise": "A dog runs in the park .", "hypothesis": "It moves ."},
    "bcn": {"sentence": "The walk was long but splendid ."},
}
# Runs with allennlp-models alone, the plugin not even importable.
STOCK = """
import json, sys
import allennlp_models.classification, allennlp_models.pair_classification
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.models import Model
from allennlp.predictors import Predictor

folder, inputs, outputs = sys.argv[1], json.loads(sys.argv[2]), {}
for name, predictor in zip(inputs, ("textual_entailment", "text_classifier")):
    assert Model.by_name(name).__module__.startswith("allennlp_models.")
    train_model(Params.from_file(f"{folder}/{name}.json"), f"{folder}/{name}.theirs")
    for maker in ("ours", "theirs"):
        archive = Predictor.from_path(f"{folder}/{name}.{maker}", predictor)
        outputs[f"{name}.{maker}"] = archive.predict_json(inputs[name])
assert "elmo_plugin" not in sys.modules
print(json.dumps(outputs))
"""


def configurations(folder):
    options = ElmoOptions(3, 5, 2, 4, ((1, 2), (2, 3)), 1)
    save_weights(BiLm(options), folder / "weights.hdf5")
    (folder / "options.json").write_text(json.dumps(options_dict(options)))
    files = {
        "options_file": str(folder / "options.json"),
        "weight_file": str(folder / "weights.hdf5"),
    }

    def lstm(size):
        return {"type": "lstm", "input_size": size, "hidden_size": 3, "bidirectional": True}

    def dense(size, output, activation="relu"):
        return {
            "input_dim": size,
            "num_layers": 1,
            "hidden_dims": output,
            "activations": activation,
        }

    tokenizer = {"type": "just_spaces"}
    trainer = {"num_epochs": 1, "optimizer": "adam", "cuda_device": -1}
    words = {"tokens": {"type": "embedding", "embedding_dim": 4}}
    yield (
        "esim",
        {
            "dataset_reader": {
                "type": "snli",
                "tokenizer": tokenizer,
                "token_indexers": {"elmo": {"type": "elmo_characters"}},
            },
            "train_data_path": str(ROOT / "examples/snli/dev.jsonl"),
            "model": {
                "type": "esim",
                "text_field_embedder": {
                    "token_embedders": {"elmo": {"type": "elmo_token_embedder", **files}}
                },
                "encoder": lstm(6),
                "matrix_attention": {"type": "dot_product"},
                "projection_feedforward": dense(24, 4),
                "inference_encoder": lstm(4),
                "output_feedforward": dense(24, 4),
                "output_logit": dense(4, 3, "linear"),
            },
            "data_loader": {"batch_size": 32, "shuffle": True},
            "trainer": trainer,
        },
    )
    yield (
        "bcn",
        {
            "dataset_reader": {
                "type": "sst_tokens",
                "tokenizer": tokenizer,
                "token_indexers": {"tokens": "single_id", "elmo": "elmo_characters"},
            },
            "train_data_path": str(ROOT / "examples/sst/dev.txt"),
            "model": {
                "type": "bcn",
                "text_field_embedder": {"token_embedders": words},
                "embedding_dropout": 0.1,
                "pre_encode_feedforward": dense(4 + 6, 4),
                "encoder": lstm(4),
                "integrator": lstm(18),
                "integrator_dropout": 0.1,
                "output_layer": {
                    "input_dim": 4 * (6 + 6),
                    "num_layers": 2,
                    "output_dims": [4, 5],
                    "pool_sizes": 2,
                },
                "elmo": {**files, "num_output_representations": 2},
                "use_input_elmo": True,
                "use_integrator_output_elmo": True,
            },
            "data_loader": {"batch_size": 32, "shuffle": True},
            "trainer": trainer,
        },
    )


def test_archives_move_both_ways(tmp_path):
    for name, config in configurations(tmp_path):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(config))
        train_model(Params.from_file(path), tmp_path / f"{name}.ours")
    child = subprocess.run(
        [sys.executable, "-c", STOCK, str(tmp_path), json.dumps(INPUTS)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert child.returncode == 0, child.stderr
    theirs = json.loads(child.stdout.splitlines()[-1])
    assert len(theirs) == 4
    for case, expected in theirs.items():
        predictor = Predictor.from_path(tmp_path / case)
        assert type(predictor._model).__module__.startswith("elmo_plugin.")
        found = predictor.predict_json(INPUTS[case.split(".")[0]])
        assert found.keys() - {"probabilities"} == expected.keys()
        for key, value in expected.items():
            if isinstance(value, str) or isinstance(value[0], str):
                assert found[key] == value
            else:
                assert found[key] == pytest.approx(value, abs=1e-5)
