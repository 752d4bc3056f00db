"""Archives of `srl` move between here and allennlp-models, with the same tags and probabilities."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.models.archival import load_archive

pytest.importorskip(
    "allennlp_models", reason="allennlp-models is not installed; `make peers` installs it apart"
)
pytestmark = pytest.mark.peers

DATA = str(Path(__file__).parents[2] / "examples/srl/dev")
CONFIG = {
    "dataset_reader": {"type": "srl"},
    "train_data_path": DATA,
    "model": {
        "type": "srl",
        "text_field_embedder": {
            "token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 4}}
        },
        "binary_feature_dim": 3,
        "encoder": {
            "type": "alternating_lstm",
            "input_size": 7,
            "hidden_size": 6,
            "num_layers": 3,
            "recurrent_dropout_probability": 0.1,
        },
    },
    "data_loader": {"batch_size": 16, "shuffle": True},
    "trainer": {"num_epochs": 1, "optimizer": "adam", "cuda_device": -1},
}
# Runs with allennlp-models alone, the plugin not even importable.
STOCK = """
import json, sys
import allennlp_models.structured_prediction
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.models.archival import load_archive

folder, data = sys.argv[1:]
train_model(Params.from_file(f"{folder}/config.json"), f"{folder}/theirs")
found = {}
for maker in ("ours", "theirs"):
    archive = load_archive(f"{folder}/{maker}/model.tar.gz")
    assert type(archive.model).__module__.startswith("allennlp_models.")
    instances = list(archive.dataset_reader.read(data))
    outputs = archive.model.forward_on_instances(instances)
    found[maker] = [[o["tags"], o["class_probabilities"].tolist()] for o in outputs]
assert "elmo_plugin" not in sys.modules
print(json.dumps(found))
"""


def test_archives_move_both_ways(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    train_model(Params.from_file(path), tmp_path / "ours")
    child = subprocess.run(
        [sys.executable, "-c", STOCK, str(tmp_path), DATA],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert child.returncode == 0, child.stderr
    expected = json.loads(child.stdout.splitlines()[-1])
    for maker in ("ours", "theirs"):
        archive = load_archive(tmp_path / maker / "model.tar.gz")
        assert type(archive.model).__module__ == "elmo_plugin.models.srl"
        instances = list(archive.dataset_reader.read(DATA))
        outputs = archive.model.forward_on_instances(instances)
        assert len(outputs) == len(expected[maker]) > 60
        for output, (tags, probabilities) in zip(outputs, expected[maker], strict=True):
            assert output["tags"] == tags
            found = output["class_probabilities"].flatten().tolist()
            assert found == pytest.approx([p for row in probabilities for p in row], abs=1e-5)
