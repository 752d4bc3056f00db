"""Scores for spans, such as named entities, computed as in the CoNLL script `conlleval`."""

from typing import Dict, Iterable, List, Optional, Set, Tuple

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.data.dataset_readers.dataset_utils import bio_tags_to_spans
from allennlp.nn.util import dist_reduce_sum
from allennlp.training.metrics import Metric

from elmo_plugin.data.gold_labels import names_of_unseen, prefix_and_type, type_number

# `conlleval` knows only the prefixes B, I and O. Map the prefixes of other encodings to them.
PREFIXES = {
    "BIO": {"B": "B", "I": "I"},
    "IOB1": {"B": "B", "I": "I"},
    "BIOUL": {"B": "B", "I": "I", "L": "I", "U": "B"},
    "BMES": {"B": "B", "M": "I", "E": "I", "S": "B"},
}
ENDS = ("L", "U", "E", "S")


def bio_tags(tags: Iterable[str], label_encoding: str) -> List[str]:
    """
    Convert a sentence's tags to BIO: the BIOUL tags `B-PER L-PER` become `B-PER I-PER`. After the
    end of a span (`L`, `U`, `E`, `S`), the next one begins with `B`, as in `conlleval`. Raise a
    `ConfigurationError` if a tag's prefix is not in the label encoding.
    """
    prefixes, found, ended = PREFIXES[label_encoding], [], False
    for tag in tags:
        prefix = tag.partition("-")[0]
        if tag != "O":
            if prefix not in prefixes:
                expected = ", ".join(f"{known}-X" for known in prefixes)
                raise ConfigurationError(
                    f"found the tag {tag!r}, which is not in the label encoding {label_encoding}; "
                    f"expected O, {expected}"
                )
            tag = ("B" if ended else prefixes[prefix]) + tag[1:]
        found.append(tag)
        ended = prefix in ENDS
    return found


def precision_recall_f1(
    name: str, correct: float, predicted: float, gold: float
) -> Dict[str, float]:
    """
    Compute precision, recall and F1 from numbers of correct, predicted and gold items. Return a
    dictionary with the keys `precision-NAME`, `recall-NAME` and `f1-measure-NAME`.
    """
    return {
        f"precision-{name}": correct / max(predicted, 1),
        f"recall-{name}": correct / max(gold, 1),
        # equals 2 p r / (p + r), but is also defined if both are 0
        f"f1-measure-{name}": 2 * correct / max(predicted + gold, 1),
    }


