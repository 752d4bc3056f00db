"""Exact match and F1 of answers as SQuAD 1.1's script counts them."""

import re
import string
from collections import Counter
from typing import List, Sequence, Tuple, Union

from allennlp.nn.util import dist_reduce_sum
from allennlp.training.metrics import Metric

ARTICLES = re.compile(r"\b(a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized_words(answer: str) -> List[str]:
    """
    # Parameters

    answer : `str`

    # Returns

    `List[str]`
        Its words in lower case, without ASCII punctuation and articles.
    """
    return ARTICLES.sub(" ", answer.lower().translate(WITHOUT_PUNCTUATION)).split()


def exact_match(prediction: str, answer: str) -> float:
    """
    # Parameters

    prediction : `str`
    answer : `str`

    # Returns

    `float`
        1 if both are the same after normalisation, else 0.
    """
    return float(normalized_words(prediction) == normalized_words(answer))


def f1(prediction: str, answer: str) -> float:
    """
    # Parameters

    prediction : `str`
    answer : `str`

    # Returns

    `float`
        F1 of the normalised words, from 0 to 1; 0 if either has none left, as in SQuAD 1.1's
        script.
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
    Exact match and F1 of predicted answers, each against the best of the marked ones, as SQuAD
    1.1's script evaluate-v1.1.py counts them, in fractions. allennlp-models counts by SQuAD 2.0's:
    the same but where prediction and answer are both empty after normalisation (`the` and `a`),
    whose F1 is 1 there and 0 here.

    Registered as a `Metric` with name "squad".
    """

    def __init__(self) -> None:
        self.reset()

    def __call__(  # type: ignore[override]
        self,
        best_span_strings: Union[str, Sequence[str]],
        answer_strings: Union[Sequence[str], Sequence[Sequence[str]]],
    ) -> None:
        """
        # Parameters

        best_span_strings : `Union[str, Sequence[str]]`
            One prediction, or several.
        answer_strings : `Union[Sequence[str], Sequence[Sequence[str]]]`
            The marked answers of the one question, or of each; a question without any counts as
            wrong.

        # Raises

        `ValueError`
            If there are more or fewer predictions than questions.
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
        # Parameters

        reset : `bool`, optional (default = `False`)
            Whether to start counting anew.

        # Returns

        `Tuple[float, float]`
            Exact match and F1, from 0 to 1; 0 before the first question.
        """
        count = max(self._count, 1)
        result = self._num_exact / count, self._total_f1 / count
        if reset:
            self.reset()
        return result

    def counts(self) -> List[float]:
        """Exact matches, the sum of the F1, and questions, since the last reset."""
        return [float(self._num_exact), float(self._total_f1), float(self._count)]

    def reset(self) -> None:
        """Starts counting anew."""
        self._num_exact = 0.0
        self._total_f1 = 0.0
        self._count = 0
