"""`elmo_characters`: tokens to character ids for AllenNLP's text fields."""

from typing import Any, Dict, List, Mapping, Optional

import numpy
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data.token_indexers import ELMoTokenCharactersIndexer
from allennlp.data.token_indexers.token_indexer import IndexedTokenList, TokenIndexer
from allennlp.data.tokenizers import Token
from allennlp.data.vocabulary import Vocabulary

from elmo_plugin.bilm.manylangs.code_points import token_row
from elmo_plugin.bilm.model.characters import NUM_CHARACTER_EMBEDDINGS, token_to_ids


@TokenIndexer.register("elmo_characters", exist_ok=True)
class ElmoTokenCharactersIndexer(ELMoTokenCharactersIndexer):
    """
    Turns each token into its row of character ids, as AllenNLP's `ELMoTokenCharactersIndexer` does.

    # Parameters

    namespace : `str`, optional (default = `"elmo_characters"`)
        Kept for configs that give it; character ids need no vocabulary.
    tokens_to_add : `Optional[Dict[str, int]]`, optional (default = `None`)
        Tokens that stand for one character id of their own, from 0 to 260; with released weights
        use bytes that no text holds, such as 1 to 31.
    token_min_padding_length : `int`, optional (default = `0`)
        See `TokenIndexer`.
    max_characters_per_token : `int`, optional (default = `50`)
        The key of that name in the biLM's options.
    code_points : `bool`, optional (default = `False`)
        Whether characters are code points, for a model of ELMoForManyLangs, and not the bytes of
        UTF-8.

    # Raises

    `ConfigurationError`
        If `tokens_to_add` gives an id that the biLM has no row for, or is given with
        `code_points`; or if `max_characters_per_token` leaves no room for a word.
    """

    def __init__(
        self,
        namespace: str = "elmo_characters",
        tokens_to_add: Optional[Dict[str, int]] = None,
        token_min_padding_length: int = 0,
        max_characters_per_token: int = 50,
        code_points: bool = False,
    ) -> None:
        super().__init__(namespace, tokens_to_add or {}, token_min_padding_length)
        for token, character in (tokens_to_add or {}).items():
            if not 0 <= character < NUM_CHARACTER_EMBEDDINGS:
                raise ConfigurationError(
                    f"tokens_to_add gives {token!r} the character id {character}, expected 0 to "
                    f"{NUM_CHARACTER_EMBEDDINGS - 1}"
                )
        if code_points and tokens_to_add:
            raise ConfigurationError(
                f"tokens_to_add {tokens_to_add} is given with code_points, expected it with bytes"
            )
        if max_characters_per_token < 3:
            raise ConfigurationError(
                f"max_characters_per_token is {max_characters_per_token}, expected at least 3 "
                "(a word's two marks and a byte)"
            )
        self._tokens_to_add = tokens_to_add or {}
        self._num_characters = max_characters_per_token
        self._code_points = code_points

    def count_vocab_items(self, token: Token, counter: Dict[str, Dict[str, int]]) -> None:
        """Nothing to count: the characters are fixed."""

    def get_empty_token_list(self) -> IndexedTokenList:
        """No tokens."""
        return {"elmo_tokens": []}

    def tokens_to_indices(self, tokens: List[Token], vocabulary: Vocabulary) -> IndexedTokenList:
        """
        # Parameters

        tokens : `List[Token]`
            Tokens with text.
        vocabulary : `Vocabulary`
            Not used.

        # Returns

        `IndexedTokenList`
            `"elmo_tokens"`: a list of `num_characters` ids for each token.
        """
        return {"elmo_tokens": [self._row(token.ensure_text()) for token in tokens]}

    def _row(self, text: str) -> List[int]:
        if self._code_points:
            return token_row(text, self._num_characters).tolist()
        return token_to_ids(text, self._num_characters, self._tokens_to_add)

    def as_padded_tensor_dict(
        self, tokens: IndexedTokenList, padding_lengths: Dict[str, int]
    ) -> Dict[str, torch.Tensor]:
        """
        # Parameters

        tokens : `IndexedTokenList`
            What `tokens_to_indices` gave.
        padding_lengths : `Dict[str, int]`
            `"elmo_tokens"`: how many tokens to pad or cut to.

        # Returns

        `Dict[str, torch.Tensor]`
            `"elmo_tokens"`: int64, shape `(num_tokens, num_characters)`; a padding token is all
            zeros.
        """
        length = padding_lengths["elmo_tokens"]
        ids = numpy.zeros((length, self._num_characters), dtype=numpy.int64)
        rows = tokens["elmo_tokens"][:length]
        if rows:
            ids[: len(rows)] = rows
        return {"elmo_tokens": torch.from_numpy(ids)}


def check_elmo_tensors(tensors: Mapping[str, Any]) -> None:
    """
    # Parameters

    tensors : `Mapping[str, Any]`
        What stands under a text field's key for ELMo.

    # Raises

    `ConfigurationError`
        If another indexer made it.
    """
    found = sorted(name for name, tensor in tensors.items() if tensor is not None)
    if "elmo_tokens" not in found or set(found) - {"elmo_tokens", "word_inputs"}:
        raise ConfigurationError(
            f"the token indexer of ELMo's key gives {', '.join(found) or 'nothing'}, expected "
            'elmo_tokens: an indexer of type "elmo_characters"'
        )
