import numpy
import pytest
import torch
from allennlp.data import Vocabulary
from allennlp.training.metrics import BooleanAccuracy, CategoricalAccuracy

from elmo_plugin.metrics.conll_coref import ConllCorefScores
from elmo_plugin.metrics.conlleval import Conlleval
from elmo_plugin.metrics.squad import SquadEmAndF1
from elmo_plugin.metrics.srl_eval import SrlEvalScorer
from experiments.table1.item_scores import SCORES, paired_bootstrap, score, scored_metric
from experiments.table1.tasks import TASKS
from tests.metrics import test_conll_coref


def test_every_task_has_a_score():
    for task in TASKS.values():
        assert 0 <= score(task.metric, numpy.ones(SCORES[task.metric][0])) <= 1


def test_by_hand():
    assert score("accuracy", [3, 4]) == 0.75
    assert score("f1-measure-overall", [2, 4, 6]) == pytest.approx(0.4)
    assert score("f1-measure-overall", [0, 0, 0]) == 0
    assert score("f1", [1, 2.5, 4]) == pytest.approx(2.5 / 4)
    # Precision 1/2, recall 1/4; precision 1, recall 1; nothing.
    assert score("coref_f1", [1, 2, 1, 4, 2, 2, 3, 3, 0, 0, 0, 0]) == pytest.approx(
        (1 / 3 + 1 + 0) / 3
    )


def conlleval():
    vocab = Vocabulary()
    for tag in ("O", "B-X", "I-X", "B-Y"):
        vocab.add_token_to_namespace(tag, "labels")
    metric = Conlleval(vocab, "labels")
    metric(torch.eye(4)[torch.tensor([[1, 2, 0, 3]])], torch.tensor([[1, 2, 3, 0]]))
    return metric, metric.get_metric()["f1-measure-overall"]


def srl():
    metric = SrlEvalScorer(ignore_classes=["V"])
    gold, predicted = ["(A0*)", "(V*)", "(A1*", "*)"], ["(A0*)", "(V*)", "(A1*)", "*"]
    metric([1], [["a", "b", "c", "d"]], [predicted], [gold])
    return metric, metric.get_metric()["f1-measure-overall"]


def squad():
    metric = SquadEmAndF1()
    metric(["a red mill", "a dog"], [["the red mill", "mill"], ["a cat"]])
    return metric, metric.get_metric()[1]


def coref():
    metric = ConllCorefScores()
    metric(*test_conll_coref.batch("ab cd", "abc"))
    return metric, metric.get_metric()[2]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (conlleval, "f1-measure-overall"),
        (srl, "f1-measure-overall"),
        (squad, "f1"),
        (coref, "coref_f1"),
    ],
)
def test_counts_give_the_metric(make, name):
    metric, expected = make()
    assert 0 < expected < 1
    assert score(name, metric.counts()) == pytest.approx(expected)
    metric.reset()
    assert not any(metric.counts())


class Model:
    def __init__(self, **parts):
        self.metrics = {}
        vars(self).update(parts)


def test_the_metric_that_counts():
    accuracy, f1 = CategoricalAccuracy(), SquadEmAndF1()
    assert scored_metric(Model(a=1, b=accuracy)) is accuracy
    assert scored_metric(Model(metrics={"accuracy": accuracy})) is accuracy
    assert scored_metric(Model(a=accuracy, b=f1)) is f1
    with pytest.raises(ValueError, match="Model has no metric with counts"):
        scored_metric(Model(a=BooleanAccuracy()))


def test_bootstrap_of_what_is_equal_or_always_better():
    counts = numpy.array([[1.0, 1.0], [0.0, 1.0]] * 20)
    assert paired_bootstrap("accuracy", [counts], [counts], resamples=200) == 1
    better = numpy.ones_like(counts)
    assert paired_bootstrap("accuracy", [counts], [better], resamples=199) == 1 / 200
    assert paired_bootstrap("accuracy", [better], [counts], resamples=199) == 1


def test_bootstrap_equals_drawing_items_one_by_one():
    generator = numpy.random.default_rng(3)
    before = [generator.integers(0, 2, (30, 3)).astype(float) for _ in range(2)]
    after = [generator.integers(0, 2, (30, 3)).astype(float) for _ in range(3)]
    lost, resamples = 0, 4000
    for _ in range(resamples):
        drawn = generator.integers(0, 30, 30)
        means = [
            numpy.mean([score("f1-measure-overall", run[drawn].sum(axis=0)) for run in arm])
            for arm in (before, after)
        ]
        lost += means[1] <= means[0]
    found = paired_bootstrap("f1-measure-overall", before, after, resamples=resamples)
    assert 0.02 < found < 0.98
    assert found == pytest.approx(lost / resamples, abs=0.04)
