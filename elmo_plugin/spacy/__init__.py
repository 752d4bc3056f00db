"""
ELMo in spaCy: the pipeline component `elmo` and the model architecture `elmo_plugin.ElmoMix.v1`.
spaCy finds them through this package's entry points. This module defines `_.elmo` of Docs, spans
and tokens, and their similarity.
"""

import warnings
from typing import Any

import numpy
from spacy.errors import Warnings
from spacy.tokens import Doc, Span, Token

# Keys in `Doc.user_data`. `DocBin(store_user_data=True)` and `Doc.to_bytes` save this dictionary.
_LAYERS: Any = ("._.", "elmo", None, None)
_STARTS = "elmo_plugin.token_starts"


def get_layers(doc: Doc) -> Any:
    """
    Return the biLM's layers that the component `elmo` stored in a Doc, or `None` if it stored none.
    They are a float32 array of shape `(mixture_size, num_tokens, embedding_dim)`.

    If `doc.retokenize()` merged or split tokens after `elmo` ran, each new token gets the mean
    vector of the old tokens that it overlaps.

    # Raises

    `ValueError`
        If the layers belong to another text, for example because the Doc is part of a longer one.
    """
    layers = doc.user_data.get(_LAYERS)
    if layers is None:
        return None
    starts = [token.idx for token in doc]
    known = doc.user_data.get(_STARTS)
    if known is None and layers.shape[1] == len(doc):
        return layers  # set by the user, not by the component
    if known is None or known[1] != len(doc.text):
        raise ValueError(
            f"doc._.elmo holds vectors of {layers.shape[1]} tokens of another text, expected those "
            f"of this Doc's {len(doc)} tokens; run the component 'elmo' on it again"
        )
    before = list(known[0])
    if before == starts:
        return layers
    # A character belongs to the last old token that starts at or before the character.
    first = numpy.searchsorted(before, starts, side="right") - 1
    ends = [token.idx + len(token) - 1 for token in doc]
    last = numpy.searchsorted(before, ends, side="right") - 1
    return numpy.stack([layers[:, a : b + 1].mean(axis=1) for a, b in zip(first, last)], axis=1)


def set_layers(doc: Doc, layers: Any) -> None:
    """Store layers in a Doc, with the character offsets of its tokens and the text's length."""
    doc.user_data[_LAYERS] = layers
    doc.user_data[_STARTS] = [[token.idx for token in doc], len(doc.text)]


def vectors_of(item: Doc | Span | Token) -> Any:
    """
    Return the layers of a Doc's, a span's or a token's tokens, shape `(mixture_size, num_tokens,
    embedding_dim)`, for a token `(mixture_size, embedding_dim)`; `None` if there are none.
    """
    layers = get_layers(item.doc)
    if layers is None or isinstance(item, Doc):
        return layers
    return layers[:, item.i if isinstance(item, Token) else slice(item.start, item.end)]


def similarity(item: Doc | Span | Token, other: Doc | Span | Token) -> float:
    """
    Return the cosine of two means of ELMo's vectors, over layers and tokens, so that a word in two
    senses is less similar to itself; 0.0 if one of them has only white space.

    # Raises

    `ValueError`
        If `item` or `other` has no ELMo vectors.
    """
    return _cosine(_sum(item), _sum(other))


def hook_similarity(doc: Doc) -> None:
    """
    Let `similarity` of a Doc, its spans and tokens compare ELMo's vectors; spaCy's own vectors if
    the other has none. The component calls this function; spaCy does not save hooks, so call it for
    a Doc from a file or another process, or use `_.elmo_similarity`.
    """
    for hooks in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
        hooks["similarity"] = _similarity_hook


def _similarity_hook(item: Any, other: Any) -> float:
    try:
        return similarity(item, other)
    except ValueError:
        if not (item.has_vector and other.has_vector):
            warnings.warn(Warnings.W008.format(obj=type(item).__name__), stacklevel=2)
        return _cosine(item.vector, other.vector)


def _cosine(first: Any, second: Any) -> float:
    norm = numpy.linalg.norm(first) * numpy.linalg.norm(second)
    return float(first @ second / norm) if norm else 0.0


def _sum(item: Any) -> Any:
    layers = None
    if isinstance(item, (Doc, Span, Token)):
        layers = vectors_of(item)
        # `as_doc()` copies the tensor alone.
        if layers is None and item.doc.user_hooks.get("similarity") is _similarity_hook:
            layers = item.tensor
    if layers is None:
        raise ValueError(f"{item!r} has no ELMo vectors, expected text that 'elmo' has read")
    # The cosine of sums is that of means, and an empty Doc or span has a sum.
    return layers.reshape(-1, layers.shape[-1]).sum(axis=0, dtype=float)


if not Doc.has_extension("elmo"):
    Doc.set_extension("elmo", getter=get_layers, setter=set_layers)
    Span.set_extension("elmo", getter=vectors_of)
    Token.set_extension("elmo", getter=vectors_of)
    for _kind in (Doc, Span, Token):  # these need no hook
        _kind.set_extension("elmo_similarity", method=similarity)
