"""
Prose to tokenized sentences, one a line, as pretraining reads them.

Tokens are spaCy's rule tokens for English (no model needed). Sentences end at `.`, `!`, `?` or an
ellipsis, with the quotes and brackets that close right behind, where white space and no small
letter follows; spaCy's rules keep the point of `Mr.` inside its token.
"""

import re
from typing import Iterable, Iterator, Optional

import spacy

TERMINALS = frozenset(".!?…")
CLOSERS = frozenset("\"'”’)]}»")
# _emphasis_, as Project Gutenberg's plain texts mark it.
EMPHASIS = re.compile(r"(?<!\w)_([^_]+)_(?!\w)")


def paragraphs(lines: Iterable[str], hard_wrapped: bool = True) -> Iterator[str]:
    """
    Joins hard-wrapped lines; a blank line ends a paragraph.

    # Parameters

    lines : `Iterable[str]`
        Lines of a text.
    hard_wrapped : `bool`, optional (default = `True`)
        `False` where every line is a paragraph: none are joined.

    # Returns

    `Iterator[str]`
        One paragraph at a time, white space made single.
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
    nlp: Optional[spacy.language.Language] = None,
    hard_wrapped: bool = True,
) -> Iterator[list[str]]:
    """
    # Parameters

    lines : `Iterable[str]`
        Lines of prose.
    nlp : `Optional[spacy.language.Language]`, optional (default = `None`)
        Whose tokenizer to use; a blank English pipeline if not given.
    hard_wrapped : `bool`, optional (default = `True`)
        Whether a paragraph goes on over lines until a blank one, or every line is one.

    # Returns

    `Iterator[list[str]]`
        The tokens of one sentence at a time.
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
    """Whether a sentence ends before `tokens[end]`."""
    if not tokens[end - 1].whitespace_ or tokens[end].text[0].islower():
        return False
    last = end - 1
    while last > 0 and tokens[last].text in CLOSERS and not tokens[last - 1].whitespace_:
        last -= 1
    text = tokens[last].text
    return text[0] in TERMINALS and all(character in TERMINALS for character in text)
