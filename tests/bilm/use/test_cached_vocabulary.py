"""The token layer of a vocabulary, computed once: the same numbers, and who trains."""

import pytest
import torch

from elmo_plugin.bilm.model.characters import batch_to_ids
from tests.tiny_bilm import assert_same_output, elmo_pair, random_bilm

WORDS = ["@@PADDING@@", "a", "b"]
IDS, WORD_IDS = batch_to_ids([["a", "b"], ["b"]]), torch.tensor([[1, 2], [2, 0]])


@pytest.mark.usefixtures("same_bits")
def test_a_cache_follows_new_weights():
    """Its words are parameters; the boundaries are computed from the characters."""
    one, other = (random_bilm(seed=seed) for seed in (1, 2))
    for bilm in (one, other):
        bilm.cache_vocabulary(WORDS)
    other.load_state_dict(one.state_dict())
    found, expected = (torch.stack(bilm(IDS, WORD_IDS)["activations"]) for bilm in (other, one))
    assert torch.equal(found, expected)


def test_vmap_over_the_token_layer_alone():
    """The boundaries are computed from its weights, the words are looked up."""
    bilm = random_bilm()
    bilm.state = "reset"
    bilm.cache_vocabulary(WORDS)
    weights = {name: one for name, one in bilm.named_parameters() if "token_embedder" in name}

    def layers(weights):
        found = torch.func.functional_call(bilm, weights, (IDS, WORD_IDS))
        return torch.stack(found["activations"])

    both = [weights, {name: 2 * one for name, one in weights.items()}]
    stacked = {name: torch.stack([one[name] for one in both]) for name in weights}
    expected = torch.stack([layers(one) for one in both])
    torch.testing.assert_close(torch.vmap(layers)(stacked), expected)


def test_cached_words_train_only_where_the_bilm_does():
    bilm = random_bilm()
    bilm.cache_vocabulary(WORDS)
    assert not bilm._word_embedding.weight.requires_grad
    bilm.create_cached_cnn_embeddings(WORDS)
    assert bilm._word_embedding.weight.requires_grad
    assert not bilm._word_embedding.weight[0].any()


def test_with_cached_words_the_token_layer_gets_no_gradient(files):
    """As in AllenNLP: not from the sentence boundaries either."""
    pair = elmo_pair(files, vocab_to_cache=WORDS, requires_grad=True)
    for elmo in pair:
        elmo(IDS, WORD_IDS)["elmo_representations"][0].sum().backward()
        token_layer = elmo._elmo_lstm._token_embedder
        assert all(one.grad is None for one in token_layer.parameters())
        elmo(IDS)["elmo_representations"][0].sum().backward()
        assert all(one.grad.any() for one in token_layer.parameters())


@pytest.mark.parametrize(
    "word_ids",
    [[[1, -1], [2, 0]], [[-1, -2], [2, 0]], [[1, 3], [2, 0]], [[-(1 << 40), 1], [2, 0]]],
)
def test_a_word_id_without_a_vector_makes_the_batch_use_characters(word_ids, files):
    ours, theirs = elmo_pair(files, vocab_to_cache=WORDS)
    with torch.no_grad():
        assert_same_output(*(elmo(IDS, torch.tensor(word_ids)) for elmo in (ours, theirs)))
        assert_same_output(*(elmo(IDS) for elmo in (ours, theirs)))


@pytest.mark.parametrize("shape", [(2, 2), (1, 2, 2)])
def test_word_ids_in_place_of_characters(shape, files):
    """A public wrapper passes them twice."""
    ours, theirs = elmo_pair(files, vocab_to_cache=WORDS)
    word_ids = WORD_IDS.view(shape)
    inputs = word_ids if len(shape) == 2 else torch.zeros(*shape, 50)  # theirs needs this form
    assert_same_output(ours(word_ids, word_ids), theirs(inputs, word_ids))
    with pytest.raises(ValueError, match=r"character ids have shape \(2, 2\)"):
        ours(word_ids, word_ids + 1)
