"""Counts of a user's own metrics, in containers of all kinds, through a checkpoint."""

from collections import Counter, defaultdict, namedtuple
from enum import Enum, IntEnum

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
    "list of arrays": (list, lambda x: x.append(numpy.ones(2))),
    "tensors": (list, lambda x: x.append(torch.ones(2))),
    "named tuple": (lambda: [Pair(0, 0)], lambda x: x.append(Pair(x.pop().right + 1, 2))),
}


class Counts(Metric):
    def __init__(self, value):
        self.value = value

    def __call__(self, *args):
        raise NotImplementedError

    get_metric = reset = __call__


class Label(str, Enum):  # noqa: UP042 (its `str` is another)
    FIRST = "A"


class Number(IntEnum):
    ONE = 1


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


@pytest.mark.parametrize(
    "value", [Label.FIRST, Number.ONE, numpy.str_("A"), numpy.float64(1), numpy.array([1], ">i4")]
)
def test_values_of_types_that_no_checkpoint_holds(value, tmp_path):
    """Their plain values are saved, so that the checkpoint can be read."""
    model = torch.nn.Linear(1, 1)
    model.metric = Counts(value)
    torch.save(counts_of(model), tmp_path / "state.th")
    set_counts(model, torch.load(tmp_path / "state.th", weights_only=True))
    assert model.metric.value == value
    assert type(model.metric.value) in (str, int, float, numpy.ndarray)


def test_a_tensor_of_an_earlier_version_leaves_a_counter_as_it_is():
    model = torch.nn.Linear(1, 1)
    model.metric = Counts(Counter("a"))
    set_counts(model, {".metric.value": torch.ones(2)})
    assert model.metric.value == Counter("a")
