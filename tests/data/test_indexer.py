import copy
import pickle

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, Instance, Token, TokenIndexer, Vocabulary
from allennlp.data.fields import ListField, TextField
from allennlp.data.token_indexers import ELMoTokenCharactersIndexer as StockIndexer

from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.data.indexer import ElmoTokenCharactersIndexer

SENTENCES = [
    ["The", "café", "日本語", "\U0001f600", "<S>", "</S>", "</s>"],
    [""],
    ["x" * 10_000, "\ud800", "a\udfffb", "\0", "@@PADDING@@"],
]
ARGUMENTS = [
    {},
    {"tokens_to_add": {"The": 5, "<S>": 260, "": 0}},
    {"token_min_padding_length": 9},
    {"namespace": "characters"},
]


def tensors(indexer, sentences=SENTENCES):
    instances = [
        Instance({"text": TextField([Token(word) for word in sentence], {"elmo": indexer})})
        for sentence in sentences
    ]
    batch = Batch(instances)
    batch.index_instances(Vocabulary.from_instances(instances))
    return batch.as_tensor_dict()["text"]["elmo"]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_equals_allennlp(arguments):
    ours, theirs = (kind(**arguments) for kind in (ElmoTokenCharactersIndexer, StockIndexer))
    for sentences in (SENTENCES, SENTENCES[1:2]):
        found, expected = tensors(ours, sentences), tensors(theirs, sentences)
        assert found.keys() == expected.keys() == {"elmo_tokens"}
        assert found["elmo_tokens"].dtype == expected["elmo_tokens"].dtype
        assert torch.equal(found["elmo_tokens"], expected["elmo_tokens"])
    for sentence in SENTENCES:
        tokens = [Token(word) for word in sentence]
        assert ours.tokens_to_indices(tokens, Vocabulary()) == theirs.tokens_to_indices(
            tokens, Vocabulary()
        )
    assert ours.get_empty_token_list() == theirs.get_empty_token_list()


def test_equals_batch_to_ids():
    found = tensors(ElmoTokenCharactersIndexer())["elmo_tokens"]
    assert torch.equal(found, batch_to_ids(SENTENCES))
    short = tensors(ElmoTokenCharactersIndexer(max_characters_per_token=7))["elmo_tokens"]
    assert torch.equal(short, batch_to_ids(SENTENCES, 7))


@pytest.mark.parametrize("length", [0, 1, 3])
def test_cuts_and_pads_by_hand(length):
    indexer = ElmoTokenCharactersIndexer(max_characters_per_token=4)
    tokens = indexer.tokens_to_indices([Token("a"), Token("b")], Vocabulary())
    found = indexer.as_padded_tensor_dict(tokens, {"elmo_tokens": length})["elmo_tokens"]
    rows = [[259, 98, 260, 261], [259, 99, 260, 261], [0, 0, 0, 0]]
    assert found.tolist() == rows[:length]


def test_list_fields_with_an_empty_sentence():
    indexer, stock = ElmoTokenCharactersIndexer(), StockIndexer()
    found = []
    for kind in (indexer, stock):
        fields = [TextField([Token(w) for w in words], {"elmo": kind}) for words in (["a"], [])]
        instance = Instance({"text": ListField(fields)})
        instance.index_fields(Vocabulary())
        found.append(instance.as_tensor_dict()["text"]["elmo"]["elmo_tokens"])
    assert torch.equal(*found)


def test_from_params_with_every_argument():
    assert TokenIndexer.by_name("elmo_characters") is ElmoTokenCharactersIndexer
    arguments = {
        "namespace": "characters",
        "tokens_to_add": {"The": 5},
        "token_min_padding_length": 2,
        "max_characters_per_token": 9,
    }
    indexer = TokenIndexer.from_params(Params({"type": "elmo_characters", **arguments}))
    assert indexer == ElmoTokenCharactersIndexer(**arguments)
    assert indexer != ElmoTokenCharactersIndexer()
    assert tensors(indexer, [["The"]])["elmo_tokens"].shape == (1, 2, 9)


@pytest.mark.parametrize(
    "clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"]
)
def test_a_copy_is_the_same(clone):
    """Workers of a data loader get one."""
    indexer = ElmoTokenCharactersIndexer(tokens_to_add={"The": 5})
    other = clone(indexer)
    assert other == indexer
    assert torch.equal(tensors(other)["elmo_tokens"], tensors(indexer)["elmo_tokens"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(
            ({"tokens_to_add": {"The": one}}, f"gives 'The' the character id {one}, expected 0 to")
            for one in (-1, 261, 300)
        ),
        ({"max_characters_per_token": 0}, "max_characters_per_token is 0, expected at least 3"),
        ({"max_characters_per_token": 2}, "max_characters_per_token is 2, expected at least 3"),
    ],
)
def test_ids_and_lengths_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        ElmoTokenCharactersIndexer(**arguments)
