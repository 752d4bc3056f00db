"""Reads sentence pairs with entailment labels from SNLI's jsonl files."""

import json
from typing import Any, Dict, Iterable, Iterator, Optional, Tuple

from allennlp.common.file_utils import cached_path
from allennlp.data import DatasetReader, Instance, TokenIndexer, Tokenizer
from allennlp.data.fields import Field, MetadataField, TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer, SpacyTokenizer

from elmo_plugin.bilm.files.text import QUOTED, is_unicode, quoted, read_lines
from elmo_plugin.data.gold_labels import GoldLabelField

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
        While reading, with path and line: if a line is no json object, lacks a sentence or has
        an empty one or an unknown label, or if the file holds no labelled or unlabelled pair.
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
        for where, pair in self.shard_iterable(_read_pairs(file_path)):
            try:
                yield self.text_to_instance(
                    pair["sentence1"], pair["sentence2"], pair.get("gold_label")
                )
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error

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

        # Raises

        `ValueError`
            If the tokenizer finds no token in a sentence: there is nothing to attend to.
        """
        premise_tokens = self._tokenizer.tokenize(premise)
        hypothesis_tokens = self._tokenizer.tokenize(hypothesis)
        for name, text, tokens in (
            ("premise", premise, premise_tokens),
            ("hypothesis", hypothesis, hypothesis_tokens),
        ):
            if not tokens:
                raise ValueError(f"the {name} {quoted(text)} has no token, expected one at least")
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
            fields["label"] = GoldLabelField(label)
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


def _read_pairs(file_path: str) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """The checked pairs of one file, those labelled `-` left out, with their places."""
    empty = True
    for number, line in read_lines(cached_path(file_path), file_path):
        if not line.strip():
            continue
        where = f"{file_path}, line {number}"
        pair = _parse_pair(line, where)
        if pair.get("gold_label") != "-":
            empty = False
            yield where, pair
    if empty:
        raise ValueError(f"{file_path}: no sentence pair found, expected one json object per line")


def _parse_pair(line: str, where: str) -> Dict[str, Any]:
    try:
        pair = json.loads(line)
    except (ValueError, RecursionError) as error:  # too deep, or an integer too long, for one
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
    label = pair.get("gold_label")
    if label not in (*LABELS, "-", None):
        raise ValueError(f"{where}: gold_label is {quoted(label)}, expected one of {LABELS} or '-'")
    return pair
