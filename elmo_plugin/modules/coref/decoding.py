"""From antecedents' scores to links, the loss, clusters and figures."""

from typing import Any, Dict, List, Optional

import torch
from allennlp.data import Vocabulary
from allennlp.models import Model

from elmo_plugin.metrics.conll_coref import ConllCorefScores, antecedents_to_clusters
from elmo_plugin.metrics.mention_recall import MentionRecall
from elmo_plugin.modules.coref.antecedents import Antecedents
from elmo_plugin.modules.coref.pairs import marginal_loss
from elmo_plugin.modules.coref.sentences import from_metadata


class AntecedentDecoder(Model):
    """
    The end of a model that links spans to antecedents. What scores them is a subclass's; there are
    no parameters here.

    # Parameters

    vocab : `Vocabulary`
    """

    def __init__(self, vocab: Vocabulary, **kwargs: Any) -> None:
        super().__init__(vocab, **kwargs)
        self._mention_recall = MentionRecall()
        self._conll_coref_scores = ConllCorefScores()

    def decode(
        self,
        scores: torch.Tensor,
        antecedents: Antecedents,
        spans: torch.Tensor,
        mask: torch.Tensor,
        labels: Optional[torch.Tensor],
        metadata: Optional[List[Dict[str, Any]]],
    ) -> Dict[str, Any]:
        """
        # Parameters

        scores : `torch.Tensor`
            Of no antecedent, then of each, shape `(batch_size, num_kept, 1 + num_antecedents)`.
        antecedents : `Antecedents`
        spans : `torch.Tensor`
            First and last token of the kept spans, shape `(batch_size, num_kept, 2)`.
        mask : `torch.Tensor`
            Which of them are real, shape `(batch_size, num_kept)`.
        labels : `torch.Tensor`, optional
            The cluster of each, -1 for none, shape `(batch_size, num_kept)`.
        metadata : `List[Dict[str, Any]]`, optional
            The `original_text` of each document; with `labels` its `clusters`.

        # Returns

        `Dict[str, Any]`
            What the model's `forward` returns.

        # Raises

        `ValueError`
            If there are `labels` and the metadata has no `clusters`.
        """
        # Spans that are padding have no antecedent.
        predicted = (scores.argmax(dim=2) - 1).masked_fill(~mask, -1)
        output: Dict[str, Any] = {
            "top_spans": spans,
            "antecedent_indices": antecedents.indices,
            "predicted_antecedents": predicted,
        }
        if labels is not None:
            output["loss"] = marginal_loss(scores, labels, mask, antecedents)
            gold = [{"clusters": clusters} for clusters in from_metadata(metadata, "clusters")]
            self._mention_recall(spans, gold)
            self._conll_coref_scores(spans, antecedents.indices, predicted, gold)
        if metadata is not None:
            output["document"] = [document["original_text"] for document in metadata]
        return output

    def make_output_human_readable(self, output_dict: Dict[str, Any]) -> Dict[str, Any]:
        """
        Adds `clusters`: for each document a list of clusters, each a list of mentions, each the
        first and the last token.
        """
        output_dict["clusters"] = [
            antecedents_to_clusters(*document)
            for document in zip(
                output_dict["top_spans"].detach().cpu(),
                output_dict["antecedent_indices"].detach().cpu(),
                output_dict["predicted_antecedents"].detach().cpu(),
            )
        ]
        return output_dict

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        # Returns

        `Dict[str, float]`
            `coref_precision`, `coref_recall` and `coref_f1`, as `ConllCorefScores` gives them, and
            `mention_recall`, as fractions.
        """
        precision, recall, f1 = self._conll_coref_scores.get_metric(reset)
        return {
            "coref_precision": precision,
            "coref_recall": recall,
            "coref_f1": f1,
            "mention_recall": self._mention_recall.get_metric(reset),
        }
