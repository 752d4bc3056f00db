"""Counts of a user's own metrics, in containers of all kinds, through a checkpoint."""

from collections import Counter, defaultdict, namedtuple

import numpy
import pytest
import torch
from allennlp.training.metrics import Metric

from elmo_plugin.training.metric_counts import counts_of, set_counts

Pair = namedtuple("Pair", "right wrong")
# What a new metric has, and what counts.
CASES = {
    "dictionary of counters": (lambda: {"A": Counter()}, lambda x: x["A"].update("q")),
    "two defaults": (lambda: defaultdict(Counter), lambda x: x["z"].update("k")),
    "list of counters": (lambda: [Counter(), Counter()], lambda x: x[1].update("e")),
    "array": (lambda: numpy.zeros((2, 2), int), lambda x: x.__setitem__((0, 1), x[0, 1] + 1)),
    "tensors": (list, lambda x: x.append(torch.ones(2))),
    "named tuple": (lambda: [Pair(0, 0)], lambda x: x.append(Pair(x.pop().right + 1, 2))),
}


class Counts(Metric):
    def __init__(self, value):
        self.value = value

    def __call__(self, *args):
        raise NotImplementedError

    get_metric = reset = __call__


@pytest.mark.parametrize("case", CASES)
def test_counts_go_on_from_a_checkpoint(case, tmp_path):
    make, count = CASES[case]
    models = [torch.nn.Linear(1, 1) for _ in range(2)]
    for model in models:
        model.metric = Counts(make())
    counted, resumed = models
    count(counted.metric.value)
    torch.save(counts_of(counted), tmp_path / "state.th")
    set_counts(resumed, torch.load(tmp_path / "state.th", weights_only=True))
    assert repr(resumed.metric.value) == repr(counted.metric.value)
    count(resumed.metric.value)
    assert repr(resumed.metric.value) != repr(counted.metric.value)
