"""The coreference benchmark runs, and its targets of memory and speed hold."""

import pytest
import torch

from benchmarks import coref
from elmo_plugin.modules.coref import pairs


def test_concatenated_pairs_give_the_same_scores(monkeypatch):
    resolver, batch = coref.model().eval(), coref.document(60)
    expected = resolver(**batch)["loss"]
    monkeypatch.setattr(pairs, "pair_scores", coref.concatenated)
    torch.testing.assert_close(resolver(**batch)["loss"], expected)


@pytest.mark.slow
def test_a_training_step_of_1000_words_takes_less_than_3_gb_and_half_the_time():
    step, concatenated = coref.measure("step", 1000, 1), coref.measure("concatenated", 1000, 1)
    assert step["peak"] < 3000
    assert step["least"] < concatenated["least"] / 2


@pytest.mark.slow
def test_a_document_of_5000_tokens_is_predicted_within_4_gb():
    assert coref.measure("predict", 5000, 1)["peak"] < 4000
