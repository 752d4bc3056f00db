"""
Gold labels that are not in the vocabulary because they do not occur in the training data.

AllenNLP stops an evaluation at such a label with a `KeyError`. Here the label gets a negative id if
the model has called `allow_unseen`. No prediction equals that id, so the label counts as an error
of the model. The id combines the tag's prefix (`B-`, `I-`, ...) with a hash of its type, so metrics
can still count spans. Processes that index instances need not share a table of ids.
"""

import hashlib
from typing import Any, Dict, List, Tuple

from allennlp.data import Vocabulary
from allennlp.data.fields import LabelField, SequenceLabelField

# Tag prefixes, and an empty one for labels that are not span tags. An id encodes such an index.
PREFIXES = ("", "O", "B", "I", "U", "L", "M", "E", "S")
# Ids of unseen labels count down from here, which is clear of -1 (AllenNLP's empty fields) and -100
# (PyTorch's `ignore_index`).
FIRST_ID = -1000

# Maps the ids that `unseen_id` returned in this process to labels, for warnings and errors.
names_of_unseen: Dict[int, str] = {}


def allow_unseen(vocab: Vocabulary, namespace: str) -> None:
    """
    Allow gold labels that are not in `namespace` of `vocab`: `label_id` then returns a negative id
    for them instead of raising an error.
    """
    _namespaces(vocab).append(namespace)


def label_id(label: str, vocab: Vocabulary, namespace: str) -> int:
    """
    Return a label's id in the vocabulary. A label that is not in the vocabulary has the id of the
    unknown token. If the namespace has no unknown token, the label gets a negative id from
    `unseen_id`, which no prediction equals; if `allow_unseen` was not called, raise a `KeyError`.
    """
    ids = vocab.get_token_to_index_vocabulary(namespace)
    allowed = ids and namespace in _namespaces(vocab) and not vocab.is_padded(namespace)
    if label not in ids and allowed:
        return unseen_id(label)
    return vocab.get_token_index(label, namespace)


def prefix_and_type(unseen: int) -> Tuple[str, int]:
    """
    Decode an id that `unseen_id` returned. Return the tag's prefix, such as `B`, and the hash of
    its type (see `type_number`). For a label that is not a span tag, return an empty prefix and the
    hash of the whole label.
    """
    number, prefix = divmod(FIRST_ID - unseen, len(PREFIXES))
    return PREFIXES[prefix], number


def type_number(span_type: str) -> int:
    """Return a 48-bit hash of a tag's type, such as `PER` in `B-PER`."""
    return int.from_bytes(hashlib.blake2b(span_type.encode(), digest_size=6).digest(), "big")


def unseen_id(label: str) -> int:
    """
    Return a negative id for a label that is not in the vocabulary. The id encodes the label's
    prefix and type, and `prefix_and_type` decodes it.
    """
    prefix, _, span_type = label.partition("-")
    index = PREFIXES.index(prefix) if prefix in PREFIXES else 0
    number = FIRST_ID - (type_number(span_type if index else label) * len(PREFIXES) + index)
    names_of_unseen[number] = label
    return number


def label_text(found: Any) -> Any:
    """Return a label as a string if it is a whole number (`1.0` is `1`), true (`1`) or false."""
    found = found.item() if hasattr(found, "item") else found  # of NumPy or PyTorch
    is_whole = isinstance(found, (int, float)) and found % 1 == 0
    return str(int(found)) if is_whole else found


def _namespaces(vocab: Vocabulary) -> List[str]:
    return vocab.__dict__.setdefault("namespaces_with_unseen_labels", [])


class GoldLabelField(LabelField):
    """`LabelField` for a gold label that may not be in the vocabulary."""

    def index(self, vocab: Vocabulary) -> None:
        """Convert the label to its id by `label_id`."""
        if not self._skip_indexing:
            self._label_id = label_id(str(self.label), vocab, self._label_namespace)


class GoldTagsField(SequenceLabelField):
    """`SequenceLabelField` for gold tags that may not be in the vocabulary."""

    def index(self, vocab: Vocabulary) -> None:
        """Convert the tags to their ids by `label_id`."""
        if not self._skip_indexing:
            self._indexed_labels = [
                label_id(str(label), vocab, self._label_namespace) for label in self.labels
            ]
