"""Tokenizer that also splits at hyphens and quotes, where SQuAD's answers often end."""

import re
from typing import List, Optional

from allennlp.data.tokenizers import Token, Tokenizer

from elmo_plugin.data.spacy_model import spacy_tokenizer

# Source: docqa/data_processing/text_utils.py, lines 14 to 20, of allenai/document-qa at 2f9fa68.
SEPARATOR = re.compile(r"(``|''|(?<=[^_])_(?=[^_])|[-£€¥¢₹−—–/~\"'’”‘°])")
# Source: docqa/data_processing/text_utils.py, lines 124 to 135, of the same commit.
NORMALIZED = {"``": '"', "''": '"', "−": "-", "—": "–"}


@Tokenizer.register("document_qa", exist_ok=True)
class DocumentQaTokenizer(Tokenizer):
    """
    Splits the tokens of another tokenizer before and after characters such as hyphens, dashes,
    quotes, slashes and currency signs. The code of Clark and Gardner 2018 (allenai/document-qa)
    splits the tokens of NLTK's Treebank tokenizer in this way.

    A few of these characters are normalized in a token's `text`. Double backticks and double
    apostrophes become `"`, a minus sign becomes a hyphen, and an em dash becomes an en dash. `idx`
    and `idx_end` refer to the original text.

    Registered as a `Tokenizer` with name "document_qa".

    # Parameters

    tokenizer : `Tokenizer`, optional (default = `SpacyTokenizer(pos_tags=False)`)
        Splits the text first. Each of its tokens must have `idx`, the index of its first character.
    """

    def __init__(self, tokenizer: Optional[Tokenizer] = None) -> None:
        self._tokenizer = tokenizer or spacy_tokenizer(pos_tags=False)

    def tokenize(self, text: str) -> List[Token]:
        """Split `text` into tokens. Each covers the characters `idx` to `idx_end - 1` of `text`."""
        return [piece for word in self._tokenizer.tokenize(text) for piece in _split(word)]


def _split(word: Token) -> List[Token]:
    assert word.text is not None
    assert word.idx is not None
    tokens, start = [], word.idx
    for text in SEPARATOR.split(word.text):  # with the separators
        end = start + len(text)
        if text:
            tokens.append(Token(NORMALIZED.get(text, text), start, end))
        start = end
    return tokens
