"""Decoding and scoring of semantic roles."""

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from tests.models.tasks import build, instances, srl, tensors


def test_decoding_by_hand():
    # Token by token I-ARG0 is the most probable; it may stand behind B-ARG0 alone.
    model = build(srl())
    index = model.vocab.get_token_to_index_vocabulary("labels")
    probabilities = torch.full((1, 3, len(index)), 0.01)
    for position, (tag, probability) in enumerate([("I-ARG0", 0.5), ("I-ARG0", 0.5), ("O", 0.6)]):
        probabilities[0, position, index[tag]] = probability
    probabilities[0, 0, index["B-ARG1"]] = 0.3
    probabilities[0, 0, index["B-ARG0"]] = 0.2
    mask = torch.tensor([[True, True, True]])
    output = {"class_probabilities": probabilities, "mask": mask}
    # B-ARG0 I-ARG0: 0.2 + 0.5; B-ARG1 and what may follow it: 0.3 + 0.01.
    assert model.make_output_human_readable(output)["tags"] == [["B-ARG0", "I-ARG0", "O"]]
    # Sums of probabilities, as AllenNLP has it, not of logarithms: 0.5 + 0.11 is more than
    # 0.3 + 0.3, and 0.5 x 0.11 less than 0.3 x 0.3.
    probabilities[0] = 0.01
    probabilities[0, 0, index["B-ARG0"]] = 0.5
    probabilities[0, 0, index["B-ARG1"]] = 0.3
    probabilities[0, 1, index["I-ARG0"]] = 0.11
    probabilities[0, 1, index["I-ARG1"]] = 0.3
    probabilities[0, 2, index["O"]] = 0.9
    assert model.make_output_human_readable(output)["tags"] == [["B-ARG0", "I-ARG0", "O"]]


def test_a_perfect_prediction_scores_one():
    model = build(srl())
    batch = tensors(model, instances(srl()))
    right = torch.nn.functional.one_hot(batch["tags"], model.num_classes).float()
    model._score(
        {"class_probabilities": right, "mask": batch["tokens"]["tokens"]["tokens"] != 0},
        batch["metadata"],
    )
    assert model.get_metrics(reset=True) == {
        "precision-overall": 1.0,
        "recall-overall": 1.0,
        "f1-measure-overall": 1.0,
    }
    assert model.get_metrics()["f1-measure-overall"] == 0.0


def test_training_does_not_score_and_metadata_is_not_needed_to_predict():
    model = build(srl()).train()
    model(**tensors(model, instances(srl())))
    assert model.get_metrics()["recall-overall"] == 0.0
    assert not any(model.span_metric.counts())
    model.eval()
    batch = tensors(model, instances(srl()))
    output = model(batch["tokens"], batch["verb_indicator"])
    assert "loss" not in output
    assert "words" not in output


def test_without_script_asking_for_a_score_is_an_error():
    model = build(srl(srl_eval_path=None))
    model(**tensors(model, instances(srl())))
    with pytest.raises(ConfigurationError, match="srl_eval_path: null and ignore_span_metric"):
        model.get_metrics()
    assert build(srl(ignore_span_metric=True)).get_metrics() == {}
