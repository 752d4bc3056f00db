"""Models that PyPI's elmoformanylangs wrote give its vectors."""

import numpy
import pytest
from elmoformanylangs_peer import peer, vectors, write

from elmo_plugin import ElmoEmbedder

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("seed", range(20))
def test_random_models(seed, tmp_path):
    folder = tmp_path / "xx.model"
    sentences = write(folder, seed, with_words=seed % 2 == 0, old_container=seed % 4 < 2)
    expected = vectors(folder, sentences)
    ours = ElmoEmbedder(folder, state="reset")
    for found in ([ours.embed_sentence(one) for one in sentences], ours.embed_batch(sentences)):
        for one, other in zip(found, expected, strict=True):
            assert one.shape == other.shape
            numpy.testing.assert_allclose(one, other, atol=1e-6, rtol=0)


def test_carry_is_what_a_second_call_of_one_embedder_gives(tmp_path):
    """It carries its state, so that vectors depend on what came before: ours do, if asked to."""
    folder = tmp_path / "xx.model"
    sentence = write(folder, 0, with_words=True, old_container=False)[0]
    theirs = peer().Embedder(str(folder))
    first, second = (theirs.sents2elmo([sentence], -2)[0] for _ in range(2))
    assert abs(first - second).max() > 1e-3
    ours = ElmoEmbedder(folder, state="carry")
    for expected in (first, second):
        found = ours.embed_sentence(sentence)
        numpy.testing.assert_allclose(found, expected, atol=1e-6, rtol=0)
