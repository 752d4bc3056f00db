"""Very long sentences in chunks: the numbers of a whole run, both directions, little memory."""

import random

import pytest
import torch

from elmo_plugin.bilm.extraction.chunks import layers_in_chunks
from elmo_plugin.bilm.model.characters import batch_to_ids
from tests import peak_memory
from tests.tiny_bilm import random_bilm

WORDS = ["the", "cat", "sat", "on", "a", "Überraschung", "mat", ".", "moon", "x" * 60]


def words(count, seed=0):
    return random.Random(seed).choices(WORDS, k=count)


def whole(bilm, sentence):
    layers = bilm(batch_to_ids([sentence]))["activations"]
    return torch.stack([layer[0, 1:-1] for layer in layers])


@pytest.mark.parametrize("state", ["carry", "reset", "primed"])
@pytest.mark.parametrize("chunk_size", [1, 2, 7, 23, 24, 25, 26, 100])
def test_chunks_are_the_whole_sentence(state, chunk_size):
    bilm, peer = random_bilm(), random_bilm()
    bilm.state = peer.state = state
    for seed in (1, 2):  # the second sentence starts where the first ended, in carry
        sentence = words(23, seed)
        chunks = list(layers_in_chunks(bilm, sentence, chunk_size))
        assert max(chunk.shape[1] for chunk in chunks) <= chunk_size
        with torch.no_grad():
            expected = whole(peer, sentence)
        torch.testing.assert_close(torch.cat(chunks, dim=1), expected, atol=1e-6, rtol=1e-5)


def test_an_empty_sentence_has_no_chunks_and_moves_the_state():
    bilm, peer = random_bilm(), random_bilm()
    assert list(layers_in_chunks(bilm, [], 1)) == []
    with torch.no_grad():
        peer(batch_to_ids([["x"]])[:, :0])
    for ours, theirs in zip(bilm.carried, peer.carried):
        torch.testing.assert_close(ours.cell, theirs.cell)


MEASURE = """
from tests.bilm.extraction.test_chunks import words
from tests.peak_memory import Growth
from tests.tiny_bilm import random_bilm
from elmo_plugin.bilm.extraction.chunks import layers_in_chunks
bilm = random_bilm(projection_dim=512, cell_size=4)
for length, chunk_size in ((1_000, 250), (1_000, 250), (6_000, 250), (6_000, 6_002)):
    sentence = words(length)
    with Growth() as growth:
        count = sum(chunk.shape[1] for chunk in layers_in_chunks(bilm, sentence, chunk_size))
    assert count == length
    print(growth.megabytes)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_sentence():
    *_, in_chunks, whole = peak_memory.run(MEASURE)
    # All layers of a token are 12 kB: 74 MB, copies not counted.
    assert in_chunks < 37
    assert whole > 74
