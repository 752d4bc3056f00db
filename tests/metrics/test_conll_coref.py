import pytest
import torch

from elmo_plugin.metrics.conll_coref import (
    ConllCorefScores,
    antecedents_to_clusters,
    document_counts,
)
from elmo_plugin.metrics.mention_recall import MentionRecall


def clusters(text):
    """`ab cde` are two clusters; a letter is a mention."""
    return [[(ord(letter), ord(letter)) for letter in word] for word in text.split()]


def fractions(name, predicted, gold):
    """Recall and precision."""
    counts = document_counts(predicted, gold)
    precision, recall = (counts[name, i] / counts[name, i + 1] for i in (0, 2))
    return recall, precision


# Recall and precision by hand. The first is the example of Pradhan et al. 2014, which describes the
# official scorer; the next three are its own test cases 2 to 4 without their cluster of one mention
# (conll/reference-coreference-scorers at 0ba2fc4, test/TestCases.README).
BY_HAND = [
    (
        "abc defg",
        "ab cd fghi",
        (2 / 5, 2 / 5),
        ((4 / 3 + 1 / 3 + 1 / 4 + 4 / 4) / 7, (4 / 2 + 1 / 2 + 1 / 2 + 4 / 4) / 8),
        (1.3 / 2, 1.3 / 3),
    ),
    ("bc def", "de", (1 / 3, 1), (4 / 3 / 5, 1), (0.8 / 2, 0.8 / 1)),
    (
        "bc def",
        "bcx defy",
        (1, 3 / 5),
        (1, (4 / 3 + 9 / 4) / 7),
        ((4 / 5 + 6 / 7) / 2, (4 / 5 + 6 / 7) / 2),
    ),
    (
        "bc def",
        "bcx dy",
        (1 / 3, 1 / 3),
        ((4 / 2 + 1 / 3) / 5, (4 / 3 + 1 / 2) / 5),
        ((4 / 5 + 2 / 5) / 2, (4 / 5 + 2 / 5) / 2),
    ),
    ("ab cd", "ac bd", (0, 0), (1 / 2, 1 / 2), (1 / 2, 1 / 2)),
    # Its cases D1 and E1 (b40fae4, test/CorefMetricTestConfig.pm), of Bagga and Baldwin 1998; the
    # CEAFe of both by hand.
    (
        "abcde fg hijkl",
        "abcde fghijkl",
        (1, 9 / 10),
        (1, 16 / 21),
        ((1 + 10 / 12) / 3, (1 + 10 / 12) / 2),
    ),
    (
        "abcde fg hijkl",
        "abcdehijkl fg",
        (1, 9 / 10),
        (1, 7 / 12),
        ((1 + 10 / 15) / 3, (1 + 10 / 15) / 2),
    ),
    ("abc", "abc", (1, 1), (1, 1), (1, 1)),
]


@pytest.mark.parametrize(("gold", "predicted", *"mbc"), BY_HAND)
def test_by_hand(gold, predicted, m, b, c):
    gold, predicted = clusters(gold), clusters(predicted)
    for name, expected in (("muc", m), ("b_cubed", b), ("ceafe", c)):
        assert fractions(name, predicted, gold) == pytest.approx(expected), name
        # Gold and predicted trade places, and so do recall and precision.
        assert fractions(name, gold, predicted) == pytest.approx(expected[::-1])


def test_clusters_of_one_mention():
    """Otherwise than in the official scorer, whose test case 2 gives 0.6 and 0.9 for CEAFe."""
    gold, predicted = clusters("a bc def"), clusters("a de")
    assert fractions("ceafe", predicted, gold) == pytest.approx((0.8 / 3, 0.8 / 1))
    assert fractions("b_cubed", predicted, gold) == pytest.approx((4 / 3 / 5, 1))
    assert fractions("muc", predicted, gold) == pytest.approx((1 / 3, 1))
    # Shared with a cluster of one mention, a mention scores nothing: 1/2 of one of two remains.
    found = fractions("b_cubed", clusters("ab"), clusters("a bc"))
    assert found == pytest.approx((1 / 4, 1 / 4))


def batch(gold, predicted):
    """A document whose predicted clusters are these: each mention's link goes to the one before."""
    spans = sorted(mention for cluster in clusters(predicted) for mention in cluster)
    spans = [(0, 0), *spans]  # a span without a link
    before = {}
    for cluster in clusters(predicted):
        before.update(zip(cluster[1:], cluster))
    indices = [[max(0, i - 1 - j) for j in range(len(spans))] for i in range(len(spans))]
    links = [i - 1 - spans.index(before[s]) if s in before else -1 for i, s in enumerate(spans)]
    return (
        torch.tensor([spans]),
        torch.tensor([indices]),
        torch.tensor([links]),
        [{"clusters": clusters(gold)}],
    )


def test_links_become_clusters():
    spans, indices, links, _ = batch("", "ab cd fghi")
    found = antecedents_to_clusters(spans[0], indices[0], links[0])
    assert found == clusters("ab cd fghi")
    with pytest.raises(ValueError, match="antecedent 3 of span 2"):
        antecedents_to_clusters(spans[0], indices[0] + 2, links[0])


def test_the_metric_is_the_mean_over_summed_counts():
    metric, recall = ConllCorefScores(), MentionRecall()
    for gold, predicted, *_ in BY_HAND[:2]:
        metric(*batch(gold, predicted))
        recall(batch(gold, predicted)[0], batch(gold, predicted)[3])
    one, other = (
        document_counts(clusters(predicted), clusters(gold)) for gold, predicted, *_ in BY_HAND[:2]
    )
    f1s, precisions, recalls = [], [], []
    for name in ("muc", "b_cubed", "ceafe"):
        counts = [one[name, i] + other[name, i] for i in range(4)]
        p, r = counts[0] / counts[1], counts[2] / counts[3]
        f1s.append(2 * r * p / (r + p))
        precisions.append(p)
        recalls.append(r)
    expected = (sum(precisions) / 3, sum(recalls) / 3, sum(f1s) / 3)
    assert metric.get_metric() == pytest.approx(expected)
    assert recall.get_metric(reset=True) == pytest.approx((6 + 2) / (7 + 5))
    assert metric.get_metric(reset=True) == pytest.approx(expected)
    assert metric.get_metric() == (0, 0, 0)
    assert recall.get_metric() == 0


def test_a_span_that_is_its_own_antecedent():
    one = (torch.tensor([[[0, 0]]]), torch.tensor([[[0]]]), torch.tensor([[0]]))
    with pytest.raises(ValueError, match="its own antecedent"):
        ConllCorefScores()(*one, [{"clusters": []}])
    ConllCorefScores(allow_singletons=True)(*one, [{"clusters": []}])
    assert antecedents_to_clusters(*(part[0] for part in one)) == [[(0, 0)]]
