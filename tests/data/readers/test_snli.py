import json

import numpy
import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Vocabulary
from allennlp.data.tokenizers import WhitespaceTokenizer

from elmo_plugin.data.readers.snli import SnliReader

PAIRS = [
    {"gold_label": "neutral", "sentence1": "A dog runs.", "sentence2": "It is late."},
    {"gold_label": "-", "sentence1": "Two girls sing.", "sentence2": "They sleep."},
    {"gold_label": "entailment", "sentence1": "A dog runs.", "sentence2": "It moves."},
    {"gold_label": "contradiction", "sentence1": "A dog runs.", "sentence2": "It sits."},
    {"sentence1": "A cat sits.", "sentence2": "It rests."},
]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n\n".join(map(json.dumps, PAIRS)) + "\n", encoding="utf-8")
    return path


def read(path, **arguments):
    reader = SnliReader(tokenizer=WhitespaceTokenizer(), **arguments)
    return list(reader.read(str(path)))


def label(instance):
    return instance["label"].label if "label" in instance.fields else None


def test_pairs_are_read_in_order_without_those_that_have_no_agreed_label(corpus):
    instances = read(corpus)
    assert list(map(label, instances)) == ["neutral", "entailment", "contradiction", None]
    first = instances[0]
    assert [token.text for token in first["premise"]] == ["A", "dog", "runs."]
    assert [token.text for token in first["hypothesis"]] == ["It", "is", "late."]
    assert first["metadata"].metadata == {
        "premise_tokens": ["A", "dog", "runs."],
        "hypothesis_tokens": ["It", "is", "late."],
    }


def test_labels_can_be_collapsed_to_two(corpus):
    labels = list(map(label, read(corpus, collapse_labels=True)))
    assert labels == ["non-entailment", "entailment", "non-entailment", None]


def test_both_sentences_can_be_one_field(corpus):
    class Joining(WhitespaceTokenizer):
        def add_special_tokens(self, tokens1, tokens2=None):
            return [*tokens1, *tokens2]

    instance = next(
        iter(SnliReader(tokenizer=Joining(), combine_input_fields=True).read(str(corpus)))
    )
    assert sorted(instance.fields) == ["label", "tokens"]
    assert len(instance["tokens"]) == 6
    Joining._add_special_tokens = True
    with pytest.raises(ConfigurationError, match="expected add_special_tokens: false"):
        SnliReader(tokenizer=Joining(), combine_input_fields=True)


def test_labels_may_be_whole_numbers(tmp_path):
    path = tmp_path / "numbers.jsonl"
    pairs = [{**PAIRS[0], "gold_label": name} for name in (0, 1, "1", None, "", "-", 1.0, True)]
    path.write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    for reader in (
        SnliReader(tokenizer=WhitespaceTokenizer(), labels=[0, 1]),
        SnliReader(tokenizer=WhitespaceTokenizer(), labels=[False, True]),
        *(
            DatasetReader.from_params(
                Params({"type": "snli", "labels": labels, "tokenizer": "whitespace"})
            )
            for labels in ([0, 1], [0.0, 1.0], [False, True])
        ),
    ):
        found = list(reader.read(path))
        assert list(map(label, found)) == ["0", "1", "1", None, None, "1", "1"]
        Vocabulary.from_instances(found)
    for number in (0, 0.0, numpy.int64(0), numpy.float32(0), numpy.bool_(0), torch.tensor(0)):
        assert label(reader.text_to_instance("A", "B", number)) == "0"
    assert label(reader.text_to_instance("A", "B", numpy.str_("0"))) == "0"


def test_other_corpora_have_labels_of_their_own(tmp_path):
    path = tmp_path / "scitail.jsonl"
    pairs = [{**PAIRS[0], "gold_label": name} for name in ("entails", "neutral", "hidden", "-")]
    path.write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    found = read(path, labels=["entails", "neutral"])
    assert list(map(label, found)) == ["entails", "neutral", None]
    assert label(read(path, labels=["entails", "neutral", "hidden"])[2]) == "hidden"
