"""Nearest neighbours of a word in its sentence, by layer."""

import numpy
import pytest

from elmo_plugin.bilm.extraction.batches import read_sentences
from elmo_plugin.bilm.use.embedder import ElmoEmbedder
from elmo_plugin.bilm.use.neighbours import nearest_neighbours
from tests.bilm.extraction.test_extract import bilm_of, text
from tests.tiny_bilm import write

QUERY = ["the", "cat", "sat", "on", "the", "mat"]
LINES = [*text(40), " ".join(QUERY), "a cat", "A CAT moon", "word " * 50]
SENTENCES = list(read_sentences(LINES))


def by_hand(embedder, position, count, same_word):
    """Every token of the text, compared one by one."""
    target = embedder.embed_sentence(QUERY)[:, position]
    found = [{} for _ in target]
    for sentence in SENTENCES:
        if not sentence.tokens or sentence.tokens == QUERY or len(sentence.tokens) > 38:
            continue
        vectors = embedder.embed_sentence(sentence.tokens)
        for place, token in enumerate(sentence.tokens):
            if same_word and token.lower() != QUERY[position].lower():
                continue
            for layer, wanted in enumerate(target):
                other = vectors[layer, place]
                cosine = wanted @ other / numpy.linalg.norm(wanted) / numpy.linalg.norm(other)
                name = token if layer == 0 else tuple(sentence.tokens)
                found[layer][name] = max(found[layer].get(name, -2), float(cosine))
    return [sorted(layer.values(), reverse=True)[:count] for layer in found]


@pytest.mark.parametrize("same_word", [False, True])
@pytest.mark.parametrize("count", [1, 5, 500])
def test_neighbours_are_those_found_by_hand(tmp_path, same_word, count):
    bilm = bilm_of()
    found = nearest_neighbours(bilm, QUERY, 1, SENTENCES, count, same_word, max_tokens=40)
    expected = by_hand(ElmoEmbedder(*write(tmp_path, bilm)), 1, count, same_word)
    for neighbours, similarities in zip(found, expected, strict=True):
        numpy.testing.assert_allclose(
            [neighbour.similarity for neighbour in neighbours], similarities, atol=2e-5
        )
        for neighbour in neighbours:
            assert LINES[neighbour.line - 1].split() == neighbour.tokens
            assert neighbour.tokens != QUERY
            assert not same_word or neighbour.word.lower() == "cat"


def test_the_token_layer_names_each_word_once():
    words = [n.word for n in nearest_neighbours(bilm_of(), QUERY, 1, SENTENCES, 500)[0]]
    assert words[0] == "cat"
    assert len(words) == len(set(words))


@pytest.mark.parametrize(
    ("query", "position", "count", "message"),
    [
        (["a", "b"], 5, 1, "position is 5, expected that of a token of the query, which has 2"),
        (["a", "b"], 2, 1, "position is 2"),
        (["a", "b"], -1, 1, "position is -1"),
        ([], 0, 1, "position is 0, expected that of a token of the query, which has 0"),
        (["a", "b"], 1, 0, "count is 0, expected 1 or more"),
    ],
)
def test_what_cannot_be_asked_for(query, position, count, message):
    with pytest.raises(ValueError, match=message):
        nearest_neighbours(bilm_of(), query, position, SENTENCES, count)
