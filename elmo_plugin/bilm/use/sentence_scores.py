"""What a language model says of a sentence, and of a place in it."""

import math
from typing import NamedTuple


class SentenceScores(NamedTuple):
    """
    Natural logarithms of probabilities.

    `forward`, `backward`: of each token, given those before it or behind it.
    `end`: of `</S>` behind the last, forward. `begin`: of `<S>` before the first, backward.
    `unknown`: whether a token is none of the vocabulary's, and scored as `<UNK>`.
    """

    tokens: list[str]
    forward: list[float]
    backward: list[float]
    end: float
    begin: float
    unknown: list[bool]

    @property
    def forward_log_probability(self) -> float:
        """Of the sentence and its end."""
        return math.fsum(self.forward) + self.end

    @property
    def backward_log_probability(self) -> float:
        """Of the sentence and its beginning."""
        return math.fsum(self.backward) + self.begin

    @property
    def log_probability(self) -> float:
        """The mean of the two directions', as the biLM is trained on."""
        return (self.forward_log_probability + self.backward_log_probability) / 2

    @property
    def num_predictions(self) -> int:
        """A direction's: each token, and a boundary."""
        return len(self.tokens) + 1

    @property
    def perplexity(self) -> float:
        """A word: the geometric mean of the two directions', which bilm-tf prints."""
        return math.exp(-self.log_probability / self.num_predictions)


class Substitute(NamedTuple):
    """
    A word that might stand in a place.

    `log_probability`: of the word given both sides, the product of what the two directions say,
    over all words. `forward`, `backward`: of the word given one side.
    """

    word: str
    log_probability: float
    forward: float
    backward: float
