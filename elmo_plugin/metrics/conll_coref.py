"""Coreference scores of the CoNLL-2012 shared task: the mean of MUC, B³ and CEAFe."""

from collections import Counter
from typing import Any, Dict, List, Sequence, Tuple

import torch
from allennlp.nn.util import dist_reduce_sum
from allennlp.training.metrics import Metric
from scipy.optimize import linear_sum_assignment

Mention = Tuple[int, int]
Cluster = Sequence[Mention]
# Numerator and denominator of precision, then of recall.
Counts = Tuple[float, float, float, float]


def antecedents_to_clusters(
    top_spans: torch.Tensor, antecedent_indices: torch.Tensor, predicted_antecedents: torch.Tensor
) -> List[List[Mention]]:
    """
    The transitive closure of one document's links.

    # Parameters

    top_spans : `torch.Tensor`
        First and last token of the kept spans, shape `(num_spans, 2)`.
    antecedent_indices : `torch.Tensor`
        Which spans may be a span's antecedent, shape `(num_spans, num_antecedents)`.
    predicted_antecedents : `torch.Tensor`
        Each span's antecedent, a column of `antecedent_indices`; -1 for none. Shape `(num_spans,)`.

    # Returns

    `List[List[Mention]]`
        Clusters in the order in which their second mention comes.

    # Raises

    `ValueError`
        If an antecedent stands behind its span.
    """
    mentions = [(start, end) for start, end in top_spans.tolist()]
    links = predicted_antecedents.tolist()
    clusters: List[List[Mention]] = []
    cluster_of: Dict[Mention, List[Mention]] = {}
    for span, link in enumerate(links):
        if link < 0:
            continue
        antecedent = int(antecedent_indices[span, link])
        if antecedent > span:
            raise ValueError(
                f"found the antecedent {antecedent} of span {span}, expected one before it"
            )
        first = mentions[antecedent]
        if first not in cluster_of:
            cluster_of[first] = [first]
            clusters.append(cluster_of[first])
        cluster_of[first].append(mentions[span])
        cluster_of[mentions[span]] = cluster_of[first]
    return clusters


def _owners(clusters: Sequence[Cluster]) -> Dict[Mention, int]:
    return {mention: index for index, cluster in enumerate(clusters) for mention in cluster}


def _muc(clusters: Sequence[Cluster], others: Sequence[Cluster]) -> Tuple[float, float]:
    """Links of `clusters` that `others` have too, and all links (Vilain et al. 1995)."""
    owners = _owners(others)
    correct = total = 0
    for cluster in clusters:
        found = [owners[mention] for mention in cluster if mention in owners]
        correct += len(found) - len(set(found))
        total += len(cluster) - 1
    return correct, total


def _b_cubed(clusters: Sequence[Cluster], others: Sequence[Cluster]) -> Tuple[float, float]:
    """The sum over mentions of the share of their cluster that is right, and their number."""
    owners = _owners(others)
    correct, total = 0.0, 0
    for cluster in clusters:
        if len(cluster) == 1:
            continue
        shared = Counter(owners[mention] for mention in cluster if mention in owners)
        squares = sum(n * n for owner, n in shared.items() if len(others[owner]) != 1)
        correct += squares / len(cluster)
        total += len(cluster)
    return correct, total


def muc(predicted: Sequence[Cluster], gold: Sequence[Cluster]) -> Counts:
    """
    # Parameters

    predicted, gold : `Sequence[Cluster]`
        One document's clusters.

    # Returns

    `Counts`
        Links (Vilain et al. 1995).
    """
    return (*_muc(predicted, gold), *_muc(gold, predicted))


def b_cubed(predicted: Sequence[Cluster], gold: Sequence[Cluster]) -> Counts:
    """
    # Parameters

    predicted, gold : `Sequence[Cluster]`
        One document's clusters. Those of one mention are left out.

    # Returns

    `Counts`
        Mentions, each by the share of its cluster that is right (Bagga and Baldwin 1998).
    """
    return (*_b_cubed(predicted, gold), *_b_cubed(gold, predicted))


