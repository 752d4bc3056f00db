"""Word embeddings of unit length."""

from typing import Any

import torch
from allennlp.data.vocabulary import DEFAULT_OOV_TOKEN
from allennlp.modules import TokenEmbedder
from allennlp.modules.token_embedders import Embedding


@TokenEmbedder.register("unit_length_embedding", exist_ok=True)
class UnitLengthEmbedding(Embedding):
    """
    AllenNLP's `embedding`, but with vectors scaled to length 1, and zeros for unknown words. This
    is how Lee et al. 2017 embed words (e2e-coref at 53c4116, coref_model.py:103-111). Their words
    without a pretrained vector are unknown; to do the same, build the vocabulary with
    `pretrained_files` and `only_include_pretrained_words`.

    Registered as a `TokenEmbedder` with name "unit_length_embedding".

    # Parameters

    kwargs : `Any`
        The arguments of `embedding`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        vocab, namespace = kwargs.get("vocab"), self._vocab_namespace
        self._unknown = 1
        if vocab is not None and namespace is not None:
            self._unknown = vocab.get_token_index(DEFAULT_OOV_TOKEN, namespace)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """
        Return the vector of each word id: scaled to length 1, or zeros for the unknown word's id.

        # Parameters

        tokens : `torch.Tensor`
            Ids, shape `(batch_size, ...)`.

        # Returns

        `torch.Tensor`
            Shape `(batch_size, ..., embedding_dim)`.
        """
        vectors = torch.nn.functional.normalize(super().forward(tokens), dim=-1)
        return vectors * (tokens != self._unknown).unsqueeze(-1)
