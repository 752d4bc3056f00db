"""Exact match and F1 of answers, computed as in SQuAD 1.1's evaluation script."""

import re
import string
from collections import Counter
from typing import List, Sequence, Tuple, Union

from allennlp.training.metrics import Metric

from elmo_plugin.metrics.counting import CountingMetric

ARTICLES = re.compile(r"\b(a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized_words(answer: str) -> List[str]:
    """Lower-case an answer, remove ASCII punctuation and articles, and return its words."""
    return ARTICLES.sub(" ", answer.lower().translate(WITHOUT_PUNCTUATION)).split()


def exact_match(prediction: str, answer: str) -> float:
    """Return 1 if both answers have the same normalized words, else 0."""
    return float(normalized_words(prediction) == normalized_words(answer))


def f1(prediction: str, answer: str) -> float:
    """
    Return the F1 of the answers' normalized words, from 0 to 1. If an answer has no words after
    normalization, F1 is 0, as in SQuAD 1.1's script.
    """
    predicted, wanted = Counter(normalized_words(prediction)), Counter(normalized_words(answer))
    common = (predicted & wanted).total()
    if common == 0:
        return 0.0
    precision, recall = common / predicted.total(), common / wanted.total()
    return 2 * precision * recall / (precision + recall)


@Metric.register("squad", exist_ok=True)
class SquadEmAndF1(CountingMetric):
    """
    Exact match and F1 of predicted answers, from 0 to 1, computed as in SQuAD 1.1's script
    evaluate-v1.1.py. Each prediction gets the best score over the gold answers. allennlp-models
    follows SQuAD 2.0's script, which differs in one case. If prediction and answer are both empty
    after normalization, such as `the` and `a`, F1 is 0 here and 1 there.

    Registered as a `Metric` with name "squad".
    """

    def __call__(  # type: ignore[override]
        self,
        best_span_strings: Union[str, Sequence[str]],
        answer_strings: Union[Sequence[str], Sequence[Sequence[str]]],
    ) -> None:
        """
        Compare the prediction for one question, or a list with one per question, with the gold
        answers of the question, or of each, and add the scores. A question without gold answers
        counts as wrong. Raise a `ValueError` if predictions and questions are not as many.
        """
        if isinstance(best_span_strings, str):
            best_span_strings, answer_strings = [best_span_strings], [answer_strings]  # type: ignore[list-item]
        if len(best_span_strings) != len(answer_strings):
            raise ValueError(
                f"found {len(best_span_strings)} predictions, expected {len(answer_strings)}, one "
                "for each question"
            )
        counts = {"exact": 0.0, "f1": 0.0, "questions": float(len(best_span_strings))}
        for prediction, answers in zip(best_span_strings, answer_strings, strict=True):
            for name, score in (("exact", exact_match), ("f1", f1)):
                counts[name] += max((score(prediction, one) for one in answers), default=0.0)
        self.add(counts)

    def counts(self) -> List[float]:
        """Return the number of exact matches, the sum of F1, and the number of questions."""
        return [float(self._counts[name]) for name in ("exact", "f1", "questions")]

    def value(self) -> Tuple[float, float]:
        """Return `(exact_match, f1)`, each averaged over all questions, or 0 without questions."""
        exact, total_f1, number = self.counts()
        return exact / max(number, 1), total_f1 / max(number, 1)
