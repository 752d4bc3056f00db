"""Recall of gold mentions by the spans that a coreference model keeps."""

from typing import Any, Dict, List

import torch
from allennlp.nn.util import dist_reduce_sum
from allennlp.training.metrics import Metric


@Metric.register("mention_recall", exist_ok=True)
class MentionRecall(Metric):
    """
    Fraction of gold mentions that a coreference model keeps as spans to link.

    Registered as a `Metric` with name "mention_recall".
    """

    supports_distributed = True

    def __init__(self) -> None:
        self.reset()

    def __call__(  # type: ignore[override]
        self, batched_top_spans: torch.Tensor, batched_metadata: List[Dict[str, Any]]
    ) -> None:
        """
        Count the gold mentions of a batch of documents, and how many of them are kept spans.
        `batched_top_spans` holds the first and the last token of each kept span, shape
        `(batch_size, num_kept, 2)`. `batched_metadata` holds the gold `clusters` of each document.
        """
        recalled = total = 0
        for spans, metadata in zip(batched_top_spans.tolist(), batched_metadata):
            gold = {tuple(mention) for cluster in metadata["clusters"] for mention in cluster}
            recalled += len(gold & {tuple(span) for span in spans})
            total += len(gold)
        self._recalled += dist_reduce_sum(recalled)
        self._total += dist_reduce_sum(total)

    def get_metric(self, reset: bool = False) -> float:
        """Return the recall, from 0 to 1, or 0 without gold mentions. `reset` sets counts to 0."""
        recall = self._recalled / self._total if self._total else 0.0
        if reset:
            self.reset()
        return recall

    def reset(self) -> None:
        """Set all counts to 0."""
        self._recalled = self._total = 0
