"""The tagger learns, keeps to the tags' scheme, counts over processes, and predicts."""

import pytest

from elmo_plugin.models.crf_tagger import WEIGHTED_CRFS
from tests.models.tasks import build, cases, instances, ner, tensors
from tests.process_group import in_processes

BIOUL = ner(label_encoding="BIOUL")
SAMPLE = cases({})["ner, ner.jsonnet"]


@pytest.mark.parametrize("strategy", [None, *WEIGHTED_CRFS])
def test_a_sentence_of_o_tags_has_no_loss_where_these_do_not_count(strategy):
    weights = {"label_weights": {"O": 0.5}, "weight_strategy": strategy} if strategy else {}
    model = build(ner(label_encoding="BIOUL", ignore_loss_on_o_tags=True, **weights)).train()
    chosen = instances(BIOUL)
    expected = model(**tensors(model, chosen[:1]))["loss"].item()
    chosen[1]["tags"].labels = ["O"]
    assert model(**tensors(model, chosen[:2]))["loss"].item() == pytest.approx(expected)
    loss = model(**tensors(model, chosen[1:2]))["loss"]
    loss.backward()  # as the trainer does
    assert loss == 0
    assert not any(p.grad.any() for p in model.parameters() if p.grad is not None)


def metrics_in_one_of_two_processes(rank, size, expected):
    model = build(SAMPLE)
    model(**tensors(model, instances(BIOUL)[rank::size]))
    assert model.get_metrics() == pytest.approx(expected)


def test_each_of_two_processes_gets_the_metrics_of_all_sentences():
    model = build(SAMPLE)
    model(**tensors(model, instances(BIOUL)))
    expected = model.get_metrics()
    assert 0 < expected["f1-measure-overall"] < 1
    in_processes(2, metrics_in_one_of_two_processes, expected)
