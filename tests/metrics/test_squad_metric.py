import json
from pathlib import Path

import pytest
from allennlp.training.metrics import Metric

from elmo_plugin.metrics.squad import SquadEmAndF1, exact_match, f1

CASES = json.loads(Path(__file__).with_name("squad.json").read_text(encoding="utf-8"))


def test_equals_the_official_script():
    assert {case[2] for case in CASES} == {0, 1}
    assert len({case[3] for case in CASES}) > 10
    for prediction, answers, wanted_em, wanted_f1 in CASES:
        metric = SquadEmAndF1()
        metric(prediction, answers)
        assert metric.get_metric() == (wanted_em, wanted_f1), (prediction, answers)


def test_many_questions_are_averaged():
    metric = Metric.by_name("squad")()
    predictions, answers, ems, f1s = zip(*CASES, strict=True)
    for start in range(0, len(CASES), 50):
        metric(predictions[start : start + 50], answers[start : start + 50])
    wanted = (sum(ems) / len(CASES), sum(f1s) / len(CASES))
    assert metric.get_metric(reset=True) == pytest.approx(wanted)
    assert metric.get_metric() == (0.0, 0.0)


@pytest.mark.parametrize(
    ("prediction", "answer", "wanted"),
    [
        ("the old mill", "The old mill!", (1, 1)),
        ("old mill by the river", "the old mill", (0, 2 / 3)),  # precision 2/4, recall 2/2
        ("mill mill", "mill", (0, 2 / 3)),  # a word counts as often as it stands there
        ("the", "a", (1, 0)),  # nothing is left: the script of SQuAD 2.0 says 1
        ("river", "mill", (0, 0)),
    ],
)
def test_by_hand(prediction, answer, wanted):
    assert (exact_match(prediction, answer), f1(prediction, answer)) == pytest.approx(wanted)


def test_a_question_without_answers_counts_as_wrong():
    metric = SquadEmAndF1()
    metric(["mill", "mill"], [["mill"], []])
    assert metric.get_metric() == (0.5, 0.5)


def test_predictions_and_questions_must_be_as_many():
    with pytest.raises(ValueError, match="found 2 predictions, expected 1"):
        SquadEmAndF1()(["a", "b"], [["a"]])
