"""biLM with AllenNLP's `vocab_to_cache`: the token layer of a vocabulary is computed only once."""

from collections.abc import Sequence

import torch

from elmo_plugin.bilm.kernels.backend import BiLstmState, check_ids
from elmo_plugin.bilm.model.bilm import BiLm, BiLmOutput
from elmo_plugin.bilm.model.characters import sentence_lengths, with_boundaries


class CachedVocabularyBiLm(BiLm):
    """
    biLM that can store the token vectors of a vocabulary and look them up.

    As in AllenNLP, the stored vectors are parameters and can be trained.
    """

    def cache_vocabulary(self, tokens: Sequence[str], requires_grad: bool = False) -> None:
        """
        Compute and store the token vectors of a vocabulary. `forward` then looks them up by the ids
        in `word_inputs`.

        `tokens` are the words in the order of their ids. Id 0 is the padding token, whose vector is
        zero. With `requires_grad`, the stored vectors are trained.
        """
        with torch.no_grad():
            vectors = self.token_vectors(tokens)
            vectors[0] = 0.0
        self._word_embedding = torch.nn.Embedding.from_pretrained(
            vectors, freeze=not requires_grad, padding_idx=0
        )

    @property
    def word_embedding(self) -> torch.nn.Embedding | None:
        """Stored token vectors by word id; `None` before `cache_vocabulary`."""
        return getattr(self, "_word_embedding", None)

    def run(
        self,
        inputs: torch.Tensor,
        start: BiLstmState,
        word_inputs: torch.Tensor | None = None,
    ) -> BiLmOutput:
        """
        Compute the layers of a batch as `BiLm.run` does, but from stored token vectors if possible.

        `word_inputs` are word ids, shape `(batch_size, num_tokens)`; 0 = padding. If an id has no
        stored vector, the character ids `inputs` are used for the whole batch.
        """
        words = self.word_embedding
        if word_inputs is None or words is None:
            return super().run(inputs, start)
        check_ids(word_inputs, "word ids, shape (batch_size, num_tokens)")
        known = words.num_embeddings
        if word_inputs.numel() and int(word_inputs.max()) >= known:
            return super().run(inputs, start)
        self.check(inputs)
        lengths = sentence_lengths(word_inputs > 0) + 2
        ids, mask = with_boundaries(word_inputs, lengths, known, known + 1)
        return self.run_vectors(self._cached_vectors(ids[mask]), mask, start)

    def _cached_vectors(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the vectors of word ids; the two ids after the last word are `<S>` and `</S>`."""
        assert self.word_embedding is not None
        known = self.word_embedding.num_embeddings
        vectors = self.word_embedding(ids.clamp(max=known - 1))
        # Computed at every call, because loading an archive may change the weights.
        boundaries = self.token_vectors(self.char_cnn.boundaries)
        for number, boundary in enumerate(boundaries, start=known):
            vectors = torch.where((ids == number).unsqueeze(1), boundary, vectors)
        return vectors
