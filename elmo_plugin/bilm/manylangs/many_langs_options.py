"""Hyperparameters of an ELMoForManyLangs model."""

from dataclasses import dataclass

from elmo_plugin.bilm.model.options import ElmoOptions


@dataclass(frozen=True)
class ManyLangsOptions(ElmoOptions):
    """
    Hyperparameters of an ELMoForManyLangs model: `ElmoOptions`, and sizes of the dictionaries.

    # Parameters

    num_embeddings : `int`
        Number of characters in `char.dic`.
    num_words : `int`, optional (default = `0`)
        Number of words in `word.dic`; 0 if the model has no word vectors.
    word_dim : `int`, optional (default = `0`)
        Width of a word vector.
    """

    num_embeddings: int = 0
    num_words: int = 0
    word_dim: int = 0
