"""Hyperparameters of an ELMoForManyLangs model."""

from dataclasses import dataclass

from elmo_plugin.bilm.model.options import ElmoOptions


@dataclass(frozen=True)
class ManyLangsOptions(ElmoOptions):
    """
    `ElmoOptions` of an ELMoForManyLangs model, with the numbers of characters in `char.dic`
    (`num_embeddings`) and of words in `word.dic` (`num_words`), and the width of word vectors
    (`word_dim`); the last two are 0 in a model without word vectors.
    """

    num_embeddings: int = 0
    num_words: int = 0
    word_dim: int = 0
