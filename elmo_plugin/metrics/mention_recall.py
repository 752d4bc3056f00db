"""Recall of gold mentions by the spans that a coreference model keeps."""

from collections import Counter
from typing import Any, Dict, List

import torch
from allennlp.training.metrics import Metric

from elmo_plugin.metrics.counting import CountingMetric


@Metric.register("mention_recall", exist_ok=True)
class MentionRecall(CountingMetric):
    """
    Fraction of gold mentions that a coreference model keeps as spans to link.

    Registered as a `Metric` with name "mention_recall".
    """

    def __call__(  # type: ignore[override]
        self, batched_top_spans: torch.Tensor, batched_metadata: List[Dict[str, Any]]
    ) -> None:
        """
        Count the gold mentions of a batch of documents, and how many of them are kept spans.
        `batched_top_spans` holds the first and the last token of each kept span, shape
        `(batch_size, num_kept, 2)`. `batched_metadata` holds the gold `clusters` of each document.
        """
        counts: Counter = Counter()
        for spans, metadata in zip(batched_top_spans.tolist(), batched_metadata):
            gold = {tuple(mention) for cluster in metadata["clusters"] for mention in cluster}
            counts.update(kept=len(gold & {tuple(span) for span in spans}), gold=len(gold))
        self.add(counts)

    def value(self) -> float:
        """Return the recall, or 0 without gold mentions."""
        return self._counts["kept"] / max(self._counts["gold"], 1)
