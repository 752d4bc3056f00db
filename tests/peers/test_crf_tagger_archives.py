"""Archives of `crf_tagger` move between here and allennlp-models, with the same tags."""

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.models import load_archive
from tiny_bilm import write

pytest.importorskip(
    "allennlp_models", reason="allennlp-models is not installed; `make peers` installs it apart"
)
pytestmark = pytest.mark.peers

DATA = str(Path(__file__).parents[2] / "examples/ner/dev.txt")
NUM_SENTENCES = 20
# Runs with allennlp-models alone, the plugin not even importable.
STOCK = """
import json, sys
import allennlp_models.tagging
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.models import Model, load_archive

assert Model.by_name("crf_tagger").__module__.startswith("allennlp_models.")
train_model(Params.from_file("crf_tagger.json"), "theirs")
outputs = {}
for maker in ("ours", "theirs"):
    archive = load_archive(maker)
    instances = list(archive.dataset_reader.read(sys.argv[1]))[:int(sys.argv[2])]
    found = archive.model.eval().forward_on_instances(instances)
    outputs[maker] = [[one["tags"], one["logits"].tolist()] for one in found]
assert "elmo_plugin" not in sys.modules
print(json.dumps(outputs))
"""


def config(folder):
    options, weights = write(folder)
    elmo = {
        "type": "elmo_token_embedder",
        "options_file": str(options),
        "weight_file": str(weights),
    }
    dim = 2 * json.loads(Path(options).read_text())["lstm"]["projection_dim"]
    return {
        "dataset_reader": {
            "type": "conll2003",
            "tag_label": "ner",
            "convert_to_coding_scheme": "BIOUL",
            "token_indexers": {"tokens": "single_id", "elmo": "elmo_characters"},
        },
        "train_data_path": DATA,
        "model": {
            "type": "crf_tagger",
            "label_encoding": "BIOUL",
            "text_field_embedder": {
                "token_embedders": {
                    "tokens": {"type": "embedding", "embedding_dim": 4},
                    "elmo": elmo,
                }
            },
            "encoder": {
                "type": "lstm",
                "input_size": 4 + dim,
                "hidden_size": 3,
                "bidirectional": True,
            },
        },
        "data_loader": {"batch_size": 16, "shuffle": True},
        "trainer": {"num_epochs": 1, "optimizer": "adam", "cuda_device": -1},
    }


def test_archives_move_both_ways(tmp_path):
    (tmp_path / "crf_tagger.json").write_text(json.dumps(config(tmp_path)))
    train_model(Params.from_file(tmp_path / "crf_tagger.json"), tmp_path / "ours")
    child = subprocess.run(
        [sys.executable, "-c", STOCK, DATA, str(NUM_SENTENCES)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert child.returncode == 0, child.stderr
    theirs = json.loads(child.stdout.splitlines()[-1])
    for maker in ("ours", "theirs"):
        archive = load_archive(tmp_path / maker)
        assert type(archive.model).__module__.startswith("elmo_plugin.")
        instances = list(archive.dataset_reader.read(DATA))[:NUM_SENTENCES]
        found = archive.model.eval().forward_on_instances(instances)
        for (tags, logits), one in zip(theirs[maker], found, strict=True):
            assert one["tags"] == tags
            numpy.testing.assert_allclose(one["logits"], logits, rtol=0, atol=1e-5)
