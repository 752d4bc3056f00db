"""The coreference benchmark runs, and its targets of memory and speed hold."""

from unittest import mock

import pytest
import torch

from benchmarks import coref


def test_concatenated_pairs_give_the_same_scores(monkeypatch):
    resolver, batch = coref.model().eval(), coref.document(60)
    expected = resolver(**batch)["loss"]
    concatenated = mock.Mock(wraps=coref.concatenated)
    monkeypatch.setattr(coref, "concatenated", concatenated)
    with coref.concatenate_pairs():
        torch.testing.assert_close(resolver(**batch)["loss"], expected)
    concatenated.assert_called_once()


@pytest.mark.slow
def test_a_training_step_of_1000_words_takes_less_than_3_gb():
    assert coref.measure("step", 1000, 1)["peak"] < 3000


@pytest.mark.slow
def test_a_training_step_takes_half_the_time_of_concatenated_pairs():
    """The processor's time, which others do not change; it is a quarter, or less."""
    step, concatenated = (coref.measure(kind, 500, 1) for kind in ("step", "concatenated"))
    assert step["least"] < concatenated["least"] / 2


@pytest.mark.slow
def test_a_document_of_5000_tokens_is_predicted_within_4_gb():
    assert coref.measure("predict", 5000, 1)["peak"] < 4000
