"""Scores for spans, such as named entities, computed as in the CoNLL script `conlleval`."""

from typing import Dict, Iterable, List, Optional, Set, Tuple

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.data.dataset_readers.dataset_utils import bio_tags_to_spans
from allennlp.training.metrics import Metric

from elmo_plugin.data.gold_labels import names_of_unseen, prefix_and_type, type_number
from elmo_plugin.metrics.counting import SpanMetric

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


@Metric.register("conlleval", exist_ok=True)
class Conlleval(SpanMetric):
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
        types = {t[2:] for t in self._tags.values() if t == "O" or t.partition("-")[0] in prefixes}
        if taken := sorted(types & {"overall", "unseen"}):
            raise ConfigurationError(
                f"found spans of the type {taken[0]!r}, the name of a sum of this metric; expected "
                "another name for the type"
            )
        self._types = {type_number(span_type): span_type for span_type in types}
        super().__init__()

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
        known = {*self._types.values()}
        batch: Tuple[List[str], List[str], List[str]] = ([], [], [])
        rows = zip(predictions.argmax(dim=-1).tolist(), gold_labels.tolist(), lengths, strict=True)
        for predicted_ids, gold_ids, length in rows:
            predicted = self._spans(predicted_ids[:length])
            gold = self._spans(gold_ids[:length])
            for types, spans in zip(batch, (gold & predicted, predicted, gold)):
                types += [name if name in known else "unseen" for name, _ in spans]
        self.add_spans(*batch)

    def _spans(self, ids: List[int]) -> Set[Tuple[str, Tuple[int, int]]]:
        for i in {i for i in ids if i < 0}.difference(self._tags):
            prefix, number = prefix_and_type(i)
            if prefix == "O" or prefix in PREFIXES[self._label_encoding]:
                # No prediction has a type named `unseen NUMBER`, so such a span counts as missed.
                span_type = self._types.get(number, f"unseen {number}")
                self._tags[i] = "O" if prefix == "O" else f"{prefix}-{span_type}"
        # `bio_tags` refuses what is no tag of the encoding.
        names = [self._tags.get(i) or names_of_unseen.get(i, "one training never saw") for i in ids]
        return set(bio_tags_to_spans(bio_tags(names, self._label_encoding), self._ignored))
