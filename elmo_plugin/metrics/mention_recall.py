"""How many gold mentions of coreference are among the kept spans."""

from typing import Any, Dict, List

import torch
from allennlp.nn.util import dist_reduce_sum
from allennlp.training.metrics import Metric


@Metric.register("mention_recall", exist_ok=True)
class MentionRecall(Metric):
    """
    The share of gold mentions that are among the kept spans.

    Registered as a `Metric` with name "mention_recall".
    """

    supports_distributed = True

    def __init__(self) -> None:
        self.reset()

    def __call__(  # type: ignore[override]
        self, batched_top_spans: torch.Tensor, batched_metadata: List[Dict[str, Any]]
    ) -> None:
        """
        # Parameters

        batched_top_spans : `torch.Tensor`
            First and last token of the kept spans, shape `(batch_size, num_spans, 2)`.
        batched_metadata : `List[Dict[str, Any]]`
            The gold `clusters` of each document.
        """
        recalled = total = 0
        for spans, metadata in zip(batched_top_spans.tolist(), batched_metadata):
            gold = {tuple(mention) for cluster in metadata["clusters"] for mention in cluster}
            recalled += len(gold & {tuple(span) for span in spans})
            total += len(gold)
        self._recalled += dist_reduce_sum(recalled)
        self._total += dist_reduce_sum(total)

    def get_metric(self, reset: bool = False) -> float:
        """
        # Parameters

        reset : `bool`, optional (default = `False`)
            Whether to start counting again.

        # Returns

        `float`
            A fraction; 0 without gold mentions.
        """
        recall = self._recalled / self._total if self._total else 0.0
        if reset:
            self.reset()
        return recall

    def reset(self) -> None:
        """Starts counting again."""
        self._recalled = self._total = 0
