"""Gold labels that do not occur in the training data, which count as errors of the model."""

import logging
import weakref
from collections import Counter
from typing import Optional, Tuple

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from elmo_plugin.data.gold_labels import allow_unseen, names_of_unseen, unseen_id

logger = logging.getLogger(__name__)

# Largest number of labels whose names the warning lists.
NAMED = 5


class UnseenLabels:
    """
    Helper that lets a model accept, in evaluation, gold labels that are not in its vocabulary.
    These labels get negative ids (see `elmo_plugin.data.gold_labels`). They count as errors of the
    model and are left out of the loss. A warning gives their number and a few names (see `warn`).
    `namespace` is that of the gold labels in the model's vocabulary.
    """

    def __init__(self, vocab: Vocabulary, namespace: str = "labels") -> None:
        allow_unseen(vocab, namespace)
        self._vocab, self._namespace = vocab, namespace
        self._num_labels = vocab.get_vocab_size(namespace)
        self._found: Counter = Counter()
        # If a program never calls `warn`, log the warning when this object is deleted.
        weakref.finalize(self, _warn, self._found, namespace)

    def find(
        self, gold: torch.Tensor, training: bool, mask: Optional[torch.Tensor] = None
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        """
        Find the labels that the model cannot predict. Such a label either has a negative id
        already, or was added to the vocabulary later, as by `evaluate --extend-vocab`.

        `gold` holds label ids in any shape. `mask` is true for real tokens, in the same shape.
        Return two tensors: the label ids, with a negative id for each label that was found, and a
        mask that is false for these labels, which must be left out of the loss. In training, raise
        a `ConfigurationError` if such a label is found at a real token.
        """
        added = gold >= self._num_labels
        if added.any():
            gold = gold.clone()
            for label in gold[added].unique().tolist():
                name = self._vocab.get_token_from_index(label, self._namespace)
                gold[gold == label] = unseen_id(name)
        seen = gold >= 0
        missing = gold[~seen if mask is None else ~seen & mask.bool()].tolist()
        if missing and training:
            name = names_of_unseen.get(missing[0], "one")
            raise ConfigurationError(
                f"found the label {name!r} in training, which was not in the vocabulary's "
                f"namespace {self._namespace!r} when the model was made; expected the training "
                "data among those that the vocabulary is made from (datasets_for_vocab_creation), "
                "and no new labels for a model from an archive"
            )
        self._found.update(missing)
        return gold, seen

    def warn(self) -> None:
        """Log a warning if `find` has found labels outside the vocabulary since the last call."""
        _warn(self._found, self._namespace)


def _warn(found: Counter, namespace: str) -> None:
    if not found:
        return
    names = [names_of_unseen[label] for label, _ in found.most_common() if label in names_of_unseen]
    shown = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
    logger.warning(
        "%d gold labels (%d different%s) were not in the vocabulary's namespace %r: training never "
        "saw them. They count as wrong, and are left out of the loss",
        sum(found.values()),
        len(found),
        f": {shown}" if shown else "",
        namespace,
    )
    found.clear()
