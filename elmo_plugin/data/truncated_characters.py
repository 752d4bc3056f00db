"""Character ids of the first characters of each token."""

from typing import Dict, List, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.data.token_indexers import TokenCharactersIndexer, TokenIndexer
from allennlp.data.tokenizers import CharacterTokenizer, Token
from allennlp.data.vocabulary import Vocabulary


@TokenIndexer.register("truncated_characters", exist_ok=True)
class TruncatedCharactersIndexer(TokenCharactersIndexer):
    """
    AllenNLP's `characters`, which sees no more than the first characters of a token: one long token
    then does not pad all others of its batch.

    Registered as a `TokenIndexer` with name "truncated_characters".

    # Parameters

    max_characters_per_token : `int`
        How many characters of a token are seen.
    namespace : `str`, optional (default = `"token_characters"`)
        See `TokenCharactersIndexer`, like all that follow.
    character_tokenizer : `CharacterTokenizer`, optional (default = `CharacterTokenizer()`)
    start_tokens : `List[str]`, optional (default = `None`)
    end_tokens : `List[str]`, optional (default = `None`)
    min_padding_length : `int`, optional (default = `0`)
    token_min_padding_length : `int`, optional (default = `0`)

    # Raises

    `ConfigurationError`
        If `max_characters_per_token` is below 1.
    """

    def __init__(
        self,
        max_characters_per_token: int,
        namespace: str = "token_characters",
        character_tokenizer: Optional[CharacterTokenizer] = None,
        start_tokens: Optional[List[str]] = None,
        end_tokens: Optional[List[str]] = None,
        min_padding_length: int = 0,
        token_min_padding_length: int = 0,
    ) -> None:
        if max_characters_per_token < 1:
            raise ConfigurationError(
                f"max_characters_per_token is {max_characters_per_token}, expected 1 or more"
            )
        super().__init__(
            namespace,
            character_tokenizer or CharacterTokenizer(),
            start_tokens or [],
            end_tokens or [],
            min_padding_length,
            token_min_padding_length,
        )
        self._max_characters = max_characters_per_token

    def count_vocab_items(self, token: Token, counter: Dict[str, Dict[str, int]]) -> None:
        """
        # Parameters

        token : `Token`
        counter : `Dict[str, Dict[str, int]]`
            Counts by namespace and character; changed in place.
        """
        super().count_vocab_items(self._truncated(token), counter)

    def tokens_to_indices(
        self, tokens: List[Token], vocabulary: Vocabulary
    ) -> Dict[str, List[List[int]]]:
        """
        # Parameters

        tokens : `List[Token]`
        vocabulary : `Vocabulary`

        # Returns

        `Dict[str, List[List[int]]]`
            Under `token_characters` the ids of each token's first characters.
        """
        return super().tokens_to_indices([self._truncated(token) for token in tokens], vocabulary)

    def _truncated(self, token: Token) -> Token:
        return Token((token.text or "")[: self._max_characters])
