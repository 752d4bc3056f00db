"""
Paired bootstrap of a metric. It needs counts for each item of a data set, such as the numbers of
correct and of gold spans. Items are sentences, pairs, documents or questions. The score of a sample
of items is computed from the sums of their counts.
"""

from collections.abc import Callable
from typing import Any

import numpy

# Counts that a metric sums, such as true positives: of each item, shape (num_items, num_counts),
# or of several items together, shape (..., num_counts).
Counts = numpy.ndarray


def item_counts(archive: str, path: str) -> list[list[float]]:
    """
    Return the numbers that the model's metric sums, such as true positives, for each instance of
    the data at `path`. The archive's validation dataset reader reads the data.
    """
    from allennlp.models.archival import load_archive

    loaded = load_archive(archive)
    model, reader = loaded.model.eval(), loaded.validation_dataset_reader
    metric = scored_metric(model)
    rows = []
    for instance in reader.read(path):
        reader.apply_token_indexers(instance)
        model.get_metrics(reset=True)
        model.forward_on_instance(instance)
        rows.append(_counts(metric))
    return rows


def scored_metric(model: Any) -> Any:
    """Return the model's metric that has a method `counts`, else its `CategoricalAccuracy`."""
    from allennlp.training.metrics import CategoricalAccuracy

    parts = [*vars(model).values(), *getattr(model, "metrics", {}).values()]
    for kind in (
        lambda part: hasattr(part, "counts"),
        lambda part: isinstance(part, CategoricalAccuracy),
    ):
        for part in parts:
            if not isinstance(part, dict) and kind(part):
                return part
    raise ValueError(
        f"{type(model).__name__} has no metric with counts() and no CategoricalAccuracy, "
        "expected one"
    )


def _counts(metric: Any) -> list[float]:
    if hasattr(metric, "counts"):
        return metric.counts()
    return [float(metric.correct_count), float(metric.total_count)]


def _accuracy(sums: Counts) -> Counts:
    return sums[..., 0] / sums[..., 1]


def _f1(sums: Counts) -> Counts:
    """Return F1 from the counts `correct, predicted, gold`."""
    correct, predicted, gold = numpy.moveaxis(sums, -1, 0)
    return 2 * correct / numpy.maximum(predicted + gold, 1)


def _coref_f1(sums: Counts) -> Counts:
    """
    Return the mean F1 of MUC, B³ and CEAFe. The last axis of `sums` has four counts for each of the
    three in turn: correct predicted, predicted, correct gold, gold.
    """
    scores = []
    for rows in numpy.split(sums, 3, axis=-1):
        correct_predicted, predicted, correct_gold, gold = numpy.moveaxis(rows, -1, 0)
        precision = correct_predicted / numpy.where(predicted, predicted, 1)
        recall = correct_gold / numpy.where(gold, gold, 1)
        both = precision + recall
        scores.append(2 * precision * recall / numpy.where(both, both, 1))
    return numpy.mean(scores, axis=0)


def _question_f1(sums: Counts) -> Counts:
    """Return the mean F1 of questions from the counts `exact matches, sum of F1, questions`."""
    return sums[..., 1] / sums[..., 2]


# For each `Task.metric`, the number of counts per item and the function from their sums to a score.
SCORES: dict[str, tuple[int, Callable[[Counts], Counts]]] = {
    "accuracy": (2, _accuracy),
    "f1-measure-overall": (3, _f1),
    "coref_f1": (12, _coref_f1),
    "f1": (3, _question_f1),
}


def score(metric: str, sums: Counts) -> Counts:
    """
    Return scores from 0 to 1, shape `(...)`. `sums` holds a metric's counts (such as true
    positives), summed over items, shape `(..., num_counts)`.
    """
    return SCORES[metric][1](numpy.asarray(sums, dtype=float))


def paired_bootstrap(
    metric: str, baseline: list[Counts], other: list[Counts], resamples: int = 10_000, seed: int = 0
) -> float:
    """
    Return the one-sided p value of a paired bootstrap over items (Koehn 2004, section 4). It is the
    fraction of resamples in which the mean score of `other` is not above that of `baseline`. One is
    added to numerator and denominator.

    `metric` is a key of `SCORES`. `baseline` and `other` have an array from `item_counts` for each
    seed, shape `(num_items, num_counts)`; the mean is over the seeds.
    """
    arms = [numpy.stack(arm) for arm in (baseline, other)]  # (num_runs, num_items, num_counts)
    num_items = arms[0].shape[1]
    generator = numpy.random.default_rng(seed)
    lost = 0
    for start in range(0, resamples, 500):
        size = min(500, resamples - start)
        weights = generator.multinomial(num_items, [1 / num_items] * num_items, size=size)
        means = [
            numpy.mean([score(metric, weights @ counts) for counts in arm], axis=0) for arm in arms
        ]
        lost += int((means[1] <= means[0]).sum())
    return (lost + 1) / (resamples + 1)
