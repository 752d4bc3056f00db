"""Gold labels that training never saw, counted for one warning."""

import logging
import weakref
from collections import Counter
from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from elmo_plugin.data.gold_labels import allow_unseen, names_of_unseen

logger = logging.getLogger(__name__)

# Of the labels found, how many the warning names.
NAMED = 5


class UnseenLabels:
    """
    A model's own: lets its gold labels be ones that the vocabulary lacks, tells which they are, and
    says how many there were, once, when `say` is called or the model is done with.

    # Parameters

    vocab : `Vocabulary`
        The model's.
    namespace : `str`, optional (default = `"labels"`)
        Of the gold labels.
    """

    def __init__(self, vocab: Vocabulary, namespace: str = "labels") -> None:
        allow_unseen(vocab, namespace)
        self._namespace = namespace
        self._found: Counter = Counter()
        # `predict` asks for no metrics.
        weakref.finalize(self, _say, self._found, namespace)

    def seen(
        self, gold: torch.Tensor, training: bool, mask: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        """
        # Parameters

        gold : `torch.Tensor`
            Label ids, any shape.
        training : `bool`
            Whether the model trains, which it cannot on labels that it has no score for.
        mask : `torch.Tensor`, optional (default = `None`)
            True = real token, the same shape.

        # Returns

        `torch.Tensor`
            Bool, the same shape: False where the label was never seen.

        # Raises

        `ConfigurationError`
            If there is such a label in training.
        """
        seen = gold >= 0
        missing = gold[~seen if mask is None else ~seen & mask.bool()].tolist()
        if missing and training:
            name = names_of_unseen.get(missing[0], "one")
            raise ConfigurationError(
                f"found the label {name!r} in training, which is not in the vocabulary's namespace "
                f"{self._namespace!r}; expected the training data among those that the vocabulary "
                "is made from (datasets_for_vocab_creation)"
            )
        self._found.update(missing)
        return seen

    def say(self) -> None:
        """Warns of the labels found since the last call, if there were any."""
        _say(self._found, self._namespace)


def _say(found: Counter, namespace: str) -> None:
    if not found:
        return
    names = [names_of_unseen[label] for label, _ in found.most_common() if label in names_of_unseen]
    shown = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
    logger.warning(
        "%d gold labels (%d different%s) are not in the vocabulary's namespace %r: training never "
        "saw them. They count as wrong, and are left out of the loss",
        sum(found.values()),
        len(found),
        f": {shown}" if shown else "",
        namespace,
    )
    found.clear()
