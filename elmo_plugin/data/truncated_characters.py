"""`truncated_characters`: AllenNLP's `characters` indexer with a limit for long tokens."""

from typing import Any, Dict, List

from allennlp.common.checks import ConfigurationError
from allennlp.data.token_indexers import TokenCharactersIndexer, TokenIndexer
from allennlp.data.tokenizers import Token
from allennlp.data.vocabulary import Vocabulary


@TokenIndexer.register("truncated_characters", exist_ok=True)
class TruncatedCharactersIndexer(TokenCharactersIndexer):
    """
    AllenNLP's `characters` indexer, but with tokens truncated to their first characters. A single
    long token then does not make the padded tensor of its batch huge.

    Registered as a `TokenIndexer` with name "truncated_characters".

    # Parameters

    max_characters_per_token : `int`
        Longer tokens are truncated to this number of characters. All other arguments are those of
        AllenNLP's `TokenCharactersIndexer`.

    # Raises

    `ConfigurationError`
        If `max_characters_per_token` is below 1.
    """

    def __init__(self, max_characters_per_token: int, *arguments: Any, **named: Any) -> None:
        if max_characters_per_token < 1:
            raise ConfigurationError(
                f"max_characters_per_token is {max_characters_per_token}, expected 1 or more"
            )
        super().__init__(*arguments, **named)
        self._max_characters = max_characters_per_token

    def count_vocab_items(self, token: Token, counter: Dict[str, Dict[str, int]]) -> None:
        """Count the characters of the truncated token in `counter[namespace]`."""
        super().count_vocab_items(self._truncated(token), counter)

    def tokens_to_indices(
        self, tokens: List[Token], vocabulary: Vocabulary
    ) -> Dict[str, List[List[int]]]:
        """Return `{"token_characters": ids}`, with the character ids of each truncated token."""
        return super().tokens_to_indices([self._truncated(token) for token in tokens], vocabulary)

    def _truncated(self, token: Token) -> Token:
        return Token((token.text or "")[: self._max_characters])
