"""
What AllenNLP 2.10.1 asserts of its own ELMo, asserted of ours on the same stored outputs: its
`elmo_test`, `elmo_token_embedder_test`, `elmo_indexer_test`, `scalar_mix_test` and
`stacked_alternating_lstm_test`. The source distribution does not have those files; each test here
says which of theirs it stands for.
"""

import json

import h5py
import numpy
import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.testing import ModelTestCase
from allennlp.data import Batch, Instance, Token, Vocabulary
from allennlp.data.data_loaders import SimpleDataLoader
from allennlp.data.fields import TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.nn.util import remove_sentence_boundaries
from tagging_task import tagger_config, with_elmo, write_task
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import elmo_plugin.plugin
from elmo_plugin import Elmo, ElmoTokenCharactersIndexer, ElmoTokenEmbedder, ScalarMix, load_bilm
from elmo_plugin.bilm.use.cached_vocabulary import CachedVocabularyBiLm
from elmo_plugin.modules.alternating_lstm import AlternatingLstm

SENTENCES = [
    ["The", "sentence", "."],
    ["ELMo", "helps", "disambiguate", "ELMo", "from", "Elmo", "."],
]
CACHED = [["This", "is", "a", "sentence"], ["Here", "'s", "one"], ["Another", "one"]]


@pytest.fixture
def files(bilm_fixture):
    assert elmo_plugin.plugin
    return str(bilm_fixture / "options.json"), str(bilm_fixture / "lm_weights.hdf5")


def indexed(sentences, vocab=None):
    """A vocabulary of the words, and their characters and ids, through text fields."""
    indexers = {"characters": ElmoTokenCharactersIndexer(), "tokens": SingleIdTokenIndexer()}
    instances = [
        Instance({"text": TextField([Token(word) for word in sentence], indexers)})
        for sentence in sentences
    ]
    vocab = vocab or Vocabulary.from_instances(instances)
    batch = Batch(instances)
    batch.index_instances(vocab)
    tensors = batch.as_tensor_dict()["text"]
    return vocab, tensors["characters"]["elmo_tokens"], tensors["tokens"]["tokens"]


def cached_bilm(files, vocab):
    bilm = load_bilm(*files, bilm_class=CachedVocabularyBiLm).eval()
    bilm.cache_vocabulary(list(vocab.get_token_to_index_vocabulary("tokens")))
    return bilm


# --- elmo_test -----------------------------------------------------------------------------------


def test_elmo_bilm(files, bilm_fixture):
    """The stored top layers of ten batches, through a data loader, the state carried."""
    rows = json.loads((bilm_fixture / "sentences.json").read_text())
    indexer = ElmoTokenCharactersIndexer()
    instances = [
        Instance({"elmo": TextField([Token(t) for t in sentence.split()], {"characters": indexer})})
        for batch in zip(*rows, strict=True)
        for sentence in batch
    ]
    loader = SimpleDataLoader(instances, 3, vocab=Vocabulary())
    bilm = load_bilm(*files)
    for number, batch in enumerate(loader):
        output = bilm(batch["elmo"]["characters"]["elmo_tokens"])
        top, mask = remove_sentence_boundaries(output["activations"][2], output["mask"])
        lengths = mask.sum(dim=1).tolist()
        assert lengths == [len(rows[k][number].split()) for k in range(3)]
        for k, length in enumerate(lengths):
            with h5py.File(bilm_fixture / f"lm_embeddings_{k}.hdf5") as file:
                expected = numpy.concatenate(list(file[str(number)][...]), axis=-1)
            assert numpy.allclose(top[k, :length].detach().numpy(), expected, atol=1e-6)


def test_elmo_char_cnn_cache_does_not_raise_error_for_uncached_words(files):
    vocab, characters, words = indexed([["here", "is"], ["a", "vocab"]])
    bilm = cached_bilm(files, vocab)
    bilm(characters, words)
    bilm(*indexed([["This", "is", "OOV"], ["so", "is", "this"]])[1:])


def test_elmo_bilm_can_cache_char_cnn_embeddings(files):
    vocab, characters, words = indexed(CACHED)
    plain = load_bilm(*files).eval()(characters)
    cached = cached_bilm(files, vocab)(characters, words)
    assert torch.equal(plain["mask"], cached["mask"])
    for ours, theirs in zip(cached["activations"], plain["activations"], strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("keep", "length"), [(False, 7), (True, 9)])
def test_elmo_and_its_boundaries(files, keep, length):
    """`test_elmo`, `test_elmo_keep_sentence_boundaries`."""
    elmo = Elmo(*files, 2, dropout=0.0, keep_sentence_boundaries=keep)
    output = elmo(indexed(SENTENCES)[1])
    assert [tuple(one.shape) for one in output["elmo_representations"]] == [(2, length, 32)] * 2
    assert tuple(output["mask"].shape) == (2, length)


