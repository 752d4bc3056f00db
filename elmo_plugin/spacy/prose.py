"""
Split prose into tokenized sentences, the input of pretraining.

The tokenizer is spaCy's rule-based English one, which needs no trained model. A sentence ends after
`.`, `!`, `?` or an ellipsis, and after closing quotes and brackets that follow it. White space must
come next, and the next token must not begin with a lower-case letter. The period of `Mr.` ends no
sentence, because it is part of the token.
"""

import re
from collections.abc import Iterable, Iterator

import spacy

TERMINALS = frozenset(".!?…")
CLOSERS = frozenset("\"'”’)]}»")
# Project Gutenberg's plain texts mark emphasis as _word_. The underscores are not part of it.
EMPHASIS = re.compile(r"(?<!\w)_([^_]+)_(?!\w)")


def paragraphs(lines: Iterable[str], hard_wrapped: bool = True) -> Iterator[str]:
    """
    Yield paragraphs, with each run of white space replaced by one space. If `hard_wrapped`, blank
    lines separate paragraphs; otherwise every non-blank line is a paragraph.
    """
    current: list[str] = []
    for line in lines:
        words = line.split()
        current += words
        if current and not (words and hard_wrapped):
            yield " ".join(current)
            current = []
    if current:
        yield " ".join(current)


def sentences(
    lines: Iterable[str],
    nlp: spacy.language.Language | None = None,
    hard_wrapped: bool = True,
) -> Iterator[list[str]]:
    """
    Yield the tokens of each sentence in a text. The tokenizer is that of the spaCy pipeline `nlp`,
    by default a blank English one. See `paragraphs` for `hard_wrapped`.
    """
    nlp = nlp or spacy.blank("en")
    for paragraph in paragraphs(lines, hard_wrapped):
        tokens = list(nlp.tokenizer(EMPHASIS.sub(r"\1", paragraph)))
        start = 0
        for end in range(1, len(tokens) + 1):
            if end == len(tokens) or _ends_sentence(tokens, end):
                yield [token.text for token in tokens[start:end] if not token.is_space]
                start = end


def _ends_sentence(tokens: list[spacy.tokens.Token], end: int) -> bool:
    if not tokens[end - 1].whitespace_ or tokens[end].text[0].islower():
        return False
    last = end - 1
    while last > 0 and tokens[last].text in CLOSERS and not tokens[last - 1].whitespace_:
        last -= 1
    text = tokens[last].text
    return text[0] in TERMINALS and all(character in TERMINALS for character in text)
