"""Named-entity scores as the CoNLL shared tasks' script `conlleval` counts them."""

from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.nn.util import dist_reduce_sum
from allennlp.training.metrics import Metric

from elmo_plugin.data.gold_labels import names_of_unseen, prefix_and_type, type_number

# The script is fed B, I and O. The longer encodings are turned into these letter by letter, as one
# does before calling it.
PREFIXES = {
    "BIO": {"B": "B", "I": "I"},
    "IOB1": {"B": "B", "I": "I"},
    "BIOUL": {"B": "B", "I": "I", "L": "I", "U": "B"},
    "BMES": {"B": "B", "M": "I", "E": "I", "S": "B"},
}


class Chunk(NamedTuple):
    """A span of tokens: its type, its first token and its last."""

    chunk_type: str
    start: int
    end: int


def tags_to_chunks(tags: List[Tuple[str, str]]) -> List[Chunk]:
    """
    The rules of the script (version of 2004-01-26, E. Tjong Kim Sang), which give every sequence of
    tags a reading, ill-formed ones too: a chunk starts at every `B`, and at an `I` after `O` or
    after another type; it ends before the next start or `O`.

    # Parameters

    tags : `List[Tuple[str, str]]`
        Prefix, one of `B`, `I` and `O`, and type of each token's tag.

    # Returns

    `List[Chunk]`
        In the order of the tokens.
    """
    chunks: List[Chunk] = []
    start: Optional[int] = None  # of the chunk that is open before this token
    open_type = ""
    for position, (prefix, chunk_type) in enumerate([*tags, ("O", "")]):
        if start is not None and not (prefix == "I" and chunk_type == open_type):
            chunks.append(Chunk(open_type, start, position - 1))
            start = None
        if start is None and prefix != "O":
            start, open_type = position, chunk_type
    return chunks


@Metric.register("conlleval", exist_ok=True)
class Conlleval(Metric):
    """
    Precision, recall and F1 over chunks that are right in type, start and end, as `conlleval` gives
    them in per cent and this in fractions. On well-formed taggings equal to AllenNLP's `span_f1`,
    with the same keys; it also scores ill-formed ones, where that raises, and works in distributed
    training, where that raises too. Unlike `span_f1` it does not join `C-` spans: those belong to
    semantic roles.

    Registered as a `Metric` with name "conlleval".

    # Parameters

    vocabulary : `Vocabulary`
        Holds the tags.
    tag_namespace : `str`, optional (default = `"tags"`)
        The tags' namespace.
    ignore_classes : `List[str]`, optional (default = `None`)
        Chunk types that are not counted.
    label_encoding : `str`, optional (default = `"BIO"`)
        `BIO`, `IOB1`, `BIOUL` or `BMES`.

    # Raises

    `ConfigurationError`
        For another encoding, or, when called, for a tag that the encoding does not have.
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
        self._ignored = set(ignore_classes or [])
        self._labels: Dict[int, str] = vocabulary.get_index_to_token_vocabulary(tag_namespace)
        # Ids of tags that the encoding has; a vocabulary may hold others, say for padding.
        self._tags: Dict[int, Tuple[str, str]] = {}
        for index, label in self._labels.items():
            prefix, _, chunk_type = label.partition("-")
            if label == "O":
                self._tags[index] = ("O", "")
            elif prefix in PREFIXES[label_encoding]:
                self._tags[index] = (PREFIXES[label_encoding][prefix], chunk_type)
        self._types = sorted({chunk_type for prefix, chunk_type in self._tags.values()})
        self._type_numbers = {type_number(chunk_type): chunk_type for chunk_type in self._types}
        self.reset()

    def __call__(
        self,
        predictions: torch.Tensor,
        gold_labels: torch.Tensor,
        mask: Optional[torch.BoolTensor] = None,
    ) -> None:
        """
        # Parameters

        predictions : `torch.Tensor`
            Scores of shape `(batch_size, num_tokens, num_tags)`; the highest counts.
        gold_labels : `torch.Tensor`
            Tag ids, shape `(batch_size, num_tokens)`; those below 0 are of tags that the vocabulary
            lacks (see `elmo_plugin.data.gold_labels`), whose types are counted together as `unseen`
            if they are not in it either.
        mask : `torch.BoolTensor`, optional (default = `None`)
            True = real token, shape `(batch_size, num_tokens)`; real tokens come first in a row.
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
            predicted = self._chunks(predicted_ids[:length])
            gold = self._chunks(gold_ids[:length])
            for column, chunks in enumerate((gold & predicted, predicted, gold)):
                for chunk in chunks:
                    counts[self._row(chunk), column] += 1
        # Every process takes the same number of steps, so each call can sum over all of them.
        counts = dist_reduce_sum(counts).cpu()
        self._counts += counts[:-1]
        self._unseen_counts += counts[-1]

    def _row(self, chunk: Chunk) -> int:
        known = chunk.chunk_type in self._types
        return self._types.index(chunk.chunk_type) if known else len(self._types)

    def _chunks(self, ids: List[int]) -> set[Chunk]:
        for i in {i for i in ids if i < 0}.difference(self._tags):
            prefix, number = prefix_and_type(i)
            if prefix == "O":
                self._tags[i] = ("O", "")
            elif prefix in PREFIXES[self._label_encoding]:
                # A type of its own: no prediction has it.
                chunk_type = self._type_numbers.get(number, f"unseen {number}")
                self._tags[i] = (PREFIXES[self._label_encoding][prefix], chunk_type)
        unknown = [
            self._labels.get(i, names_of_unseen.get(i, "one training never saw"))
            for i in ids
            if i not in self._tags
        ]
        if unknown:
            expected = ", ".join(f"{prefix}-X" for prefix in PREFIXES[self._label_encoding])
            raise ConfigurationError(
                f"found the tag {unknown[0]!r}, which is not in the label encoding "
                f"{self._label_encoding}; expected O, {expected}"
            )
        chunks = tags_to_chunks([self._tags[i] for i in ids])
        return {chunk for chunk in chunks if chunk.chunk_type not in self._ignored}

    def get_metric(self, reset: bool = False) -> Dict[str, float]:
        """
        # Parameters

        reset : `bool`, optional (default = `False`)
            Start counting again.

        # Returns

        `Dict[str, float]`
            `precision-X`, `recall-X` and `f1-measure-X` as fractions, for `X` = `overall` and every
            chunk type that was seen; 0 where nothing was to be counted.
        """
        metrics = {}
        rows = {
            "overall": self._counts.sum(dim=0) + self._unseen_counts,
            **dict(zip(self._types, self._counts, strict=True)),
            "unseen": self._unseen_counts,
        }
        for name, row in rows.items():
            correct, predicted, gold = row.tolist()
            if predicted or gold or name == "overall":
                metrics[f"precision-{name}"] = correct / max(predicted, 1)
                metrics[f"recall-{name}"] = correct / max(gold, 1)
                # 2 p r / (p + r), written in counts
                metrics[f"f1-measure-{name}"] = 2 * correct / max(predicted + gold, 1)
        if reset:
            self.reset()
        return metrics

    def counts(self) -> List[float]:
        """Correct, predicted and gold chunks of all types since the last reset."""
        return (self._counts.sum(dim=0) + self._unseen_counts).double().tolist()

    def reset(self) -> None:
        """Starts counting again."""
        # Shape: (chunk types, 3): correct, predicted, in the gold standard
        self._counts = torch.zeros(len(self._types), 3, dtype=torch.long)
        # Of all types that the vocabulary lacks.
        self._unseen_counts = torch.zeros(3, dtype=torch.long)
