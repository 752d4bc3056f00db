"""`elmo_characters`: token indexer for ELMo."""

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
    Token indexer that converts each token to a row of character ids. The ids equal those of
    AllenNLP's indexer of this name.

    # Parameters

    namespace : `str`, optional (default = `"elmo_characters"`)
        Accepted for old configs, but not used: character ids need no vocabulary.
    tokens_to_add : `Optional[Dict[str, int]]`, optional (default = `None`)
        Maps tokens to a single character id, from 0 to 260, which replaces the ids of their bytes.
        With released weights, choose ids of bytes that do not occur in text, such as 1 to 31.
    token_min_padding_length : `int`, optional (default = `0`)
        Smallest number of tokens to pad to; see AllenNLP's `TokenIndexer`.
    max_characters_per_token : `int`, optional (default = `50`)
        Number of ids per token, as in the biLM's options. Two of them mark the word's begin and
        end, so tokens are truncated to `max_characters_per_token - 2` characters.
    code_points : `bool`, optional (default = `False`)
        If true, characters are Unicode code points, as in ELMoForManyLangs, else UTF-8 bytes.

    # Raises

    `ConfigurationError`
        If `tokens_to_add` has an id outside 0 to 260, or is given with `code_points`; or if
        `max_characters_per_token` is below 3.
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

    def tokens_to_indices(self, tokens: List[Token], vocabulary: Vocabulary) -> IndexedTokenList:
        """Return a list with each token's row of character ids, under the key `elmo_tokens`."""
        return {"elmo_tokens": [self._row(token.ensure_text()) for token in tokens]}

    def _row(self, text: str) -> List[int]:
        if self._code_points:
            return token_row(text, self._num_characters).tolist()
        return token_to_ids(text, self._num_characters, self._tokens_to_add)

    def as_padded_tensor_dict(
        self, tokens: IndexedTokenList, padding_lengths: Dict[str, int]
    ) -> Dict[str, torch.Tensor]:
        """
        Pad or truncate the result of `tokens_to_indices` to `padding_lengths["elmo_tokens"]` rows.
        Return `{"elmo_tokens": ids}`: int64, shape `(num_tokens, num_characters)`, 0 at padding.
        """
        length = padding_lengths["elmo_tokens"]
        ids = numpy.zeros((length, self._num_characters), dtype=numpy.int64)
        rows = tokens["elmo_tokens"][:length]
        if rows:
            ids[: len(rows)] = rows
        return {"elmo_tokens": torch.from_numpy(ids)}


def check_elmo_tensors(tensors: Mapping[str, Any]) -> None:
    """
    Check one token indexer's tensors, such as `tokens["elmo"]` of a text field. Raise a
    `ConfigurationError` unless the indexer has the type `elmo_characters`.
    """
    found = sorted(name for name, tensor in tensors.items() if tensor is not None)
    if "elmo_tokens" not in found or set(found) - {"elmo_tokens", "word_inputs"}:
        raise ConfigurationError(
            f"the token indexer of ELMo's key gives {', '.join(found) or 'nothing'}, expected "
            'elmo_tokens: an indexer of type "elmo_characters"'
        )
