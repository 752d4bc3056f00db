"""Hyperparameters of an ELMoForManyLangs model."""

from dataclasses import dataclass

from elmo_plugin.bilm.model.options import ElmoOptions


@dataclass(frozen=True)
class ManyLangsOptions(ElmoOptions):
    """
    Hyperparameters of an ELMoForManyLangs model: `ElmoOptions`, and sizes of the dictionaries.

    `num_embeddings` is the number of characters in `char.dic`, `num_words` that of words in
    `word.dic`, 0 in a model without word vectors, and `word_dim` their width.
    """

    num_embeddings: int = 0
    num_words: int = 0
    word_dim: int = 0
