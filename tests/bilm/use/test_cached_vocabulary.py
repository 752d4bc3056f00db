"""The token layer of a vocabulary, computed once: the same numbers, and who trains."""

import torch

from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.use.cached_vocabulary import CachedVocabularyBiLm
from tests.tiny_bilm import random_bilm


def test_a_cache_follows_new_weights():
    """Its words are parameters; the boundaries are computed from the characters."""
    one, other = (random_bilm(seed=seed, bilm_class=CachedVocabularyBiLm) for seed in (1, 2))
    words = ["@@PADDING@@", "a", "b"]
    for bilm in (one, other):
        bilm.cache_vocabulary(words)
    other.load_state_dict(one.state_dict())
    ids, word_ids = batch_to_ids([["a", "b"], ["b"]]), torch.tensor([[1, 2], [2, 0]])
    found, expected = (bilm(ids, word_ids)["activations"] for bilm in (other, one))
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_cached_words_train_only_where_the_bilm_does():
    bilm = random_bilm(bilm_class=CachedVocabularyBiLm)
    bilm.cache_vocabulary(["@@PADDING@@", "a"])
    assert not bilm.word_embedding.weight.requires_grad
    bilm.cache_vocabulary(["@@PADDING@@", "a"], requires_grad=True)
    assert bilm.word_embedding.weight.requires_grad
    assert not bilm.word_embedding.weight[0].any()
