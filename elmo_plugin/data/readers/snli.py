"""Dataset reader of SNLI's jsonl files: sentence pairs with entailment labels."""

import json
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from allennlp.common.checks import ConfigurationError
from allennlp.common.file_utils import cached_path
from allennlp.data import DatasetReader, Instance, TokenIndexer, Tokenizer
from allennlp.data.fields import Field, MetadataField, TextField
from allennlp.data.tokenizers import PretrainedTransformerTokenizer

from elmo_plugin.bilm.files.text import QUOTED, is_unicode, quoted, read_lines
from elmo_plugin.data.gold_labels import GoldLabelField, label_text
from elmo_plugin.data.readers.sharding import ShardingReader
from elmo_plugin.data.spacy_model import spacy_tokenizer

LABELS = ("entailment", "neutral", "contradiction")
# Value of `gold_label` in MultiNLI's test sets, whose labels are not public.
HIDDEN = "hidden"


@DatasetReader.register("snli", exist_ok=True)
class SnliReader(ShardingReader):
    """
    Reads the Stanford Natural Language Inference corpus (Bowman et al. 2015, "A large annotated
    corpus for learning natural language inference") and others of its form: one JSON object per
    line with the keys `gold_label`, `sentence1` (the premise) and `sentence2` (the hypothesis).

    Skips blank lines, and pairs whose `gold_label` is `-` because the annotators did not agree. A
    pair without a `gold_label`, or with an empty one or MultiNLI's `hidden`, becomes an instance
    without a label.

    # Parameters

    tokenizer : `Tokenizer`, optional (default = `SpacyTokenizer()`)
        Splits both sentences. If spaCy's `en_core_web_sm` is not installed, the default uses the
        same rules from a blank English pipeline.
    token_indexers : `Dict[str, TokenIndexer]`, optional (default = single ids as `tokens`)
    combine_input_fields : `bool`, optional (default = `None`)
        If true, a single field `tokens` holds both sentences, joined by the tokenizer's special
        tokens. If false, they are the fields `premise` and `hypothesis`. `None` means true for a
        `PretrainedTransformerTokenizer` and false for any other tokenizer.
    collapse_labels : `bool`, optional (default = `False`)
        If true, every label but "entailment" becomes "non-entailment".
    labels : `List[str]`, optional (default = `["entailment", "neutral", "contradiction"]`)
        Labels that the file may have, such as `["entails", "neutral"]` for SciTail. Whole numbers
        count as strings (`1.0` as `1`), true and false as `1` and `0`.

    # Raises

    `ConfigurationError`
        If `collapse_labels` is true, but "entailment" is not in `labels`. If the fields are
        combined, and the tokenizer adds special tokens to each sentence.
    `ValueError`
        While reading, if a line is not a JSON object, lacks a sentence, or has an empty sentence or
        an unknown label. The message gives path and line. Also if the file has no pair to read.
    """

    def __init__(
        self,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        combine_input_fields: Optional[bool] = None,
        collapse_labels: Optional[bool] = False,
        labels: Optional[List[Union[str, int, float]]] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(token_indexers, **kwargs)
        self._tokenizer = tokenizer or spacy_tokenizer()
        if combine_input_fields is None:
            combine_input_fields = isinstance(self._tokenizer, PretrainedTransformerTokenizer)
        self._combine_input_fields = combine_input_fields
        if combine_input_fields and getattr(self._tokenizer, "_add_special_tokens", False):
            raise ConfigurationError(
                "the tokenizer adds special tokens to each sentence, expected "
                "add_special_tokens: false: the reader adds them to the pair"
            )
        self.collapse_labels = collapse_labels
        self._labels = tuple(map(label_text, labels or LABELS))
        if collapse_labels and "entailment" not in self._labels:
            raise ConfigurationError(
                f"found collapse_labels and the labels {list(self._labels)}, expected 'entailment' "
                "among them"
            )

    def _read(self, file_path: str) -> Iterable[Instance]:
        for where, pair in self.shard_iterable(self._pairs(file_path)):
            try:
                yield self.text_to_instance(
                    pair["sentence1"], pair["sentence2"], pair.get("gold_label")
                )
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error

    def _pairs(self, file_path: str) -> Iterator[Tuple[str, Dict[str, Any]]]:
        """Yield `(where, pair)` for each pair not labelled `-`; `where` names path and line."""
        empty = True
        for number, line in read_lines(cached_path(file_path), file_path):
            if not line.strip():
                continue
            where = f"{file_path}, line {number}"
            pair = _parse_pair(line, where)
            found = pair.get("gold_label")
            pair["gold_label"] = label = label_text(found)
            if label == HIDDEN and HIDDEN not in self._labels:
                del pair["gold_label"]
            elif label not in (*self._labels, "-", "", None):
                raise ValueError(
                    f"{where}: gold_label is {quoted(found)}, expected one of {self._labels} or "
                    "'-'; the reader's argument `labels` names others"
                )
            if label != "-":
                empty = False
                yield where, pair
        if empty:
            raise ValueError(
                f"{file_path}: no sentence pair found, expected one json object per line"
            )

    def text_to_instance(
        self, premise: str, hypothesis: str, label: Optional[Union[str, float]] = None
    ) -> Instance:
        """
        Make an instance from an untokenized sentence pair.

        The instance has the fields `premise`, `hypothesis`, `label` and `metadata`. The metadata
        holds the tokens as strings under `premise_tokens` and `hypothesis_tokens`. With
        `combine_input_fields` the instance only has the fields `tokens` and `label`. Raise a
        `ValueError` if the tokenizer finds no token in a sentence.
        """
        sentences = {}
        for name, text in (("premise", premise), ("hypothesis", hypothesis)):
            sentences[name] = self._tokenizer.tokenize(text)
            if not sentences[name]:
                raise ValueError(f"the {name} {quoted(text)} has no token, expected one at least")
        fields: Dict[str, Field] = {}
        if self._combine_input_fields:
            fields["tokens"] = TextField(self._tokenizer.add_special_tokens(*sentences.values()))
        else:
            words = {}
            for name, sentence in sentences.items():
                tokens = self._tokenizer.add_special_tokens(sentence)
                fields[name] = TextField(tokens)
                words[f"{name}_tokens"] = [token.text for token in tokens]
            fields["metadata"] = MetadataField(words)
        if label not in (None, ""):
            label = str(label_text(label))
            if self.collapse_labels and label != "entailment":
                label = "non-entailment"
            fields["label"] = GoldLabelField(label)
        return Instance(fields)


def _parse_pair(line: str, where: str) -> Dict[str, Any]:
    try:
        pair = json.loads(line)
    except (ValueError, RecursionError) as error:  # RecursionError: nested too deep
        reason = str(error)[:QUOTED]
        raise ValueError(f"{where}: not json ({reason}), found {quoted(line.strip())}") from error
    if not isinstance(pair, dict):
        raise ValueError(f"{where}: expected a json object, found {quoted(line.strip())}")
    for key in ("sentence1", "sentence2"):
        sentence = pair.get(key)
        if not isinstance(sentence, str):
            raise ValueError(
                f"{where}: expected a string under {key!r}, found {quoted(sentence)}; "
                f"the keys are {quoted(', '.join(sorted(pair)))}"
            )
        if not is_unicode(sentence):
            raise ValueError(
                f"{where}: {key} holds half a surrogate pair, found {quoted(sentence)}, expected "
                "characters"
            )
        if not sentence.strip():
            raise ValueError(f"{where}: {key} is {quoted(sentence)}, expected a word at least")
    return pair