def ceafe(predicted: Sequence[Cluster], gold: Sequence[Cluster]) -> Counts:
    """
    # Parameters

    predicted, gold : `Sequence[Cluster]`
        One document's clusters. Predicted ones of one mention are left out.

    # Returns

    `Counts`
        The similarity phi4 of clusters aligned one to one as well as can be, and their numbers
        (Luo 2005).
    """
    predicted = [cluster for cluster in predicted if len(cluster) != 1]
    owners = _owners(predicted)
    similarity = torch.zeros(len(gold), len(predicted), dtype=torch.float64)
    for row, cluster in enumerate(gold):
        shared = Counter(owners[mention] for mention in cluster if mention in owners)
        for column, number in shared.items():
            similarity[row, column] = 2 * number / (len(cluster) + len(predicted[column]))
    rows, columns = linear_sum_assignment(similarity.numpy(), maximize=True)
    best = similarity[rows, columns].sum().item()
    return best, len(predicted), best, len(gold)


@Metric.register("conll_coref_scores", exist_ok=True)
class ConllCorefScores(Metric):
    """
    Precision, recall and F1, each the mean of MUC's, B³'s and CEAFe's over all documents' summed
    counts: the figures of the CoNLL-2012 shared task and of its scorer, version 8.01, where all
    clusters have two mentions or more. Clusters of one mention count otherwise than in the
    scorer, as in allennlp-models: B³ leaves them out on both sides, CEAFe leaves out the predicted
    and keeps the gold ones.

    Registered as a `Metric` with name "conll_coref_scores".

    # Parameters

    allow_singletons : `bool`, optional (default = `False`)
        Whether a span may be its own antecedent.
    """

    supports_distributed = True

    def __init__(self, allow_singletons: bool = False) -> None:
        self.allow_singletons = allow_singletons
        self.reset()

    def __call__(  # type: ignore[override]
        self,
        top_spans: torch.Tensor,
        antecedent_indices: torch.Tensor,
        predicted_antecedents: torch.Tensor,
        metadata_list: List[Dict[str, Any]],
    ) -> None:
        """
        # Parameters

        top_spans : `torch.Tensor`
            First and last token of the kept spans, shape `(batch_size, num_spans, 2)`.
        antecedent_indices : `torch.Tensor`
            Which spans may be a span's antecedent, shape
            `(batch_size, num_spans, num_antecedents)`.
        predicted_antecedents : `torch.Tensor`
            Each span's antecedent, a column of `antecedent_indices`; -1 for none. Shape
            `(batch_size, num_spans)`.
        metadata_list : `List[Dict[str, Any]]`
            The gold `clusters` of each document.

        # Raises

        `ValueError`
            If an antecedent stands behind its span, or is the span itself without
            `allow_singletons`.
        """
        counts = torch.zeros_like(self._counts)
        for spans, indices, links, metadata in zip(
            *(
                tensor.detach().cpu()
                for tensor in (top_spans, antecedent_indices, predicted_antecedents)
            ),
            metadata_list,
        ):
            itself = indices.gather(1, links.clamp(min=0).unsqueeze(1)).squeeze(1) == torch.arange(
                len(links)
            )
            if not self.allow_singletons and (itself & (links >= 0)).any():
                raise ValueError("found a span that is its own antecedent, expected one before it")
            predicted = antecedents_to_clusters(spans, indices, links)
            gold = [
                [tuple(mention) for mention in cluster]
                for cluster in metadata["clusters"]
                if cluster
            ]
            counts += torch.tensor(
                [score(predicted, gold) for score in (muc, b_cubed, ceafe)], dtype=counts.dtype
            )
        self._counts += dist_reduce_sum(counts).cpu()

    def get_metric(self, reset: bool = False) -> Tuple[float, float, float]:
        """
        # Parameters

        reset : `bool`, optional (default = `False`)
            Whether to start counting again.

        # Returns

        `Tuple[float, float, float]`
            Precision, recall and F1 as fractions; 0 where nothing was to be counted.
        """
        rows = []
        for correct_predicted, predicted, correct_gold, gold in self._counts.tolist():
            precision = correct_predicted / predicted if predicted else 0.0
            recall = correct_gold / gold if gold else 0.0
            both = precision + recall
            rows.append((precision, recall, 2 * precision * recall / both if both else 0.0))
        if reset:
            self.reset()
        means = [sum(column) / len(rows) for column in zip(*rows)]
        return means[0], means[1], means[2]

    def counts(self) -> List[float]:
        """Of MUC, B³ and CEAFe since the last reset, what each of the three functions gives."""
        return self._counts.flatten().tolist()

    def reset(self) -> None:
        """Starts counting again."""
        # One row for each of MUC, B³ and CEAFe.
        self._counts = torch.zeros(3, 4, dtype=torch.float64)
