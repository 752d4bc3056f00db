"""A model and vectors that elmoformanylangs wrote: see tests/interop/elmoformanylangs_peer.py."""

import json
from pathlib import Path

import numpy
import pytest

from elmo_plugin import ElmoEmbedder

STORED = Path(__file__).parent / "peer"


@pytest.mark.parametrize("state", ["reset", "primed"])
def test_its_vectors(state, either_backend):
    sentences = json.loads((STORED / "sentences.json").read_text("utf-8"))
    embedder = ElmoEmbedder(STORED / "xx.model", state=state)
    stored = numpy.load(STORED / "vectors.npz")
    expected = [stored[name] for name in stored.files]
    found = embedder.embed_batch(sentences)
    worst = max(abs(one - other).max() for one, other in zip(found, expected, strict=True))
    # The other state is a negative control.
    assert worst <= 1e-6 if state == "reset" else worst > 1e-2
