"""Boundaries and validation of tokenized input, for all functions that take sentences."""

from collections.abc import Iterable, Mapping, Set
from typing import Any

# Boundaries of a sentence, as words of vocabularies and tokens of a biLM.
BEGIN_OF_SENTENCE, END_OF_SENTENCE = "<S>", "</S>"


def tokenized_batch(batch: Iterable[Any]) -> list[list[str]]:
    """
    Check a batch of tokenized sentences and return it as lists of strings.

    Sentences may be lists, arrays, iterators or generators. A token is a string, or an object whose
    attribute `text` is a string, such as the tokens of spaCy and AllenNLP. Raise a `ValueError` if
    the batch is a string or a table, a sentence is a string, or a token has no text.
    """
    check_batch(batch)
    return [tokenized_sentence(sentence, number) for number, sentence in enumerate(batch)]


def check_batch(batch: Any) -> None:
    """Raise a `ValueError` if a batch is a string, a dictionary or table, or not iterable."""
    if isinstance(batch, str):
        raise ValueError(
            f"the batch is the string {_shown(batch)}, expected a list of tokenized sentences: "
            f"[{batch.split()[:8]}]"
        )
    is_table = isinstance(batch, (Mapping, Set)) or hasattr(batch, "columns")  # gives column names
    if is_table or not isinstance(batch, Iterable):
        raise ValueError(f"the batch is {_shown(batch)}, expected a list of tokenized sentences")


def tokenized_sentence(sentence: Iterable[Any], number: int | None = None) -> list[str]:
    """
    Return one sentence as a list of strings, with the tokens and errors of `tokenized_batch`, which
    name the `number` of the sentence in its batch.
    """
    name = "the sentence" if number is None else f"sentence {number}"
    if isinstance(sentence, str):
        raise ValueError(
            f"{name} is the string {_shown(sentence)}, expected its tokens: {sentence.split()[:8]}"
        )
    if isinstance(sentence, (bytes, Mapping, Set)) or not isinstance(sentence, Iterable):
        raise ValueError(f"{name} is {_shown(sentence)}, expected a list of tokens")
    return [
        token if type(token) is str else _text(token, name, position)
        for position, token in enumerate(sentence)
    ]


def _text(token: Any, name: str, position: int) -> str:
    text = token if isinstance(token, str) else getattr(token, "text", None)
    if not isinstance(text, str):
        raise ValueError(
            f"{name}, token {position} is {_shown(token)}, expected a string or a token with text"
        )
    return text


def _shown(value: object) -> str:
    """Return the beginning of the value's `repr`, with its type unless it is a string or `None`."""
    shown = repr(value)[:80] + "..." * (len(repr(value)) > 80)
    return shown if value is None or isinstance(value, str) else f"{shown} ({type(value).__name__})"
