"""Everything that takes sentences takes the same ones, and refuses the same ones."""

import functools
import importlib.util
from types import SimpleNamespace

import numpy
import pytest
import torch

from elmo_plugin import Elmo, ElmoEmbedder, ElmoHub, ElmoTransformer, LanguageScorer, batch_to_ids
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax
from elmo_plugin.bilm.pretraining.vocabulary import WordVocabulary
from tests.cases import first_quick
from tests.tiny_bilm import random_bilm

SENTENCES = [["It", "rained"], ["Yes"]]


def score(files, sentences):
    words = ["<S>", "</S>", "<UNK>", "It", "rained", "Yes"]
    torch.manual_seed(0)
    bilm, vocabulary = random_bilm(state="reset"), WordVocabulary(words)
    scorer = LanguageScorer(bilm, WordSoftmax(6, 6), vocabulary)
    return [one.log_probability for one in scorer.score(sentences)]


def tokens(files, sentences):
    from elmo_plugin.sentence_transformers import ElmoTokens

    return ElmoTokens(*files).preprocess(sentences)["character_ids"]


# Each of those that take sentences.
EMBED = {
    "batch_to_ids": lambda files, sentences: batch_to_ids(sentences),
    "Elmo": lambda files, sentences: Elmo(*files).batch_to_ids(sentences),
    "ElmoEmbedder": lambda files, sentences: ElmoEmbedder(*files).embed_batch(sentences),
    "ElmoHub": lambda files, sentences: ElmoHub(*files)(sentences)["elmo"],
    "ElmoTransformer": lambda files, sentences: ElmoTransformer(
        options_file=files.options, weight_file=files.weights
    ).fit_transform(sentences),
    "LanguageScorer": score,
}
if importlib.util.find_spec("sentence_transformers") is not None:
    EMBED["ElmoTokens"] = tokens


@pytest.fixture(params=EMBED)
def embed(request, files):
    return functools.partial(EMBED[request.param], files)


def spacy_docs():
    spacy = pytest.importorskip("spacy")
    return [spacy.tokens.Doc(spacy.blank("en").vocab, words) for words in SENTENCES]


def allennlp_tokens():
    from allennlp.data import Token

    return [[Token(word) for word in words] for words in SENTENCES]


@first_quick(
    "make",
    [
        lambda: ((word for word in words) for words in SENTENCES),
        lambda: [numpy.array(words) for words in SENTENCES],
        spacy_docs,
        allennlp_tokens,
        lambda: tuple(map(tuple, SENTENCES)),
        lambda: iter([iter(words) for words in SENTENCES]),
        lambda: [numpy.array(words, dtype=object) for words in SENTENCES],
    ],
    count=4,
    ids=["generators", "arrays", "spacy", "allennlp", "tuples", "iterators", "objects"],
)
def test_tokens_of_every_kind_are_taken(embed, make):
    torch.testing.assert_close(embed(make()), embed(SENTENCES), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ([["a"], ["b", None]], r"sentence 1, token 1 is None, expected a string or a token with t"),
        ([["a", float("nan")]], r"sentence 0, token 1 is nan \(float\), expected a string"),
        ([["a"], [3]], r"sentence 1, token 0 is 3 \(int\), expected a string"),
        ([[b"a"]], r"sentence 0, token 0 is b'a' \(bytes\), expected a string"),
        ([[SimpleNamespace(text=None)]], r"sentence 0, token 0 is namespace\(text=None\)"),
        ([[SimpleNamespace(text=5)]], r"sentence 0, token 0 is namespace\(text=5\)"),
        ([["a"], None], r"sentence 1 is None, expected a list of tokens"),
        ([["a"], float("nan")], r"sentence 1 is nan \(float\), expected a list of tokens"),
        ([{"tokens": ["a"]}], r"sentence 0 is \{'tokens': \['a'\]\} \(dict\), expected a list"),
        ([b"It rained"], r"sentence 0 is b'It rained' \(bytes\), expected a list of tokens"),
    ],
)
def test_what_is_no_token_is_named_with_its_place(embed, sentences, message):
    with pytest.raises(ValueError, match=message):
        embed(sentences)


class Table:
    """A DataFrame of several columns: iteration gives their names."""

    columns = ("text", "number")

    def __iter__(self):
        return iter(self.columns)

    def __repr__(self):
        return "table"


@pytest.mark.parametrize("table", [{"text": SENTENCES}, {"It rained"}, Table()])
def test_a_table_is_no_batch(embed, table):
    with pytest.raises(ValueError, match=r"expected a (list of tokenized sentences|single one)"):
        embed(table)


def test_a_tokenizer_does_not_split_the_names_of_columns(files):
    embedder = ElmoEmbedder(*files, tokenizer=str.split)
    for call in (embedder.embed_batch, embedder.sentence_vectors):
        with pytest.raises(ValueError, match="the batch is table"):
            call(Table())


def test_a_string_is_no_sentence(files):
    """Where strings are not split: its letters would be the tokens."""
    embedder = ElmoEmbedder(*files)
    said = r"sentence {} is the string 'A dog \.', expected its tokens: \['A', 'dog', '\.'\]"
    for call, number in (
        (lambda: batch_to_ids(["A dog ."]), 0),
        (lambda: Elmo(*files).batch_to_ids([["A"], "A dog ."]), 1),
        (lambda: embedder.embed_sentence("A dog ."), 0),
        (lambda: embedder.batch_to_embeddings(["A dog ."]), 0),
        (lambda: list(embedder.embed_sentences([["A"]] * 70 + ["A dog ."], batch_size=8)), 70),
        (lambda: embedder.sentence_vectors(["A dog ."]), 0),
    ):
        with pytest.raises(ValueError, match=said.format(number)):
            call()
    with pytest.raises(ValueError, match=r"such as str\.split"):
        embedder.embed_sentence("A dog .")
    each = (batch_to_ids, embedder.embed_batch, embedder.embed_texts)
    for call in (*each, lambda text: list(embedder.embed_sentences(text))):
        with pytest.raises(ValueError, match=r"is the string 'A dog \.', expected a list"):
            call("A dog .")
