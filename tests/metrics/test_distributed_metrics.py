"""Each of two processes gets the scores of all data, whatever part of it the process saw."""

import pytest
import torch
from allennlp.training.metrics import Metric

from elmo_plugin.metrics.conll_coref import ConllCorefScores
from elmo_plugin.metrics.conlleval import Conlleval
from elmo_plugin.metrics.mention_recall import MentionRecall
from elmo_plugin.metrics.squad import SquadEmAndF1
from elmo_plugin.metrics.srl_eval import SrlEvalScorer
from tests.metrics import make_srl_eval, test_conll_coref, test_conlleval
from tests.process_group import in_processes

PERSONS = test_conlleval.vocabulary(["O", "B-PER"])
DOCUMENTS = [test_conll_coref.batch(*case[:2]) for case in test_conll_coref.BY_HAND]
# One process sees a role that the other never does.
FRAMES = [(0, ["w"], ["(RARE*)"], ["(RARE*)"]), *make_srl_eval.cases(10, 40)]
# A metric, and the arguments of its calls, of which a process makes every second one.
CASES = [
    (
        lambda: Conlleval(PERSONS),
        [
            test_conlleval.tensors(PERSONS, [(["B-PER", "O"], predicted)])
            for predicted in (["O", "B-PER"], ["B-PER", "O"])
        ],
    ),
    (SquadEmAndF1, [(["mill"] * 3, [["mill"]] * 3), (["mill"], [["river"]]), ([], []), ([], [])]),
    (
        lambda: SrlEvalScorer(ignore_classes=["V"]),
        [tuple(map(list, zip(*FRAMES[part::2]))) for part in range(2)],
    ),
    (ConllCorefScores, DOCUMENTS),
    (MentionRecall, [(one[0], one[3]) for one in DOCUMENTS]),
]


def scores(rank, size):
    found = []
    for make, calls in CASES:
        metric = make()
        for call in calls[rank::size]:
            metric(*call)
        found.append(metric.get_metric(reset=True))
        assert metric.get_metric() == make().get_metric()
    return found


def are_those_of_all(rank, size, expected):
    for found, wanted in zip(scores(rank, size), expected, strict=True):
        assert found == pytest.approx(wanted)


def test_each_process_gets_the_scores_of_all_data():
    expected = scores(0, 1)
    spans, questions, frames, *documents = expected
    assert set(spans.values()) == {0.5}
    assert questions == (0.75, 0.75)
    assert frames["f1-measure-RARE"] == 1.0
    assert torch.tensor([*documents[0], documents[1]]).min() > 0.3
    in_processes(2, are_those_of_all, expected)
    assert Metric.by_name("conll_coref_scores") is ConllCorefScores
    assert all(make().supports_distributed for make, _ in CASES)
