"""Base classes of metrics that are computed from counts, also in distributed training."""

from collections import Counter
from typing import Any, Dict, Iterable, List, Mapping

import torch.distributed
from allennlp.common.util import is_distributed
from allennlp.training.metrics import Metric


class CountingMetric(Metric):
    """Metric that is computed from counts, which are summed over batches and processes."""

    supports_distributed = True

    def __init__(self) -> None:
        self.reset()

    def add(self, counts: Mapping[Any, float]) -> None:
        """Add the counts of a batch. All processes of distributed training must call this."""
        gathered = [counts]
        if is_distributed():
            gathered *= torch.distributed.get_world_size()
            torch.distributed.all_gather_object(gathered, counts)
        for one in gathered:
            self._counts.update(one)

    def value(self) -> Any:
        """Return the metric of the data counted so far, from 0 to 1."""
        raise NotImplementedError

    def get_metric(self, reset: bool = False) -> Any:
        """Return `value()`. `reset` then sets all counts to 0."""
        value = self.value()
        if reset:
            self.reset()
        return value

    def reset(self) -> None:
        """Set all counts to 0."""
        self._counts: Counter = Counter()


class SpanMetric(CountingMetric):
    """Precision, recall and F1 of spans by type, and over all types."""

    def add_spans(
        self, correct: Iterable[str], predicted: Iterable[str], gold: Iterable[str]
    ) -> None:
        """Add a batch, given the type of each correct, of each predicted and of each gold span."""
        columns = zip(("correct", "predicted", "gold"), (correct, predicted, gold))
        self.add(Counter((name, column) for column, types in columns for name in types))

    def counts(self) -> List[float]:
        """Return the numbers of correct, of predicted and of gold spans, over all types."""
        return [
            float(sum(number for (_, one), number in self._counts.items() if one == column))
            for column in ("correct", "predicted", "gold")
        ]

    def value(self) -> Dict[str, float]:
        """
        Return `precision-X`, `recall-X` and `f1-measure-X`, from 0 to 1, where `X` is `overall` or
        a type that occurred. A score is 0 if nothing was counted.
        """
        rows = {"overall": self.counts()}
        for name in sorted({name for name, _ in self._counts}):
            rows[name] = [self._counts[name, one] for one in ("correct", "predicted", "gold")]
        metrics = {}
        for name, (correct, predicted, gold) in rows.items():
            metrics[f"precision-{name}"] = correct / max(predicted, 1)
            metrics[f"recall-{name}"] = correct / max(gold, 1)
            # equals 2 p r / (p + r), but is also defined if both are 0
            metrics[f"f1-measure-{name}"] = 2 * correct / max(predicted + gold, 1)
        return metrics
