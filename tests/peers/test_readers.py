"""The readers read what allennlp-models' readers read."""

import importlib
import random
from pathlib import Path

import pytest
from allennlp.data.fields import IndexField, LabelField, MetadataField, TextField
from allennlp.data.tokenizers import WhitespaceTokenizer

from elmo_plugin.data.readers.snli import SnliReader
from elmo_plugin.data.readers.squad import SquadReader
from elmo_plugin.data.readers.srl import SrlReader
from elmo_plugin.data.readers.sst_tokens import StanfordSentimentTreeBankDatasetReader, parse_tree
from tests.data.readers.test_srl_reader import bert  # noqa: F401

pytest.importorskip(
    "allennlp_models", reason="allennlp-models is not installed; `make peers` installs it apart"
)
Tree = pytest.importorskip("nltk.tree").Tree
pytestmark = pytest.mark.peers

EXAMPLES = Path(__file__).parents[2] / "examples"
CUT = {"passage_length_limit": 20, "question_length_limit": 4}
SKIPPED = {"passage_length_limit": 12, "skip_impossible_questions": True}
# Reader, its module in allennlp-models, file, number of instances that are fewer, arguments.
READERS = [
    *(
        (SnliReader, "pair_classification", "snli/dev.jsonl", 100, arguments)
        for arguments in (
            {},
            {"collapse_labels": True},
            {"collapse_labels": True, "tokenizer": WhitespaceTokenizer()},
        )
    ),
    *(
        (
            StanfordSentimentTreeBankDatasetReader,
            "classification",
            "sst/dev.txt",
            60,
            {"use_subtrees": subtrees, "granularity": granularity},
        )
        for subtrees in (False, True)
        for granularity in ("5-class", "3-class", "2-class")
    ),
    *(
        (SrlReader, "structured_prediction", f"srl/{split}", 60, {})
        for split in ("train", "dev", "test")
    ),
    (SrlReader, "structured_prediction", "srl/dev", 60, {"bert_model_name": "BERT"}),
    *((SquadReader, "rc", "squad/dev.json", 10, arguments) for arguments in ({}, CUT, SKIPPED)),
]


def content(field, keys):
    """What a model can see of a field; of metadata, the values of `keys`."""
    if isinstance(field, TextField):
        return field.tokens
    if isinstance(field, MetadataField):
        return {key: field.metadata[key] for key in keys}
    if isinstance(field, IndexField):
        return field.sequence_index
    return field.label if isinstance(field, LabelField) else field.labels


def read_both(reader, module, path, constructor=None, **arguments):
    """Instances by allennlp-models' reader and by ours."""
    stock = getattr(importlib.import_module(f"allennlp_models.{module}"), reader.__name__)
    for one in (stock, reader):
        make = getattr(one, constructor) if constructor else one
        yield list(make(**arguments).read(str(EXAMPLES / path)))


def assert_same(expected, found, fewer):
    assert len(found) == len(expected) > fewer
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.fields.keys() == theirs.fields.keys()
        keys = theirs["metadata"].metadata if "metadata" in theirs.fields else ()
        for name, field in theirs.fields.items():
            assert content(ours[name], keys) == content(field, keys), name


@pytest.mark.parametrize(("reader", "module", "path", "fewer", "arguments"), READERS)
def test_instances_are_the_same(reader, module, path, fewer, arguments, request):
    if "bert_model_name" in arguments:
        arguments = {"bert_model_name": request.getfixturevalue("bert")}
    assert_same(*read_both(reader, module, path, **arguments), fewer)


def read_squad2(**arguments):
    return read_both(SquadReader, "rc", "squad/dev.json", "squad2", **arguments)


@pytest.mark.parametrize(
    "arguments", [*({**one, "no_answer_token": ""} for one in ({}, CUT, SKIPPED)), {}]
)
def test_instances_of_squad2_are_the_same_but_for_the_width_of_no_answer(arguments):
    """The peer's offsets give its text's width to "no answer", which is not in the passage."""
    expected, found = read_squad2(**arguments)
    for instance in expected:
        last = instance["passage"].tokens[-1]
        last.idx_end = last.idx
        instance["metadata"]["token_offsets"][-1] = (last.idx, last.idx)
    assert_same(expected, found, 10)


def test_the_peers_squad2_takes_answers_cut_off_there_for_no_answer():
    expected, found = read_squad2(**SKIPPED)
    ids = {instance["metadata"]["id"] for instance in found}
    wrong = [one for one in expected if one["metadata"]["id"] not in ids]
    assert len(wrong) == len(expected) - len(found) == 2
    for instance in wrong:
        assert instance["metadata"]["answer_texts"][0] not in " ".join(
            token.text for token in instance["passage"].tokens
        )
        assert instance["span_end"].sequence_index == SKIPPED["passage_length_limit"] - 1


def test_what_our_parser_takes_nltk_takes_too_and_reads_the_same():
    trees = EXAMPLES / "sst/dev.txt"
    rng = random.Random(0)
    taken = 0
    for line in trees.read_text(encoding="utf-8").splitlines():
        for _ in range(20):
            symbols = list(line)
            for _ in range(rng.randrange(3)):
                symbols[rng.randrange(len(symbols))] = rng.choice("() x3\u00a0")
            text = "".join(symbols)
            try:
                tokens, phrases = parse_tree(text)
            except ValueError:
                continue
            taken += 1
            tree = Tree.fromstring(text)
            assert tree.leaves() == tokens
            assert [(s.label(), s.leaves()) for s in tree.subtrees()] == [
                (phrase.label, tokens[phrase.start : phrase.end]) for phrase in phrases
            ]
    assert taken > 800
