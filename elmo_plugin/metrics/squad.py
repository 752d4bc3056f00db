"""Exact match and F1 of answers, computed as in SQuAD 1.1's evaluation script."""

import re
import string
from collections import Counter
from typing import List, Sequence, Tuple, Union

from allennlp.nn.util import dist_reduce_sum
from allennlp.training.metrics import Metric

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
class SquadEmAndF1(Metric):
    """
    Exact match and F1 of predicted answers, from 0 to 1, computed as in SQuAD 1.1's script
    evaluate-v1.1.py. Each prediction gets the best score over the gold answers. allennlp-models
    follows SQuAD 2.0's script, which differs in one case. If prediction and answer are both empty
    after normalization, such as `the` and `a`, F1 is 0 here and 1 there.

    Registered as a `Metric` with name "squad".
    """

    supports_distributed = True

    def __init__(self) -> None:
        self.reset()

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
        num_exact, total_f1 = 0.0, 0.0
        for prediction, answers in zip(best_span_strings, answer_strings, strict=True):
            num_exact += max((exact_match(prediction, answer) for answer in answers), default=0.0)
            total_f1 += max((f1(prediction, answer) for answer in answers), default=0.0)
        self._num_exact += dist_reduce_sum(num_exact)
        self._total_f1 += dist_reduce_sum(total_f1)
        self._count += dist_reduce_sum(len(best_span_strings))

    def get_metric(self, reset: bool = False) -> Tuple[float, float]:
        """
        Return `(exact_match, f1)`, each averaged over all questions, from 0 to 1. Both are 0 if
        there was no question. `reset` sets the counts to 0.
        """
        count = max(self._count, 1)
        result = self._num_exact / count, self._total_f1 / count
        if reset:
            self.reset()
        return result

    def counts(self) -> List[float]:
        """Return the number of exact matches, the sum of F1, and the number of questions."""
        return [float(self._num_exact), float(self._total_f1), float(self._count)]

    def reset(self) -> None:
        """Set all counts to 0."""
        self._num_exact = 0.0
        self._total_f1 = 0.0
        self._count = 0
