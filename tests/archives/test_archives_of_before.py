"""
An archive made by an earlier commit loads, and gives the numbers that it gave there.

`ner_8c5f6a4.*`: a CRF tagger with a tiny random biLM (`tiny_bilm.random_bilm`), inlined options,
`primed`, three epochs, made and evaluated by `allennlp` at commit 8c5f6a4, before the kernels had a
room of their own.
"""

import json
from pathlib import Path

import pytest
import torch
from allennlp.data.data_loaders import SimpleDataLoader
from allennlp.models import load_archive
from allennlp.training.util import evaluate

import elmo_plugin.plugin  # noqa: F401

HERE = Path(__file__).parent


def test_a_tagger_of_8c5f6a4():
    archive = load_archive(HERE / "ner_8c5f6a4.tar.gz")
    instances = list(archive.validation_dataset_reader.read(HERE / "ner_8c5f6a4_dev.txt"))
    loader = SimpleDataLoader(instances, batch_size=8, vocab=archive.model.vocab)
    stored = json.loads((HERE / "ner_8c5f6a4.json").read_text(encoding="utf-8"))
    found = evaluate(archive.model, loader)
    for name, value in stored["metrics"].items():
        assert found[name] == pytest.approx(value, abs=1e-6, rel=1e-6), name
    for instance, expected in zip(instances, stored["predictions"], strict=True):
        output = archive.model.forward_on_instance(instance)
        assert output["tags"] == expected["tags"]
        logits = torch.from_numpy(output["logits"])[: len(expected["logits"])]
        torch.testing.assert_close(logits, torch.tensor(expected["logits"]), atol=2e-6, rtol=1e-5)
