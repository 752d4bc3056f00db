"""ELMoForManyLangs' token layer: by hand, and that it is behind everything that runs a biLM."""

import copy

import pytest
import torch

from elmo_plugin import Elmo, ElmoEmbedder, batch_to_ids, load_bilm
from elmo_plugin.bilm.files.digest import fingerprint
from elmo_plugin.bilm.kernels import library
from elmo_plugin.bilm.kernels.backend import use_backend
from elmo_plugin.bilm.manylangs import code_points
from elmo_plugin.bilm.use.layer_cache import LayerCache
from tests.many_langs_model import SENTENCES, token_vector, write_embedded, write_many_langs

TOKENS = [*dict.fromkeys(token for sentence in SENTENCES for token in sentence), "<eos>", "<pad>"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_many_langs(tmp_path_factory.mktemp("many_langs") / "xx.model")


def test_rows_of_code_points():
    assert code_points.token_row("aß😀", 7).tolist() == [
        code_points.BEGIN_OF_WORD,
        ord("a") + 1,
        ord("ß") + 1,
        ord("😀") + 1,
        code_points.END_OF_WORD,
        code_points.PADDING,
        code_points.PADDING,
    ]
    for token in ("", "a", "x" * 5, "中文", "\udcff\U0010ffff", "<bos>", "<eos>", "<bow>"):
        assert code_points.token_of(code_points.token_row(token, 7)) == token
    assert code_points.token_of(code_points.token_row("abcdefg", 7)) == "abcde"
    ids = batch_to_ids([["a"], ["b", "c"]], row_of=code_points.token_row)
    assert ids.shape == (2, 2, 50)
    assert not ids[0, 1].any()
    # No row of bytes is a row of code points.
    assert ids[ids > 0].max() > 261
    assert int(code_points.token_row("a")[0]) > 261


@pytest.mark.parametrize("old_container", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"word_dim": 0},
        {"n_highway": 0},
        # As many filters as dimensions, and still a projection.
        {"projection_dim": 12},
        {"max_characters_per_token": 50, "n_layers": 1},
    ],
)
def test_token_vectors(tmp_path, old_container, changes):
    folder = write_many_langs(tmp_path / "xx.model", old_container=old_container, **changes)
    bilm = load_bilm(folder)
    expected = torch.stack([token_vector(folder, token) for token in TOKENS])
    for name in ("fast", "reference"):
        with use_backend(name):
            found = bilm.token_vectors(TOKENS)
            torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
            output = bilm(bilm.batch_to_ids([TOKENS]))
    first = output["activations"][0][0]
    torch.testing.assert_close(first[1:-1].chunk(2, dim=1)[1], expected, atol=1e-6, rtol=1e-5)
    for row, mark in ((0, "<bos>"), (-1, "<eos>")):
        torch.testing.assert_close(
            first[row].chunk(2)[0], token_vector(folder, mark), atol=1e-6, rtol=1e-5
        )


def test_a_token_has_the_same_bits_alone_and_among_others(folder):
    if library.variant() is None:
        pytest.skip("no library of kernels")
    bilm = load_bilm(folder).requires_grad_(False)
    tokens = TOKENS * 8
    together = bilm.token_vectors(tokens)
    for count in (1, 2, 5):
        bilm.char_cnn.forget_token_vectors()
        assert torch.equal(bilm.token_vectors(tokens, batch_size=count), together)


def test_elmo_and_its_state_dict(folder):
    elmo = Elmo(folder, None, 1, dropout=0.0, state="reset")
    expected = elmo(elmo.batch_to_ids(SENTENCES))["elmo_representations"][0]
    empty = Elmo(_options_dict(elmo._elmo_lstm), None, 1, dropout=0.0, state="reset")
    with pytest.raises(ValueError, match="no dictionary"):
        empty(elmo.batch_to_ids(SENTENCES))
    empty.load_state_dict(elmo.state_dict())
    for other in (empty, copy.deepcopy(elmo)):
        found = other(other.batch_to_ids(SENTENCES))["elmo_representations"][0]
        assert torch.equal(found, expected)


def _options_dict(bilm):
    from elmo_plugin.bilm.files.options import options_dict, parse_options

    found = options_dict(bilm.options)
    assert parse_options(found) == bilm.options
    return found


