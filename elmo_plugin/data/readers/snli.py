"""Reads sentence pairs with entailment labels from SNLI's jsonl files."""

import json
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, Optional

from allennlp.common.file_utils import cached_path
from allennlp.data import DatasetReader, Instance, TokenIndexer, Tokenizer
from allennlp.data.fields import Field, LabelField, MetadataField, TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer, SpacyTokenizer

LABELS = ("entailment", "neutral", "contradiction")


@DatasetReader.register("snli", exist_ok=True)
class SnliReader(DatasetReader):
    """
    Reads the Stanford Natural Language Inference corpus (Bowman et al. 2015, "A large annotated
    corpus for learning natural language inference"): one json object per line with the keys
    `gold_label`, `sentence1` (the premise) and `sentence2` (the hypothesis).

    Pairs whose `gold_label` is `-`, on which the annotators did not agree, are skipped. A pair
    without a `gold_label` is read without a label. Files are streamed, blank lines skipped.

    # Parameters

    tokenizer : `Tokenizer`, optional (default = `SpacyTokenizer()`)
        Splits both sentences. Without spaCy's `en_core_web_sm` the default applies the same rules
        from a blank English pipeline; nothing is downloaded.
    token_indexers : `Dict[str, TokenIndexer]`, optional (default = `None`)
        How tokens become ids; `{"tokens": SingleIdTokenIndexer()}` if not given.
    combine_input_fields : `bool`, optional (default = `None`)
        Whether both sentences go into one field `tokens`, joined by the tokenizer's special tokens,
        instead of `premise` and `hypothesis`. If not given, only with a
        `PretrainedTransformerTokenizer`.
    collapse_labels : `bool`, optional (default = `False`)
        Whether "neutral" and "contradiction" become the one label "non-entailment".

    # Raises

    `ValueError`
        While reading, with path and line: if a line is no json object, lacks a sentence or has an
        unknown label, or if the file holds no labelled or unlabelled pair at all.
    """

    def __init__(
        self,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        combine_input_fields: Optional[bool] = None,
        collapse_labels: Optional[bool] = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            manual_distributed_sharding=True, manual_multiprocess_sharding=True, **kwargs
        )
        self._tokenizer = tokenizer or SpacyTokenizer()
        self._token_indexers = token_indexers or {"tokens": SingleIdTokenIndexer()}
        if combine_input_fields is None:
            combine_input_fields = isinstance(self._tokenizer, PretrainedTransformerTokenizer)
        self._combine_input_fields = combine_input_fields
        self.collapse_labels = collapse_labels

    def _read(self, file_path: str) -> Iterable[Instance]:
        for pair in self.shard_iterable(_read_pairs(file_path)):
            yield self.text_to_instance(
                pair["sentence1"], pair["sentence2"], pair.get("gold_label")
            )

    def text_to_instance(
        self, premise: str, hypothesis: str, label: Optional[str] = None
    ) -> Instance:
        """
        # Parameters

        premise : `str`
            Untokenized.
        hypothesis : `str`
            Untokenized.
        label : `str`, optional (default = `None`)
            "entailment", "neutral" or "contradiction".

        # Returns

        `Instance`
            Fields `premise`, `hypothesis`, `metadata` (the tokens of both as strings, under
            `premise_tokens` and `hypothesis_tokens`) and `label`; or `tokens` and `label` with
            `combine_input_fields`.
        """
        premise_tokens = self._tokenizer.tokenize(premise)
        hypothesis_tokens = self._tokenizer.tokenize(hypothesis)
        fields: Dict[str, Field] = {}
        if self._combine_input_fields:
            joined = self._tokenizer.add_special_tokens(premise_tokens, hypothesis_tokens)
            fields["tokens"] = TextField(joined)
        else:
            premise_tokens = self._tokenizer.add_special_tokens(premise_tokens)
            hypothesis_tokens = self._tokenizer.add_special_tokens(hypothesis_tokens)
            fields["premise"] = TextField(premise_tokens)
            fields["hypothesis"] = TextField(hypothesis_tokens)
            fields["metadata"] = MetadataField(
                {
                    "premise_tokens": [token.text for token in premise_tokens],
                    "hypothesis_tokens": [token.text for token in hypothesis_tokens],
                }
            )
        if label:
            if self.collapse_labels and label != "entailment":
                label = "non-entailment"
            fields["label"] = LabelField(label)
        return Instance(fields)

    def apply_token_indexers(self, instance: Instance) -> None:
        """
        Gives the text fields their indexers, after the instance has come from a worker process.

        # Parameters

        instance : `Instance`
            As made by `text_to_instance`; changed in place.
        """
        for name in ("tokens", "premise", "hypothesis"):
            if name in instance.fields:
                instance.fields[name].token_indexers = self._token_indexers  # type: ignore[attr-defined]


def _read_pairs(file_path: str) -> Iterator[Dict[str, Any]]:
    """The checked pairs of one file, those labelled `-` left out."""
    empty = True
    with Path(cached_path(file_path)).open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            pair = _parse_pair(line, f"{file_path}, line {number}")
            if pair.get("gold_label") != "-":
                empty = False
                yield pair
    if empty:
        raise ValueError(f"{file_path}: no sentence pair found, expected one json object per line")


def _parse_pair(line: str, where: str) -> Dict[str, Any]:
    try:
        pair = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: not json ({error}), found {line.strip()[:80]!r}") from error
    if not isinstance(pair, dict):
        raise ValueError(f"{where}: expected a json object, found {line.strip()[:80]!r}")
    for key in ("sentence1", "sentence2"):
        if not isinstance(pair.get(key), str):
            raise ValueError(
                f"{where}: expected a string under {key!r}, found {pair.get(key)!r}; "
                f"the keys are {sorted(pair)}"
            )
    label = pair.get("gold_label")
    if label not in (*LABELS, "-", None):
        raise ValueError(f"{where}: gold_label is {label!r}, expected one of {LABELS} or '-'")
    return pair