def test_elmo_4D_input(files):
    elmo = Elmo(*files, 2, dropout=0.0)
    batches = [
        SENTENCES,
        [["1", "2"], ["1", "2", "3", "4", "5", "6", "7"]],
        [["1", "2", "3", "4", "50", "60", "70"], ["The"]],
    ]
    characters = [indexed(batch)[1] for batch in batches]
    together = elmo(torch.stack(characters, dim=1))["elmo_representations"][0]
    for k, alone in enumerate(characters):
        elmo._elmo_lstm._elmo_lstm.reset_states()
        expected = elmo(alone)["elmo_representations"][0]
        torch.testing.assert_close(together[:, k], expected, atol=1e-6, rtol=0)


def test_elmo_with_module(files):
    output = Elmo(None, None, 2, dropout=0.0, module=load_bilm(*files))(indexed(SENTENCES)[1])
    assert [tuple(one.shape) for one in output["elmo_representations"]] == [(2, 7, 32)] * 2


def test_elmo_bilm_can_handle_higher_dimensional_input_with_cache(files):
    vocab, characters, words = indexed(CACHED)
    cache = list(vocab.get_token_to_index_vocabulary("tokens"))
    alone, expanded = (Elmo(*files, 1, vocab_to_cache=cache).eval() for _ in range(2))
    expected = alone(characters, words)["elmo_representations"][0]
    four = (torch.stack([tensor] * 4, dim=1) for tensor in (characters, words))
    found = expanded(*four)["elmo_representations"][0]
    for k in range(4):
        torch.testing.assert_close(found[:, k], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("requires_grad", [True, False])
def test_elmo_requires_grad(files, requires_grad):
    embedder = ElmoTokenEmbedder(*files, requires_grad=requires_grad)
    characters = torch.from_numpy(numpy.random.RandomState(0).randint(0, 262, (3, 4, 50)))
    embedder(characters).sum().backward()
    gradients = [p.grad for name, p in embedder.named_parameters() if "_elmo_lstm" in name]
    assert gradients
    assert all((gradient is not None) == requires_grad for gradient in gradients)


def test_elmo_token_representation(files, bilm_fixture):
    words = (bilm_fixture / "vocab_test.txt").read_text().strip().split("\n")
    indexer = ElmoTokenCharactersIndexer()
    rows = indexer.tokens_to_indices([Token(word) for word in words], Vocabulary())["elmo_tokens"]
    batch = torch.stack(
        [
            indexer.as_padded_tensor_dict(
                {"elmo_tokens": rows[start : start + 50]}, {"elmo_tokens": 50}
            )["elmo_tokens"]
            for start in range(0, 500, 50)
        ]
    )
    output = load_bilm(*files, state="reset")(batch)
    width = 16  # the token layer is there twice, as the first of the layers
    found, _ = remove_sentence_boundaries(output["activations"][0], output["mask"])
    found = found[..., :width].reshape(-1, width)[: len(words)]
    with h5py.File(bilm_fixture / "elmo_token_embeddings.hdf5") as file:
        expected = file["embedding"][...]
    assert expected.shape[1] == width
    assert numpy.allclose(found.detach().numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(("place", "token"), [(0, "<S>"), (2, "</S>")])
def test_elmo_token_representation_bos_eos(files, place, token):
    layer = load_bilm(*files)(indexed([[token]])[1])["activations"][0][0]
    assert torch.allclose(layer[place], layer[1])


# --- elmo_token_embedder_test --------------------------------------------------------------------


class TestElmoTokenEmbedder(ModelTestCase):
    """A tagger with ELMo, by AllenNLP's own `ModelTestCase`."""

    @pytest.fixture(autouse=True)
    def model_with_elmo(self, files, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write_task(tmp_path, num_sentences=2)
        config = with_elmo(tagger_config(), 32, options_file=files[0], weight_file=files[1])
        # Characters alone, as in AllenNLP's.
        config["dataset_reader"]["token_indexers"].pop("tokens")
        config["model"]["text_field_embedder"]["token_embedders"].pop("tokens")
        config["model"]["encoder"]["input_size"] = 32
        config["trainer"]["num_epochs"] = 2
        (tmp_path / "config.json").write_text(json.dumps(config))
        self.set_up_model(tmp_path / "config.json", tmp_path / "train.txt")

    def test_tagger_with_elmo_token_embedder_can_train_save_and_load(self):
        self.ensure_model_can_train_save_and_load(self.param_file)

    def test_tagger_with_elmo_token_embedder_forward_pass_runs_correctly(self):
        batch = Batch(self.instances)
        batch.index_instances(self.vocab)
        probabilities = self.model(**batch.as_tensor_dict())["class_probabilities"]
        length = max(len(instance["tokens"]) for instance in self.instances)
        assert probabilities.shape == (2, length, self.vocab.get_vocab_size("labels"))


def test_forward_works_with_projection_layer(files):
    params = {"options_file": files[0], "weight_file": files[1], "projection_dim": 20}
    embedder = ElmoTokenEmbedder.from_params(vocab=None, params=Params(params))
    assert embedder.get_output_dim() == 20
    words = torch.zeros(2, 50, dtype=torch.long)
    words[0, :4] = torch.tensor([6, 5, 4, 3])
    words[1, :4] = torch.tensor([3, 2, 1, 0])
    assert embedder(words[None]).shape == (1, 2, 20)
    assert embedder(words[None, None, :1]).shape == (1, 1, 1, 20)


# --- elmo_indexer_test ---------------------------------------------------------------------------

BEGIN, END, PADDING = 259, 260, 261


def row(*characters):
    return [BEGIN, *characters, END, *[PADDING] * (48 - len(characters))]


@pytest.mark.parametrize(
    ("token", "characters"),
    [("<S>", [257]), ("</S>", [258]), (chr(256) + "t", [197, 129, 117])],
    ids=["bos", "eos", "unicode"],
)
def test_token_to_char_ids(token, characters):
    indexer = ElmoTokenCharactersIndexer()
    found = indexer.tokens_to_indices([Token(token)], Vocabulary())
    assert found == {"elmo_tokens": [row(*characters)]}


def test_elmo_as_array_produces_token_sequence():
    indexer = ElmoTokenCharactersIndexer()
    rows = indexer.tokens_to_indices([Token("Second"), Token(".")], Vocabulary())
    padded = indexer.as_padded_tensor_dict(rows, {"elmo_tokens": 3})["elmo_tokens"].tolist()
    assert padded == [row(84, 102, 100, 112, 111, 101), row(47), [0] * 50]


def test_elmo_indexer_with_additional_tokens():
    indexer = ElmoTokenCharactersIndexer(tokens_to_add={"<first>": 1})
    found = indexer.tokens_to_indices([Token("<first>")], Vocabulary())
    assert found == {"elmo_tokens": [row(2)]}


def test_elmo_empty_token_list():
    indexer = ElmoTokenCharactersIndexer()
    assert indexer.get_empty_token_list() == {"elmo_tokens": []}
    full = TextField([Token("A"), Token("sentence")], {"elmo": indexer})
    empty = full.empty_field()
    for field in (full, empty):
        field.index(Vocabulary())
    padded = empty.as_tensor(full.get_padding_lengths())["elmo"]["elmo_tokens"]
    assert padded.tolist() == [[0] * 50] * 2


# --- scalar_mix_test -----------------------------------------------------------------------------


def weighted(mix, mask=None):
    torch.manual_seed(0)
    layers = [torch.randn(3, 4, 5) for _ in range(3)]
    for k, parameter in enumerate(mix.scalar_parameters):
        parameter.data[0] = 0.1 * (k + 1)
    mix.gamma.data[0] = 0.5
    weights = numpy.exp([0.1, 0.2, 0.3]) / numpy.exp([0.1, 0.2, 0.3]).sum()
    return mix(layers, mask).detach().numpy(), [layer.numpy() for layer in layers], weights


def test_scalar_mix_can_run_forward():
    found, layers, weights = weighted(ScalarMix(3))
    expected = 0.5 * sum(w * layer for w, layer in zip(weights, layers, strict=True))
    numpy.testing.assert_almost_equal(found, expected, decimal=6)


def test_scalar_mix_throws_error_on_incorrect_number_of_inputs():
    with pytest.raises(ConfigurationError):
        ScalarMix(3)([torch.randn(3, 4, 5) for _ in range(5)])


def test_scalar_mix_throws_error_on_incorrect_initial_scalar_parameters_length():
    with pytest.raises(ConfigurationError):
        ScalarMix(3, initial_scalar_parameters=[0.0, 0.0])


def test_scalar_mix_trainable_with_initial_scalar_parameters():
    mix = ScalarMix(3, initial_scalar_parameters=[1, 2, 3], trainable=False)
    for k, parameter in enumerate(mix.scalar_parameters, start=1):
        assert parameter.requires_grad is False
        assert parameter.item() == float(k)


def test_scalar_mix_layer_norm():
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1, 2:] = False
    found, layers, weights = weighted(ScalarMix(3, do_layer_norm=True), mask)
    real = mask.numpy()
    normed = [(layer - layer[real].mean()) / (layer[real].std() + 1e-12) for layer in layers]
    expected = 0.5 * sum(w * layer for w, layer in zip(weights, normed, strict=True))
    numpy.testing.assert_almost_equal(found, expected, decimal=6)


# --- stacked_alternating_lstm_test ---------------------------------------------------------------


@pytest.mark.parametrize("use_highway", [True, False])
def test_stacked_alternating_lstm_completes_forward_pass(use_highway):
    inputs = pack_padded_sequence(torch.rand(4, 5, 3), [5, 4, 2, 1], batch_first=True)
    output, _ = AlternatingLstm(3, 7, 3, use_highway=use_highway)(inputs)
    padded, _ = pad_packed_sequence(output, batch_first=True)
    for sentence, length in enumerate([5, 4, 2, 1]):
        assert (padded[sentence, length:] == 0).all()
        assert (padded[sentence, :length] != 0).any()


@pytest.mark.parametrize("use_highway", [True, False])
def test_lstms_are_interleaved(use_highway):
    lstm = AlternatingLstm(3, 7, 8, use_highway=use_highway)
    assert [layer.go_forward for layer in lstm.lstm_layers] == [True, False] * 4
