"""Similarity by ELMo's vectors: of Docs, spans and tokens, and what spaCy would do."""

import warnings

import numpy
import pytest
import spacy
from spacy.tokens import Doc, DocBin

import elmo_plugin.spacy.component
from elmo_plugin.spacy import hook_similarity

WORDS = [["the", "bank", "of", "the", "river"], ["money", "in", "the", "bank"]]


@pytest.fixture(params=["no vectors", "own vectors"])
def docs(request, bilm_files):
    assert elmo_plugin.spacy.component
    nlp = spacy.blank("en")
    if request.param == "own vectors":
        nlp.vocab.set_vector("bank", numpy.ones(5, "float32"))
    nlp.add_pipe("elmo", config=bilm_files)
    return [nlp(Doc(nlp.vocab, words=words)) for words in WORDS]


def cosine(first, second):
    return first @ second / (numpy.linalg.norm(first) * numpy.linalg.norm(second))


def test_one_form_in_two_contexts_is_not_the_same(docs):
    first, second = docs
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # W007: there are no word vectors
        expected = cosine(first.tensor[1], second.tensor[3])
        assert first[1].similarity(second[3]) == pytest.approx(expected, abs=1e-6)
        assert first[1].similarity(second[3]) != 1.0
        assert first[1].similarity(first[1]) == pytest.approx(1.0)
        expected = cosine(first.tensor[:2].mean(0), second.tensor[2:].mean(0))
        assert first[:2].similarity(second[2:]) == pytest.approx(expected, abs=1e-6)
        expected = cosine(first.tensor.mean(0), second.tensor.mean(0))
        assert first.similarity(second) == pytest.approx(expected, abs=1e-6)
        assert first.similarity(second[3]) == pytest.approx(second[3].similarity(first))


def test_layers_of_tokens_and_spans(docs):
    numpy.testing.assert_array_equal(docs[0][1]._.elmo, docs[0]._.elmo[:, 1])
    numpy.testing.assert_array_equal(docs[0][1:3]._.elmo, docs[0]._.elmo[:, 1:3])
    plain = Doc(docs[0].vocab, words=["bank"])
    assert plain[0]._.elmo is plain[:1]._.elmo is None
    with pytest.raises(ValueError, match="bank has no ELMo vectors"):
        docs[0][1].similarity(plain[0])


def test_after_a_file_the_hooks_are_set_again(docs):
    (read,) = DocBin(docs=docs[:1], store_user_data=True).get_docs(docs[0].vocab)
    read.user_data.update(docs[0].user_data)
    hook_similarity(read)
    assert read[1].similarity(docs[1][3]) == docs[0][1].similarity(docs[1][3]) != 1.0


def test_white_space_is_like_nothing(docs):
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo")
    blank = nlp(Doc(nlp.vocab, words=["a", "\n"]))
    assert blank[1].similarity(blank[0]) == 0.0
