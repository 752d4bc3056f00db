"""Similarity by ELMo's vectors: of Docs, spans and tokens, and what spaCy would do."""

import warnings

import numpy
import pytest
import spacy
from spacy.tokens import Doc, DocBin, Token

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
        docs[0][1]._.elmo_similarity(plain[0])


def test_parts_as_docs_keep_their_senses(docs):
    first, second = docs[0][1:3].as_doc(), docs[1][2:4].as_doc(copy_user_data=True)
    assert first[0].similarity(second[1]) == pytest.approx(docs[0][1].similarity(docs[1][3]))
    assert first.similarity(second) == pytest.approx(docs[0][1:3].similarity(docs[1][2:4]))
    assert first[:1].similarity(docs[1][3]) == pytest.approx(docs[0][1].similarity(docs[1][3]))


def test_what_elmo_has_not_read_is_compared_by_spacys_vectors(docs):
    token, vocab = docs[0][1], docs[0].vocab
    for other in (vocab["bank"], Doc(vocab, words=["bank"])[0], Doc(vocab, words=["bank"])):
        if vocab.vectors_length:
            assert token.similarity(other) == pytest.approx(1.0)
        elif isinstance(other, (Doc, Token)):
            with pytest.warns(UserWarning, match="W008"):
                assert token.similarity(other) == 0.0
        else:  # what spaCy says without ELMo
            with pytest.raises(ValueError, match="E010"):
                token.similarity(other)


@pytest.mark.parametrize("way", ["DocBin", "bytes"])
def test_after_a_file_the_extension_holds_and_hooks_are_set_again(docs, way):
    expected = docs[0][1].similarity(docs[1][3])
    if way == "bytes":
        read = Doc(docs[0].vocab).from_bytes(docs[0].to_bytes())
    else:
        (read,) = DocBin(docs=docs[:1], store_user_data=True).get_docs(docs[0].vocab)
    assert read[1]._.elmo_similarity(docs[1][3]) == expected != 1.0
    assert read[:2]._.elmo_similarity(docs[1]) == docs[0][:2].similarity(docs[1])
    hook_similarity(read)
    assert read[1].similarity(docs[1][3]) == expected


@pytest.mark.filterwarnings("error")
def test_white_space_is_like_nothing(docs):
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo")
    blank = nlp(Doc(nlp.vocab, words=["a", "\n"]))
    assert blank[1].similarity(blank[0]) == 0.0
    for empty in (nlp(""), blank[:0], blank[:0].as_doc()):
        assert empty.similarity(blank) == blank.similarity(empty) == 0.0
        assert empty.similarity(blank[0]) == empty._.elmo_similarity(blank) == 0.0
