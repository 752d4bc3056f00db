"""Coreference score of the CoNLL-2012 shared task: the mean of MUC, B³ and CEAFe."""

import itertools
from collections import Counter
from typing import Any, Dict, List, Sequence, Tuple

import torch
from allennlp.training.metrics import Metric
from scipy.optimize import linear_sum_assignment

from elmo_plugin.metrics.counting import CountingMetric

Mention = Tuple[int, int]
Cluster = Sequence[Mention]
# Numerator and denominator of precision, then numerator and denominator of recall.
Counts = Tuple[float, float, float, float]


def antecedents_to_clusters(
    top_spans: torch.Tensor, antecedent_indices: torch.Tensor, predicted_antecedents: torch.Tensor
) -> List[List[Mention]]:
    """
    Return the clusters of one document. Each span is put into the same cluster as its predicted
    antecedent. Clusters are ordered by the first such link.

    `top_spans` holds each span's first and last token, shape `(num_spans, 2)`. `antecedent_indices`
    holds the rows of each span's antecedents in `top_spans`, shape `(num_spans, num_antecedents)`.
    `predicted_antecedents` holds the column of the predicted antecedent in `antecedent_indices`, or
    -1 for none, shape `(num_spans,)`. Raise a `ValueError` if an antecedent comes after its span.
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
        if antecedent != span:  # a span that is its own antecedent is a cluster of one mention
            cluster_of[first].append(mentions[span])
            cluster_of[mentions[span]] = cluster_of[first]
    return clusters


def _owners(clusters: Sequence[Cluster]) -> Dict[Mention, int]:
    return {mention: index for index, cluster in enumerate(clusters) for mention in cluster}


def _muc(clusters: Sequence[Cluster], others: Sequence[Cluster]) -> Tuple[float, float]:
    """
    Return the number of correct links in `clusters`, and the number of all links. A cluster of n
    mentions has n - 1 links. Correct links connect mentions of the same cluster in `others`.
    """
    owners = _owners(others)
    correct = total = 0
    for cluster in clusters:
        found = [owners[mention] for mention in cluster if mention in owners]
        correct += len(found) - len(set(found))
        total += len(cluster) - 1
    return correct, total


def _b_cubed(clusters: Sequence[Cluster], others: Sequence[Cluster]) -> Tuple[float, float]:
    """
    Return the summed scores of the mentions in `clusters`, and the number of these mentions. A
    mention's score is `|C & D| / |C|`, where `C` is its cluster in `clusters` and `D` its cluster
    in `others`. Clusters of one mention are left out.
    """
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
    Return the counts of one document for MUC (Vilain et al. 1995): the numbers of correct and of
    predicted links, then of correct and of gold links.
    """
    return (*_muc(predicted, gold), *_muc(gold, predicted))


def b_cubed(predicted: Sequence[Cluster], gold: Sequence[Cluster]) -> Counts:
    """
    Return the counts of one document for B³ (Bagga and Baldwin 1998). The numerators are sums of
    the mentions' scores: the share of their predicted cluster that is in their gold cluster, and
    the reverse. The denominators are numbers of mentions. Clusters of one mention are left out.
    """
    return (*_b_cubed(predicted, gold), *_b_cubed(gold, predicted))


def ceafe(predicted: Sequence[Cluster], gold: Sequence[Cluster]) -> Counts:
    """
    Return the counts of one document for CEAFe (Luo 2005). Both numerators are the total similarity
    (phi4) of the best one-to-one alignment between predicted and gold clusters. The denominators
    are the numbers of predicted and of gold clusters. Predicted singletons are left out.
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


def document_counts(
    predicted: Sequence[Cluster], gold: Sequence[Cluster]
) -> Dict[Tuple[str, int], float]:
    """Return the four `Counts` of MUC, of B³ and of CEAFe for one document, by name and place."""
    scores = {
        "muc": muc(predicted, gold),
        "b_cubed": b_cubed(predicted, gold),
        "ceafe": ceafe(predicted, gold),
    }
    return {(name, i): n for name, found in scores.items() for i, n in enumerate(found)}


@Metric.register("conll_coref_scores", exist_ok=True)
class ConllCorefScores(CountingMetric):
    """
    Precision, recall and F1 of coreference, averaged over MUC, B³ and CEAFe. Counts are summed over
    documents. If no cluster has only one mention, the results are those of the CoNLL-2012 scorer,
    version 8.01. As in allennlp-models, but unlike the scorer, B³ ignores all clusters of one
    mention, and CEAFe ignores predicted ones.

    Registered as a `Metric` with name "conll_coref_scores".

    # Parameters

    allow_singletons : `bool`, optional (default = `False`)
        If true, a span may be its own antecedent.
    """

    def __init__(self, allow_singletons: bool = False) -> None:
        super().__init__()
        self.allow_singletons = allow_singletons

    def __call__(  # type: ignore[override]
        self,
        top_spans: torch.Tensor,
        antecedent_indices: torch.Tensor,
        predicted_antecedents: torch.Tensor,
        metadata_list: List[Dict[str, Any]],
    ) -> None:
        """
        Compare a batch of documents with the gold clusters and add the counts. The tensors are the
        arguments of `antecedents_to_clusters`, with the batch as an additional first dimension.
        `metadata_list` holds the gold `clusters` of each document.

        Raise a `ValueError` if an antecedent comes after its span, or, without `allow_singletons`,
        is the span itself.
        """
        counts: Counter = Counter()
        tensors = self.detach_tensors(top_spans, antecedent_indices, predicted_antecedents)
        for spans, indices, links, metadata in zip(*(one.cpu() for one in tensors), metadata_list):
            antecedents = indices.gather(1, links.clamp(min=0).unsqueeze(1)).squeeze(1)
            is_itself = (antecedents == torch.arange(len(links))) & (links >= 0)
            if not self.allow_singletons and is_itself.any():
                raise ValueError("found a span that is its own antecedent, expected one before it")
            predicted = antecedents_to_clusters(spans, indices, links)
            gold = [[tuple(one) for one in cluster] for cluster in metadata["clusters"] if cluster]
            counts.update(document_counts(predicted, gold))
        self.add(counts)

    def counts(self) -> List[float]:
        """Return the four counts (see `Counts`) of MUC, then those of B³, then those of CEAFe."""
        names = itertools.product(("muc", "b_cubed", "ceafe"), range(4))
        return [float(self._counts[name]) for name in names]

    def value(self) -> Tuple[float, float, float]:
        """Return `(precision, recall, f1)`. A score is 0 if there was nothing to count."""
        rows, counts = [], iter(self.counts())
        for correct_predicted, predicted, correct_gold, gold in zip(*[counts] * 4):
            precision = correct_predicted / predicted if predicted else 0.0
            recall = correct_gold / gold if gold else 0.0
            both = precision + recall
            rows.append((precision, recall, 2 * precision * recall / both if both else 0.0))
        means = [sum(column) / len(rows) for column in zip(*rows)]
        return means[0], means[1], means[2]
