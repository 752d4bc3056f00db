"""Words split as document-qa split them for SQuAD: answers often end at a hyphen or a quote."""

import re
from typing import List, Optional

from allennlp.data.tokenizers import SpacyTokenizer, Token, Tokenizer

# docqa/data_processing/text_utils.py, lines 14 to 20, of allenai/document-qa at 2f9fa68.
SEPARATOR = re.compile(r"``|''|(?<=[^_])_(?=[^_])|[-£€¥¢₹−—–/~\"'’”‘°]")
# The same, lines 124 to 135.
NORMALIZED = {"``": '"', "''": '"', "−": "-", "—": "–"}


@Tokenizer.register("document_qa", exist_ok=True)
class DocumentQaTokenizer(Tokenizer):
    """
    Splits the words of another tokenizer further, before and after hyphens, dashes, quotes, slashes
    and currency signs, as document-qa did (Clark and Gardner 2018). There the words came from
    NLTK's Treebank tokenizer.

    A token of several spellings (``, '') has one `text`; its `idx` and `idx_end` stay those of the
    characters it stands for.

    Registered as a `Tokenizer` with name "document_qa".

    # Parameters

    tokenizer : `Tokenizer`, optional (default = `None`)
        Gives the words, with `idx`; `SpacyTokenizer(pos_tags=False)` if not given.
    """

    def __init__(self, tokenizer: Optional[Tokenizer] = None) -> None:
        self._tokenizer = tokenizer or SpacyTokenizer(pos_tags=False)

    def tokenize(self, text: str) -> List[Token]:
        """
        # Parameters

        text : `str`

        # Returns

        `List[Token]`
            With `idx` and `idx_end`, in characters of `text`.
        """
        return [piece for word in self._tokenizer.tokenize(text) for piece in _split(word)]


def _split(word: Token) -> List[Token]:
    assert word.text is not None
    assert word.idx is not None
    pieces, start = [], 0
    for separator in SEPARATOR.finditer(word.text):
        pieces += [(start, separator.start()), separator.span()]
        start = separator.end()
    pieces.append((start, len(word.text)))
    tokens = []
    for start, end in pieces:
        if start < end:
            text = word.text[start:end]
            tokens.append(Token(NORMALIZED.get(text, text), word.idx + start, word.idx + end))
    return tokens
