"""The sizes of an ELMoForManyLangs model."""

from dataclasses import dataclass

from elmo_plugin.bilm.model.options import ElmoOptions


@dataclass(frozen=True)
class ManyLangsOptions(ElmoOptions):
    """
    `ElmoOptions`, and the sizes of the model's own dictionaries.

    # Parameters

    projection_dim, cell_size, num_layers, char_embedding_dim, num_highways, num_characters : `int`
        See `ElmoOptions`.
    cell_clip, projection_clip : `Optional[float]`
    use_skip_connections : `bool`
    filters : `list[tuple[int, int]]`
    activation : `str`
        See `ElmoOptions`.
    num_embeddings : `int`
        Characters of `char.dic`.
    num_words : `int`, optional (default = `0`)
        Words of `word.dic`; 0 where words have no vectors of their own.
    word_dim : `int`, optional (default = `0`)
        Width of a word's vector.
    """

    num_embeddings: int = 0
    num_words: int = 0
    word_dim: int = 0
