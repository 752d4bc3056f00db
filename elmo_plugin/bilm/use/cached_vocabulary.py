"""AllenNLP's `vocab_to_cache`: the token layer of a vocabulary, computed once."""

from collections.abc import Sequence

import torch

from elmo_plugin.bilm.kernels.backend import BiLstmState
from elmo_plugin.bilm.model.bilm import BiLm, BiLmOutput, with_boundaries
from elmo_plugin.bilm.model.char_cnn import CharCnn
from elmo_plugin.bilm.model.options import ElmoOptions


class CachedVocabularyBiLm(BiLm):
    """
    A biLM that looks up the token vectors of words it knows. They are parameters, as AllenNLP's,
    and may train.

    # Parameters

    options : `ElmoOptions`
    state : `str`, optional (default = `"carry"`)
    dtype : `str | None`, optional (default = `None`)
    token_layer : `CharCnn | None`, optional (default = `None`)
        As in `BiLm`.
    """

    def __init__(
        self,
        options: ElmoOptions,
        state: str = "carry",
        dtype: str | None = None,
        token_layer: CharCnn | None = None,
    ) -> None:
        super().__init__(options, state, dtype, token_layer)
        self._word_embedding: torch.nn.Embedding | None = None

    def cache_vocabulary(self, tokens: Sequence[str], requires_grad: bool = False) -> None:
        """
        Computes the token layer of a vocabulary; `forward` then looks `word_inputs` up.

        # Parameters

        tokens : `Sequence[str]`
            The words in the order of their ids. Id 0 is the padding token's, its vector zero.
        requires_grad : `bool`, optional (default = `False`)
            Whether the cached vectors train.
        """
        with torch.no_grad():
            vectors = self.token_vectors(tokens)
            vectors[0] = 0.0
        self._word_embedding = torch.nn.Embedding.from_pretrained(
            vectors, freeze=not requires_grad, padding_idx=0
        )

    @property
    def word_embedding(self) -> torch.nn.Embedding | None:
        """The cached vectors, by word id."""
        return self._word_embedding

    def run(
        self,
        inputs: torch.Tensor,
        start: BiLstmState,
        word_inputs: torch.Tensor | None = None,
    ) -> BiLmOutput:
        """
        # Parameters

        inputs, start
            As in `BiLm.run`.
        word_inputs : `torch.Tensor | None`
            Word ids, shape `(batch_size, num_tokens)`, after `cache_vocabulary`; 0 = padding. If
            one is not in the cache, the characters are used for the whole batch.

        # Returns

        `BiLmOutput`
        """
        words = self._word_embedding
        if word_inputs is None or words is None or not _all_known(word_inputs, words):
            return super().run(inputs, start)
        self.check(inputs)
        lengths = (word_inputs > 0).sum(dim=1) + 2
        known = words.num_embeddings
        ids = with_boundaries(word_inputs, lengths, known, known + 1)
        return self.run_ids(ids, lengths, self._cached_vectors, start)

    def _cached_vectors(self, ids: torch.Tensor) -> torch.Tensor:
        """Word ids, and beyond them the two boundaries, to vectors."""
        assert self._word_embedding is not None
        known = self._word_embedding.num_embeddings
        vectors = self._word_embedding(ids.clamp(max=known - 1))
        # Not kept with the words: the weights may change, by an archive's for one.
        boundaries = self.token_vectors(self.char_cnn.boundaries)
        for number, boundary in enumerate(boundaries, start=known):
            vectors = torch.where((ids == number).unsqueeze(1), boundary, vectors)
        return vectors


def _all_known(word_ids: torch.Tensor, words: torch.nn.Embedding) -> bool:
    return word_ids.numel() == 0 or int(word_ids.max()) < words.num_embeddings
