"""PyPI's simple-elmo-pytorch 0.2, an ELMo that imports on PyTorch 2: the same vectors."""

import numpy
import pytest
import torch

from elmo_plugin import Elmo, ElmoEmbedder, batch_to_ids
from tests.tiny_bilm import BATCHES

pytestmark = pytest.mark.interop


def test_the_same_vectors_batch_after_batch(files):
    from simple_elmo_pytorch import Elmo as SimpleElmo

    ours, theirs = (kind(*files, 1, dropout=0.0).eval() for kind in (Elmo, SimpleElmo))
    for batch in BATCHES:
        ids = batch_to_ids(batch)
        with torch.no_grad():
            found, expected = (one(ids)["elmo_representations"][0] for one in (ours, theirs))
        torch.testing.assert_close(found, expected, atol=2e-6, rtol=0)


def test_what_it_does_not_do(files):
    """Its vectors move from call to call; its `layers="all"` gives the mix for each layer."""
    from simple_elmo_pytorch import Elmo as SimpleElmo
    from simple_elmo_pytorch import ElmoVectorizer

    theirs = ElmoVectorizer(SimpleElmo(*files, 1, dropout=0.0))
    sentence = BATCHES[0][:1]
    first, second = (theirs.get_elmo_vectors(sentence, warmup=False) for _ in range(2))
    assert abs(first - second).max() > 1e-2
    layers = theirs.get_elmo_vectors(sentence, warmup=False, layers="all")[0]
    numpy.testing.assert_array_equal(layers[0], layers[1])
    ours = ElmoEmbedder(*files).embed_sentence(sentence[0])
    assert abs(ours[0] - ours[1]).max() > 1e-2