def test_a_hook_sees_the_whole_batch(folder):
    bilm = load_bilm(folder, state="reset")
    ids, seen = bilm.batch_to_ids([["a", "b"], ["c"]]), []
    expected = bilm(ids)["activations"]
    bilm.char_cnn.register_forward_hook(lambda layer, inputs, found: seen.append(found))
    for ours, theirs in zip(bilm(ids)["activations"], expected, strict=True):
        assert torch.equal(ours, theirs)
    assert [one["mask"].sum(dim=1).tolist() for one in seen] == [[4, 3]]


def test_every_weight_trains(folder):
    elmo = Elmo(folder, None, 1, requires_grad=True, dropout=0.0)
    elmo(elmo.batch_to_ids(SENTENCES))["elmo_representations"][0].square().sum().backward()
    assert {name for name, one in elmo.named_parameters() if one.grad is None} == set()
    layer = elmo._elmo_lstm.char_cnn
    assert layer.word_vectors.grad[layer.lexicon.words["cat"]].abs().sum() > 0


def test_cached_words_and_layers(folder, tmp_path):
    words = ["@@PADDING@@", "@@UNKNOWN@@", "the", "cat", "sat", "."]
    plain = Elmo(folder, None, 1, dropout=0.0, state="reset")
    cached = Elmo(folder, None, 1, dropout=0.0, state="reset", vocab_to_cache=words)
    ids = plain.batch_to_ids(SENTENCES[:1])
    expected = plain(ids)["elmo_representations"][0]
    found = cached(ids, torch.tensor([[2, 3, 4, 5]]))["elmo_representations"][0]
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    # Code points do not fit 16 bits: these two differ by 2 ** 16.
    bilm = load_bilm(folder, state="reset").eval()
    assert "\U0001f600" in bilm.char_cnn.lexicon.characters
    cache = LayerCache("memory")
    one, other = (bilm.batch_to_ids([[token]]) for token in ("\U0001f600", "\uf600"))
    assert not torch.equal(
        cache.layers(bilm, one)["activations"][0], cache.layers(bilm, other)["activations"][0]
    )


def test_ids_of_the_other_kind(folder):
    many_langs, english = load_bilm(folder), load_bilm("embedded")
    with pytest.raises(ValueError, match="ids of bytes, expected code points"):
        many_langs(batch_to_ids([["a"]], 12))
    with pytest.raises(ValueError, match=r"character id 1114\d\d\d, expected 0 to 261"):
        english(batch_to_ids([["a"]], row_of=code_points.token_row))


def test_the_embedder_and_the_dictionaries_part_in_the_digest(folder):
    embedder = ElmoEmbedder(folder)
    vectors = embedder.embed_batch(SENTENCES)
    assert [one.shape for one in vectors] == [(3, len(one), 12) for one in SENTENCES]
    again = embedder.embed_sentence(SENTENCES[1])
    torch.testing.assert_close(*map(torch.from_numpy, (again, vectors[1])), atol=1e-6, rtol=1e-5)
    before = fingerprint(embedder.elmo_bilm)
    assert fingerprint(load_bilm(folder)) == before
    embedder.elmo_bilm.char_cnn.lexicon.words["cat"] = 0
    assert fingerprint(embedder.elmo_bilm) != before


@pytest.mark.parametrize("state", ["reset", "primed"])
def test_another_dictionary_counts_at_once(folder, state):
    bilm, cache = load_bilm(folder, state=state), LayerCache("memory")
    ids = bilm.batch_to_ids(SENTENCES)
    before = cache.layers(bilm, ids)["activations"]
    lexicon = copy.deepcopy(bilm.char_cnn.lexicon)
    words = lexicon.words
    words.update(zip(words, reversed(list(words.values()))))
    bilm.char_cnn.lexicon = lexicon
    found = cache.layers(bilm, ids)["activations"]
    fresh = load_bilm(folder, state=state)
    fresh.char_cnn.lexicon = lexicon
    torch.testing.assert_close(found, fresh(ids)["activations"])
    assert not torch.allclose(found[0], before[0], atol=1e-3)


@pytest.mark.slow
def test_the_embedded_bilm_as_one_gives_its_vectors(tmp_path):
    """Two token layers, two files, two kinds of ids, one biLM."""
    sentences = [["It", "rained", "."], ["A", "word" * 20, "#", "2,000"], []]
    found = ElmoEmbedder(write_embedded(tmp_path / "en.model")).embed_batch(sentences)
    for one, other in zip(found, ElmoEmbedder("embedded").embed_batch(sentences), strict=True):
        torch.testing.assert_close(*map(torch.from_numpy, (one, other)), atol=1e-6, rtol=1e-5)