@Metric.register("conlleval", exist_ok=True)
class Conlleval(Metric):
    """
    Precision, recall and F1 of predicted spans, from 0 to 1, computed as in `conlleval`. A span is
    correct if type, start and end are all correct. As in the script, ill-formed tags are accepted
    (see AllenNLP's `bio_tags_to_spans`). On well-formed tags, AllenNLP's `span_f1` gives
    the same scores. It raises errors on ill-formed tags and in distributed training. Unlike
    `span_f1`, this metric does not join the `C-` spans of semantic roles.

    Registered as a `Metric` with name "conlleval".

    # Parameters

    vocabulary : `Vocabulary`
    tag_namespace : `str`, optional (default = `"tags"`)
        Vocabulary namespace of the tags.
    ignore_classes : `List[str]`, optional (default = `None`)
        Span types that are not counted.
    label_encoding : `str`, optional (default = `"BIO"`)
        `BIO`, `IOB1`, `BIOUL` or `BMES`.

    # Raises

    `ConfigurationError`
        If the label encoding is unknown, or a type is called `overall` or `unseen`. When called, if
        a tag's prefix is not in the encoding, or a gold id is not below the number of tags.
    """

    supports_distributed = True

    def __init__(
        self,
        vocabulary: Vocabulary,
        tag_namespace: str = "tags",
        ignore_classes: Optional[List[str]] = None,
        label_encoding: str = "BIO",
    ) -> None:
        if label_encoding not in PREFIXES:
            raise ConfigurationError(
                f"unknown label encoding: {label_encoding}; expected {', '.join(PREFIXES)}"
            )
        self._label_encoding = label_encoding
        self._ignored = list(ignore_classes or [])
        self._tags: Dict[int, str] = dict(vocabulary.get_index_to_token_vocabulary(tag_namespace))
        # The namespace may also hold labels that are not tags, such as the padding token.
        prefixes = PREFIXES[label_encoding]
        self._types = sorted(
            {t[2:] for t in self._tags.values() if t == "O" or t.partition("-")[0] in prefixes}
        )
        for name in ("overall", "unseen"):
            if name in self._types:
                raise ConfigurationError(
                    f"found spans of the type {name!r}, the name of a sum of this metric; expected "
                    "another name for the type"
                )
        self._type_numbers = {type_number(span_type): span_type for span_type in self._types}
        self.reset()

    def __call__(
        self,
        predictions: torch.Tensor,
        gold_labels: torch.Tensor,
        mask: Optional[torch.BoolTensor] = None,
    ) -> None:
        """
        Compare predicted and gold spans of a batch of sentences, and add the counts.

        `predictions` holds scores, shape `(batch_size, num_tokens, num_tags)`. `gold_labels` holds
        tag ids, shape `(batch_size, num_tokens)`; negative ids are tags outside the vocabulary (see
        `elmo_plugin.data.gold_labels`), and their spans count as spans of the type `unseen` if no
        tag has their type. `mask` is true for real tokens, which come first, in the same shape.
        """
        predictions, gold_labels = self.detach_tensors(predictions, gold_labels)
        if (gold_labels >= predictions.size(-1)).any():
            raise ConfigurationError(
                f"a gold label has id {int(gold_labels.max())}; "
                f"expected less than {predictions.size(-1)}, the number of tags"
            )
        if mask is None:
            lengths = [gold_labels.size(1)] * gold_labels.size(0)
        else:
            lengths = mask.sum(dim=-1).tolist()
        counts = torch.zeros(len(self._types) + 1, 3, dtype=torch.long)
        rows = zip(predictions.argmax(dim=-1).tolist(), gold_labels.tolist(), lengths, strict=True)
        for predicted_ids, gold_ids, length in rows:
            predicted = self._spans(predicted_ids[:length])
            gold = self._spans(gold_ids[:length])
            for column, spans in enumerate((gold & predicted, predicted, gold)):
                for span_type, _ in spans:
                    known = span_type in self._types
                    row = self._types.index(span_type) if known else len(self._types)
                    counts[row, column] += 1
        # This all-reduce cannot hang, because all processes call the metric equally often.
        counts = dist_reduce_sum(counts).cpu()
        self._counts += counts[:-1]
        self._unseen_counts += counts[-1]

    def _spans(self, ids: List[int]) -> Set[Tuple[str, Tuple[int, int]]]:
        for i in {i for i in ids if i < 0}.difference(self._tags):
            prefix, number = prefix_and_type(i)
            if prefix == "O" or prefix in PREFIXES[self._label_encoding]:
                # No prediction has a type named `unseen NUMBER`, so such a span counts as missed.
                span_type = self._type_numbers.get(number, f"unseen {number}")
                self._tags[i] = "O" if prefix == "O" else f"{prefix}-{span_type}"
        # `bio_tags` refuses what is no tag of the encoding.
        names = [self._tags.get(i) or names_of_unseen.get(i, "one training never saw") for i in ids]
        return set(bio_tags_to_spans(bio_tags(names, self._label_encoding), self._ignored))

    def get_metric(self, reset: bool = False) -> Dict[str, float]:
        """
        Return `precision-X`, `recall-X` and `f1-measure-X`, from 0 to 1, where `X` is `overall` or
        a span type that occurred. A score is 0 if nothing was counted. `reset` sets counts to 0.
        """
        metrics: Dict[str, float] = {}
        rows = {
            "overall": self._counts.sum(dim=0) + self._unseen_counts,
            **dict(zip(self._types, self._counts, strict=True)),
            "unseen": self._unseen_counts,
        }
        for name, row in rows.items():
            correct, predicted, gold = row.tolist()
            if predicted or gold or name == "overall":
                metrics.update(precision_recall_f1(name, correct, predicted, gold))
        if reset:
            self.reset()
        return metrics

    def counts(self) -> List[float]:
        """Return the numbers of correct, of predicted and of gold spans, over all types."""
        return (self._counts.sum(dim=0) + self._unseen_counts).double().tolist()

    def reset(self) -> None:
        """Set all counts to 0."""
        # Numbers of correct, predicted and gold spans of each type. Shape: (num_types, 3)
        self._counts = torch.zeros(len(self._types), 3, dtype=torch.long)
        # The three numbers for spans of all types that are not in the vocabulary.
        self._unseen_counts = torch.zeros(3, dtype=torch.long)
