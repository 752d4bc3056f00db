"""
Gold labels that the vocabulary may lack.

AllenNLP stops an evaluation with a `KeyError` at a label that training never saw. Where a model
says that it can do without (`allow_unseen`), such a label has an id below 0 here, which no
prediction equals: it counts as one that the model cannot get right. The id tells the label's prefix
and type apart, so that spans of tags can still be counted; it needs no table, for instances may be
indexed in another process.
"""

import hashlib
from typing import Dict, List, Tuple

from allennlp.data import Vocabulary
from allennlp.data.fields import LabelField, SequenceLabelField

# Every prefix of BIO, BIOUL and BMES; first what is none.
PREFIXES = ("", "O", "B", "I", "U", "L", "M", "E", "S")
# Ids down to here are left to others: AllenNLP has -1 for an empty field, PyTorch -100 to ignore.
FIRST_ID = -1000

# What ids made in this process stand for, to name them in a warning.
names_of_unseen: Dict[int, str] = {}


def allow_unseen(vocab: Vocabulary, namespace: str) -> None:
    """
    # Parameters

    vocab : `Vocabulary`
        A model's.
    namespace : `str`
        Where it looks for gold labels, and takes ids below 0.
    """
    _namespaces(vocab).append(namespace)


def label_id(label: str, vocab: Vocabulary, namespace: str) -> int:
    """
    # Parameters

    label : `str`
        A gold label.
    vocab : `Vocabulary`
    namespace : `str`

    # Returns

    `int`
        Its id in the vocabulary, or one below 0.

    # Raises

    `KeyError`
        If it has none there, and no model has called `allow_unseen`.
    """
    ids = vocab.get_token_to_index_vocabulary(namespace)
    if label in ids or not ids or namespace not in _namespaces(vocab):
        return vocab.get_token_index(label, namespace)
    if vocab.is_padded(namespace):
        return vocab.get_token_index(label, namespace)  # that of the unknown token
    return _unseen_id(label)


def prefix_and_type(unseen: int) -> Tuple[str, int]:
    """
    # Parameters

    unseen : `int`
        An id below 0.

    # Returns

    `Tuple[str, int]`
        The tag's prefix, `""` where it has none of those known, and a number for its type.
    """
    number, prefix = divmod(FIRST_ID - unseen, len(PREFIXES))
    return PREFIXES[prefix], number


def type_number(span_type: str) -> int:
    """
    # Parameters

    span_type : `str`
        What stands behind a tag's prefix.

    # Returns

    `int`
        The number that `prefix_and_type` gives for it.
    """
    return int.from_bytes(hashlib.blake2b(span_type.encode(), digest_size=6).digest(), "big")


def _unseen_id(label: str) -> int:
    prefix, _, span_type = label.partition("-")
    index = PREFIXES.index(prefix) if prefix in PREFIXES else 0
    number = FIRST_ID - (type_number(span_type if index else label) * len(PREFIXES) + index)
    names_of_unseen[number] = label
    return number


def _namespaces(vocab: Vocabulary) -> List[str]:
    return vocab.__dict__.setdefault("namespaces_with_unseen_labels", [])


class GoldLabelField(LabelField):
    """
    A `LabelField` whose label the vocabulary may lack.

    # Parameters

    label, label_namespace, skip_indexing
        See `LabelField`.
    """

    def index(self, vocab: Vocabulary) -> None:
        """See `label_id`."""
        if not self._skip_indexing:
            self._label_id = label_id(str(self.label), vocab, self._label_namespace)


class GoldTagsField(SequenceLabelField):
    """
    A `SequenceLabelField` whose labels the vocabulary may lack.

    # Parameters

    labels, sequence_field, label_namespace
        See `SequenceLabelField`.
    """

    def index(self, vocab: Vocabulary) -> None:
        """See `label_id`."""
        if not self._skip_indexing:
            self._indexed_labels = [
                label_id(str(label), vocab, self._label_namespace) for label in self.labels
            ]
