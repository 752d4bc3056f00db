"""
What a model gets right and wrong on each item of a set: a sentence, pair, document or question.
Sums of these counts give the score of any part of the set, which is what a bootstrap needs.
"""

from collections.abc import Callable
from typing import Any

import numpy

# One row an item: `(num_items, num_counts)`.
Counts = numpy.ndarray


def item_counts(archive: str, path: str) -> list[list[float]]:
    """
    # Parameters

    archive : `str`
        A `model.tar.gz`.
    path : `str`
        What its validation reader reads.

    # Returns

    `List[List[float]]`
        One row an item, in the reader's order: what `score` takes.

    # Raises

    `ValueError`
        If the model has no metric that says its counts.
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
    """The metric that counts by item: with `counts()`, or AllenNLP's accuracy."""
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
    """Of `correct, predicted, gold`."""
    correct, predicted, gold = numpy.moveaxis(sums, -1, 0)
    return 2 * correct / numpy.maximum(predicted + gold, 1)


def _coref_f1(sums: Counts) -> Counts:
    """Of MUC, B³ and CEAFe: `correct predicted, predicted, correct gold, gold` each."""
    scores = []
    for rows in numpy.split(sums, 3, axis=-1):
        correct_predicted, predicted, correct_gold, gold = numpy.moveaxis(rows, -1, 0)
        precision = correct_predicted / numpy.where(predicted, predicted, 1)
        recall = correct_gold / numpy.where(gold, gold, 1)
        both = precision + recall
        scores.append(2 * precision * recall / numpy.where(both, both, 1))
    return numpy.mean(scores, axis=0)


def _question_f1(sums: Counts) -> Counts:
    """Of `exact matches, f1, questions`."""
    return sums[..., 1] / sums[..., 2]


# By a task's metric.
SCORES: dict[str, Callable[[Counts], Counts]] = {
    "accuracy": _accuracy,
    "f1-measure-overall": _f1,
    "coref_f1": _coref_f1,
    "f1": _question_f1,
}


def score(metric: str, sums: Counts) -> Counts:
    """
    # Parameters

    metric : `str`
        A task's.
    sums : `numpy.ndarray`
        Counts summed over items, shape `(..., num_counts)`.

    # Returns

    `numpy.ndarray`
        As a fraction, shape `(...)`.
    """
    return SCORES[metric](numpy.asarray(sums, dtype=float))


def paired_bootstrap(
    metric: str, baseline: list[Counts], other: list[Counts], resamples: int = 10_000, seed: int = 0
) -> float:
    """
    How often the difference that was seen would be lost on other items (Koehn 2004, section 4):
    items are drawn anew with replacement, the same ones for all runs.

    # Parameters

    metric : `str`
        A task's.
    baseline, other : `List[numpy.ndarray]`
        The items' counts of each run, shape `(num_items, num_counts)`; a score is the runs' mean.
    resamples : `int`, optional (default = `10_000`)
    seed : `int`, optional (default = `0`)
        Of the draws.

    # Returns

    `float`
        The share of resamples in which `other` is not better, one of them added to both: what is
        commonly given as p, one-sided.
    """
    arms = [numpy.stack(arm) for arm in (baseline, other)]  # (runs, items, counts)
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
