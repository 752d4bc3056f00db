"""`Elmo` against AllenNLP's, on weight files that `save_weights` wrote."""

import copy
import re
from operator import attrgetter

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules.elmo import _ElmoBiLm
from allennlp.modules.scalar_mix import ScalarMix

from elmo_plugin.bilm.extraction.chunks import layers_in_chunks
from elmo_plugin.bilm.files import weights as checkpoint
from elmo_plugin.bilm.files.digest import fingerprint
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.use.elmo import Elmo
from elmo_plugin.bilm.use.embedder import ElmoEmbedder
from elmo_plugin.bilm.use.layer_cache import LayerCache
from tests.cases import first_quick
from tests.tiny_bilm import BATCHES, assert_same_output, elmo_pair, random_bilm, word_ids, write

pytestmark = pytest.mark.usefixtures("either_backend")

WORDS = ["@@PADDING@@", *sorted({word for batch in BATCHES for row in batch for word in row})]
IDS, WORD_IDS = batch_to_ids(BATCHES[0]), word_ids(BATCHES[0], WORDS)
# AllenNLP's biLM always has skip connections and a projection, and reads `relu` and `tanh`.
SHAPES = {
    "as released": {},
    "tanh": {"activation": "tanh"},
    "one layer": {"num_layers": 1},
    "three layers": {"num_layers": 3},
    "one highway": {"num_highways": 1},
    "no clips": {"cell_clip": None, "projection_clip": None},
}


def assert_same_over_batches(ours, theirs, batches=BATCHES):
    """Batches shrink and grow, and the state is carried along."""
    with torch.no_grad():
        for ids in map(batch_to_ids, batches):
            assert_same_output(ours(ids), theirs(ids))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_layer_and_the_mask(shape, tmp_path):
    files = write(tmp_path, random_bilm(**SHAPES[shape]))
    ours, theirs = load_bilm(*files), _ElmoBiLm(*files)
    with torch.no_grad():
        for ids in map(batch_to_ids, BATCHES):
            torch.testing.assert_close(ours(ids), theirs(ids), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"keep_sentence_boundaries": True},
        {"do_layer_norm": True},
        {"do_layer_norm": True, "keep_sentence_boundaries": True},
        {"scalar_mix_parameters": [-9e10, -9e10, 1]},
        {"scalar_mix_parameters": [0.5, -1.0, 2.0], "do_layer_norm": True},
        {"num_output_representations": 3},
    ],
    ids=str,
)
def test_arguments_over_carried_batches(arguments, files):
    ours, theirs = elmo_pair(files, **arguments)
    for index, (our, their) in enumerate(zip(ours.scalar_mixes, theirs._scalar_mixes, strict=True)):
        assert all(parameter.requires_grad for parameter in our.parameters()) is (
            "scalar_mix_parameters" not in arguments
        )
        with torch.no_grad():  # the mixes differ
            their.gamma.fill_(1.0 + index)
            their.scalar_parameters[1].add_(0.7 * index)
            our.load_state_dict(their.state_dict())
    assert_same_over_batches(ours, theirs)


def tensors_of(values):
    """The tensors of a tensor, or of some modules."""
    modules = [values] if isinstance(values, torch.Tensor) else values
    return [
        tensor
        for one in modules
        for tensor in ([one] if isinstance(one, torch.Tensor) else one.parameters())
    ]


def set_a_list_and_assign_items(lstm):
    lstm._states = list(lstm._states)
    for index, states in enumerate(lstm._states):
        lstm._states[index] = 0.5 * states[:, :2]


def write_in_place(lstm):
    hidden, cell = lstm._states
    hidden[:, 1] = 0.1
    cell.mul_(-0.5)


@pytest.mark.parametrize(
    "change",
    [
        lambda lstm: lstm.reset_states(),
        lambda lstm: lstm.reset_states(torch.tensor([True, False, True])),
        lambda lstm: setattr(lstm, "_states", None),
        lambda lstm: setattr(lstm, "_states", [one.repeat(1, 3, 1) for one in lstm._states]),
        set_a_list_and_assign_items,
        write_in_place,
    ],
    ids=["forget", "forget some rows", "none", "more rows than a batch has", "items", "in place"],
)
def test_what_programs_do_with_the_carried_state(change, files):
    ours, theirs = elmo_pair(files)
    embedder = ElmoEmbedder(*files, state="carry")
    lstms = [bilm._elmo_lstm for bilm in (ours._elmo_lstm, theirs._elmo_lstm, embedder.elmo_bilm)]
    assert [lstm._states for lstm in lstms] == [None] * 3
    with torch.no_grad():
        for elmo in (ours, theirs):
            elmo(IDS)
        embedder.embed_batch(BATCHES[0])
    for lstm in lstms:
        change(lstm)
    if lstms[1]._states is not None:
        for one in (lstms[0], lstms[2]):
            found, expected = list(one._states), list(lstms[1]._states)
            torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    with torch.no_grad():
        top = theirs._elmo_lstm(batch_to_ids(BATCHES[1]))["activations"][-1][0, 1:-1]
        ours(batch_to_ids(BATCHES[1]))
    found = torch.from_numpy(embedder.embed_batch(BATCHES[1])[0][-1])
    torch.testing.assert_close(found, top, atol=1e-6, rtol=1e-5)
    assert_same_over_batches(ours, theirs)


@pytest.mark.parametrize(
    "path",
    [
        "num_layers",
        "_token_embedder._weight_file",
        "_token_embedder._options",
        "_token_embedder.output_dim",
        "_token_embedder._convolutions",
        "_token_embedder._beginning_of_sentence_characters",
        "_token_embedder._end_of_sentence_characters",
        "_token_embedder._highways._layers",
        "_token_embedder._highways._input_dim",
        "_token_embedder.requires_grad",
        "_requires_grad",
        "_word_embedding",
        "_bos_embedding",
        "_elmo_lstm.requires_grad",
        "_elmo_lstm.backward_layer_0.go_forward",
        "_elmo_lstm.forward_layer_1.go_forward",
        "_elmo_lstm.forward_layer_0.recurrent_dropout_probability",
        "_elmo_lstm.input_size",
        "_elmo_lstm.hidden_size",
        "_elmo_lstm.cell_size",
        "_elmo_lstm.num_layers",
        "_elmo_lstm.forward_layers",
        "_elmo_lstm.backward_layers",
        "_elmo_lstm.forward_layer_0.input_size",
        "_elmo_lstm.forward_layer_0.hidden_size",
        "_elmo_lstm.forward_layer_0.memory_cell_clip_value",
        "_elmo_lstm.forward_layer_0.state_projection_clip_value",
    ],
)
def test_attributes_that_programs_read(path, files):
    found, expected = (attrgetter(path)(elmo._elmo_lstm) for elmo in elmo_pair(files))
    if path.endswith("s") and "options" not in path and not isinstance(expected, int):
        assert len(found) == len(expected)
        found, expected = (
            torch.cat([tensor.flatten() for tensor in tensors_of(one)]) for one in (found, expected)
        )
        torch.testing.assert_close(found, expected)
    else:
        assert found == expected


@pytest.mark.parametrize("clip", [0.1, 0, 0.0, None])
def test_clips_that_programs_set(clip, files):
    ours, theirs = elmo_pair(files)
    for elmo in (ours, theirs):
        for layer in elmo._elmo_lstm._elmo_lstm.forward_layers:
            layer.memory_cell_clip_value = layer.state_projection_clip_value = clip
    assert_same_over_batches(ours, theirs)


@pytest.mark.parametrize("kind", [torch.nn.Parameter, torch.Tensor.clone])
@pytest.mark.parametrize("state", ["carry", "primed"])
def test_clips_that_are_learned(kind, state, files):
    ours, theirs = elmo_pair(files)
    ours._elmo_lstm.state = state
    layers, clips = [], []
    for elmo in (ours, theirs):
        layers.append(elmo._elmo_lstm._elmo_lstm.backward_layer_0)
        layers[-1].memory_cell_clip_value = kind(torch.tensor(0.04, requires_grad=True))
        layers[-1].state_projection_clip_value = kind(torch.tensor(0.02, requires_grad=True))
        clips.append([layers[-1].memory_cell_clip_value, layers[-1].state_projection_clip_value])
    assert layers[0].state_dict().keys() == layers[1].state_dict().keys()
    assert layers[0].cell_clip is clips[0][0]
    for _ in range(3):
        if state == "primed":  # AllenNLP's starts where ours does
            start = zip(*ours._elmo_lstm.start_states([0] * 3))
            theirs._elmo_lstm._elmo_lstm._states = tuple(torch.cat(both, 2) for both in start)
        found, expected = (one(IDS)["elmo_representations"][0] for one in (ours, theirs))
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
        grads = []
        for output, both in ((found, clips[0]), (expected, clips[1])):
            grads.append(torch.autograd.grad(output.square().sum(), both))
            for clip, grad in zip(both, grads[-1], strict=True):
                clip.data -= 0.001 * grad.sign()
        torch.testing.assert_close(*grads)
    assert all(bool(grad) for grad in grads[0])
    ours._elmo_lstm.state = "reset"
    with pytest.raises(ValueError, match="a layer of the biLM was"):
        checkpoint.save_weights(ours._elmo_lstm, "weights.hdf5")
    if kind is not torch.nn.Parameter:  # whose names numbers cannot take, in AllenNLP's neither
        layers[0].memory_cell_clip_value = layers[0].state_projection_clip_value = 3
        assert layers[0].plain_weights.cell_clip == 3.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("recurrent_dropout_probability", 0.3),
        ("go_forward", False),
        ("cell_clip", -1.0),
        ("state_projection_clip_value", float("nan")),
        ("projection_clip", -2),
    ],
)
def test_settings_of_a_layer_that_cannot_be_followed(name, value, files):
    layer = load_bilm(*files).lstm.forward_layer_1
    setattr(layer, name, getattr(layer, name))
    with pytest.raises(ValueError, match=f"{name} is {re.escape(repr(value))}, expected"):
        setattr(layer, name, value)


def test_the_lstm_takes_inputs_and_a_mask(files):
    """Carried from call to call, with a sentence without tokens."""
    ours, theirs = (elmo._elmo_lstm._elmo_lstm for elmo in elmo_pair(files))
    for lengths in ([3, 5, 2], [4, 1, 5], [5, 0, 2]):
        inputs = torch.randn(3, 5, 6)
        mask = torch.arange(5) < torch.tensor(lengths).unsqueeze(1)
        with torch.no_grad():
            found, expected = ours(inputs, mask), theirs(inputs, mask)
        found, expected = (found, *ours._states), (expected, *theirs._states)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    ours.policy.name = "primed"
    with pytest.raises(ValueError, match="expected a start state"):
        ours(inputs, mask)


@pytest.mark.parametrize("name", ["forward_layer_0", "backward_layer_1"])
@pytest.mark.parametrize("lengths", [[4, 4, 2], [5, 1], [3]])
@pytest.mark.parametrize("given", [False, True])
def test_a_single_layer_takes_padded_sentences(name, lengths, given, files):
    torch.manual_seed(4)
    inputs = torch.randn(len(lengths), max(lengths), 6, requires_grad=True)
    state = [torch.randn(1, len(lengths), size, requires_grad=True) for size in (6, 10)]
    results = []
    for elmo in elmo_pair(files, requires_grad=True):
        layer = elmo._elmo_lstm._elmo_lstm.get_submodule(name)
        outputs, end = layer(inputs, lengths, tuple(state) if given else None)
        loss = sum(one.square().sum() for one in (outputs, *end))
        learned = [inputs, *layer.parameters(), *(state if given else ())]
        results.append([outputs, *end, *torch.autograd.grad(loss, learned)])
    torch.testing.assert_close(*results, atol=1e-6, rtol=1e-4)


def test_methods_of_the_lstm_that_programs_call(files, tmp_path):
    import elmo_plugin.modules.elmo  # noqa: F401 (adds them)

    other = write(tmp_path, random_bilm(seed=7))
    results = []
    for elmo in elmo_pair(files):
        lstm = elmo._elmo_lstm._elmo_lstm
        lstm.load_weights(other[1])
        found = []
        for lengths in ([3, 5, 2], [4, 0], [1, 5, 4, 2]):
            torch.manual_seed(5)
            inputs = torch.randn(len(lengths), 5, 6)
            mask = torch.arange(5) < torch.tensor(lengths).unsqueeze(1)
            run = lstm.sort_and_run_forward(lstm._lstm_forward, inputs, mask)
            if 0 not in lengths:
                lstm._update_states(*run[1:])
            found += [run[0], *run[1], run[2], *lstm._states]
        results.append([*found, lstm(inputs, mask)])
    torch.testing.assert_close(*results, atol=1e-6, rtol=1e-4)
    assert bool(results[0][0].any())


def test_methods_of_the_token_layer_that_programs_call(files, tmp_path):
    import elmo_plugin.modules.elmo  # noqa: F401 (adds them)

    pair = elmo_pair(files)
    before = pair[0](IDS)["elmo_representations"][0]
    for elmo in pair:
        elmo._elmo_lstm._elmo_lstm._states = None
        layer = elmo._elmo_lstm._token_embedder
        layer._weight_file = write(tmp_path, random_bilm(seed=7)).weights
        layer._load_weights()
    assert_same_over_batches(*pair)
    assert not torch.allclose(pair[0](IDS)["elmo_representations"][0], before)


def test_boundary_vectors_that_programs_set(files):
    ours, theirs = elmo_pair(files, vocab_to_cache=WORDS)
    for elmo in (ours, theirs):
        bilm = elmo._elmo_lstm
        bilm._bos_embedding, bilm._eos_embedding = 2 * bilm._bos_embedding, torch.ones(6).double()
    assert_same_output(ours(IDS, WORD_IDS), theirs(IDS, WORD_IDS))


def test_boundary_vectors_that_programs_write_to(files):
    ours, theirs = elmo_pair(files, vocab_to_cache=WORDS)
    for elmo in (ours, theirs):
        begin = elmo._elmo_lstm._bos_embedding
        elmo(IDS, WORD_IDS)
        elmo._elmo_lstm._elmo_lstm._states = None
        begin.data.mul_(2)
        elmo._elmo_lstm._bos_embedding[0] += 1
        elmo._elmo_lstm._eos_embedding[1:3] = 7.0
    assert_same_output(copy.deepcopy(ours)(IDS, WORD_IDS), theirs(IDS, WORD_IDS))
    ours._elmo_lstm.cache_vocabulary(WORDS)
    begin = ours._elmo_lstm._bos_embedding
    with torch.no_grad():  # read, not written to: it follows the weights
        ours._elmo_lstm.char_cnn.projection.bias.add_(1)
    torch.testing.assert_close(ours._elmo_lstm._bos_embedding, begin + 1)
    assert ours.double()._elmo_lstm._bos_embedding.dtype == torch.float64


def test_the_activation_that_programs_name_in_the_options(files):
    ours, theirs = elmo_pair(files)
    ours._elmo_lstm.state = "reset"
    cache = LayerCache("memory")
    for name in ("relu", "tanh", "relu"):
        for elmo in (ours, theirs):
            elmo._elmo_lstm._token_embedder._options["char_cnn"]["activation"] = name
        theirs._elmo_lstm._elmo_lstm._states = None
        assert_same_output(ours(IDS), theirs(IDS))
        cached, expected = cache.layers(ours._elmo_lstm, IDS), ours._elmo_lstm(IDS)
        torch.testing.assert_close(cached, expected, atol=0, rtol=0)
    for elmo in (ours, theirs):
        elmo._elmo_lstm._token_embedder._options["char_cnn"]["activation"] = "gelu"
        with pytest.raises((ValueError, ConfigurationError), match="activation"):
            elmo(IDS)


def assign_boundaries(layer):
    layer._beginning_of_sentence_characters = 0 * layer._beginning_of_sentence_characters + 66
    layer._end_of_sentence_characters = torch.arange(50) + 66


def write_boundaries(layer):
    layer._beginning_of_sentence_characters[1] = 70
    layer._end_of_sentence_characters.numpy()[2:4] = 71


@pytest.mark.parametrize("change", [assign_boundaries, write_boundaries])
def test_characters_of_boundaries_that_programs_set(change, files, tmp_path):
    ours, theirs = elmo_pair(files)
    bilm, cache = ours._elmo_lstm, LayerCache(str(tmp_path))
    usual, before = fingerprint(bilm), bilm(IDS)["activations"][0]
    bilm.reset_states()
    for elmo in (ours, theirs):
        change(elmo._elmo_lstm._token_embedder)
    assert_same_over_batches(*(copy.deepcopy(one) for one in (ours, theirs)))
    assert fingerprint(bilm) != usual
    for state in ("reset", "primed"):
        bilm.state = state
        found = [cache.layers(one, IDS)["activations"] for one in (load_bilm(*files), bilm, bilm)]
        torch.testing.assert_close(found[1:], [bilm(IDS)["activations"]] * 2, atol=0, rtol=0)
        changed = found[1][0] != before
        assert changed[:, 0].any()
        assert not changed[:, 1:4].all()
    chunks = torch.cat(list(layers_in_chunks(bilm, BATCHES[0][1], 3)), dim=1)
    torch.testing.assert_close(chunks, torch.stack(bilm(IDS)["activations"])[:, 1, 1:7])


def test_fewer_layers_that_programs_set(files):
    ours, theirs = elmo_pair(files)
    results = []
    ours._elmo_lstm(IDS)
    ours._elmo_lstm.reset_states()
    for elmo in (ours, theirs):
        lstm = elmo._elmo_lstm._elmo_lstm
        lstm.forward_layers = lstm.forward_layers[:1]
        results.append([elmo._elmo_lstm(IDS)["activations"] for _ in range(2)])
    torch.testing.assert_close(*results)
    assert len(results[0][0]) == 2
    bilm = ours._elmo_lstm
    for bilm.state in ("reset", "primed"):
        found = LayerCache("memory").layers(bilm, IDS)["activations"]
        torch.testing.assert_close(found, bilm(IDS)["activations"])


@pytest.mark.parametrize("mask", [[True], [True, False], [[True], [False], [True]], [1, 0, 1]])
def test_a_mask_of_rows_to_reset_that_does_not_fit(mask, files):
    bilm = load_bilm(*files)
    bilm(IDS)
    with pytest.raises(ValueError, match=r"expected torch.bool of shape \(3,\)"):
        bilm.lstm.reset_states(torch.tensor(mask))


@pytest.mark.parametrize(
    "path",
    [
        "_elmo_lstm._token_embedder.output_dim",
        "_elmo_lstm._elmo_lstm.input_size",
        "_elmo_lstm._elmo_lstm.num_layers",
        "_elmo_lstm._elmo_lstm.forward_layer_0.input_size",
        "_elmo_lstm._elmo_lstm.backward_layer_1.input_size",
    ],
)
def test_sizes_that_programs_set(path, files):
    pair = elmo_pair(files)
    for elmo in pair:
        owner, _, name = path.rpartition(".")
        setattr(attrgetter(owner)(elmo), name, 7)
        assert attrgetter(path)(elmo) == 7
    ours, theirs = pair
    assert ours.get_output_dim() == theirs.get_output_dim()
    assert_same_over_batches(ours, theirs)


@pytest.mark.parametrize("name", ["hidden_size", "cell_size"])
def test_sizes_that_programs_set_and_allennlp_computes_with(name, files):
    """AllenNLP fails, or its vectors are wrong; here the weights count."""
    ours, _ = elmo_pair(files)
    expected = copy.deepcopy(ours)
    lstm = ours._elmo_lstm._elmo_lstm
    for one in (lstm, lstm.forward_layer_0, lstm.backward_layer_1):
        setattr(one, name, 7)
    assert_same_over_batches(ours, expected)


def test_a_scalar_mix_that_programs_add(files):
    pair = elmo_pair(files)
    for elmo in pair:
        mix = ScalarMix(3, initial_scalar_parameters=[0.5, -1.0, 2.0])
        elmo.add_module("scalar_mix_1", mix)
        elmo._scalar_mixes.append(mix)
    assert_same_over_batches(*pair)
    for elmo in pair:
        elmo._scalar_mixes = elmo._scalar_mixes[:1]
    assert_same_over_batches(*pair)


def test_the_token_layer_takes_a_padded_batch(files):
    ours, theirs = (elmo._elmo_lstm._token_embedder for elmo in elmo_pair(files))
    assert ours.get_output_dim() == theirs.get_output_dim()
    found = ours(IDS)
    assert not found["mask"].all()
    torch.testing.assert_close(found, theirs(IDS))


def test_states_that_do_not_fit_are_named(files):
    bilm = load_bilm(*files)
    for states in ([torch.zeros(2, 3, 12)], [torch.zeros(2, 3, 12), torch.zeros(2, 3, 12)]):
        bilm.lstm._states = states
        with pytest.raises(ValueError, match=r"\(2, 3, 12\).*\(2, 'batch_size', 20\)"):
            bilm(IDS)


ODD = ["x" * 10_000, "\ud800", "\0", "\U0001f600", "", "<S>", "</S>", "@@PADDING@@"]


@pytest.mark.parametrize(
    "given",
    [
        [IDS * torch.tensor(rows).view(3, 1, 1) for rows in ([0, 1, 1], [1, 0, 0], [0, 0, 0])],
        [torch.nn.functional.pad(IDS, (0, 0, 0, 3))],
        [batch_to_ids(batch) for batch in ([ODD, [], ["a"]], [[""]], [ODD[::-1]])],
        [torch.zeros(2, 0, 50, dtype=torch.long)],
    ],
    ids=["rows of padding", "more padding than needed", "odd tokens", "no tokens"],
)
def test_odd_batches(given, files):
    ours, theirs = elmo_pair(files, keep_sentence_boundaries=True)
    for ids in given:
        assert_same_output(ours(ids), theirs(ids))
    assert_same_over_batches(ours, theirs)


@pytest.mark.parametrize("cached", [False, True])
def test_four_dimensions(cached, files):
    """Sentences of sentences, as a `ListField` gives them; one of them is empty."""
    ours, theirs = elmo_pair(files, 2, do_layer_norm=True, vocab_to_cache=WORDS if cached else None)
    ids = torch.stack([IDS] * 2)
    ids[1, 1, 2:] = 0
    ids[1, 2] = 0
    words = WORD_IDS * (ids > 0).any(-1) if cached else None
    outputs = [elmo(ids, words) for elmo in (ours, theirs)]
    assert outputs[0]["elmo_representations"][0].shape == (2, 3, 6, 12)
    assert_same_output(*outputs)


def test_parameters_have_allennlps_order(files):
    """Optimizers number their states by it."""
    ours, theirs = (
        [name for name, _ in elmo.named_parameters()]
        for elmo in elmo_pair(files, 2, requires_grad=True, vocab_to_cache=WORDS)
    )
    assert ours == theirs


@pytest.mark.parametrize("vocabulary", [WORDS, WORDS[:5], [], None])
def test_cached_words(vocabulary, files):
    """If one word is not cached, characters are read; else not: here, they are of other words."""
    ours, theirs = elmo_pair(files, vocab_to_cache=vocabulary, keep_sentence_boundaries=True)
    for batch in BATCHES:
        words = word_ids(batch, WORDS)
        ids = batch_to_ids([["other"] * len(sentence) for sentence in batch])
        assert_same_output(ours(ids, words), theirs(ids, words))
    assert_same_over_batches(ours, theirs)


def test_a_module_in_place_of_the_files(files):
    """AllenNLP's biLM in our `Elmo`, and the other way round."""
    from allennlp.modules.elmo import Elmo as StockElmo

    ours = Elmo(module=_ElmoBiLm(*files), num_output_representations=1, dropout=0)
    theirs = StockElmo(None, None, 1, module=load_bilm(*files), dropout=0)
    assert ours.get_output_dim() == theirs.get_output_dim() == 12
    assert_same_over_batches(ours, theirs)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@first_quick("shape", SHAPES, count=3)
def test_gradients_are_those_of_allennlp_in_float64(shape, dtype, error, tmp_path):
    """Of every parameter, over some batches: no gradient flows into the batch before."""
    files = write(tmp_path, random_bilm(**SHAPES[shape]))
    ours, theirs = elmo_pair(files, 2, requires_grad=True)
    for elmo in (ours.to(dtype), theirs.double()):
        for batch in BATCHES[:3]:
            output = elmo(batch_to_ids(batch))
            first, second = output["elmo_representations"]
            (first.sin().sum() + second.square().sum()).backward()
    expected = dict(theirs.named_parameters())
    compared = 0
    for name, parameter in ours.named_parameters():
        assert parameter.requires_grad
        gradient = expected[name].grad
        assert (parameter.grad - gradient).abs().max() <= error * max(1, gradient.abs().max())
        compared += bool(gradient.any())
    # None is zero throughout, which would say nothing.
    assert compared == len(expected)


def test_frozen_weights_get_no_gradient_and_mixes_do(files):
    elmo = Elmo(*files, dropout=0)
    elmo(IDS)["elmo_representations"][0].square().sum().backward()
    for name, parameter in elmo.named_parameters():
        assert (parameter.grad is not None) == name.startswith("scalar_mix")


def test_state_dicts_move_both_ways(files, tmp_path):
    (other := tmp_path / "other").mkdir()
    ours, _ = elmo_pair(files, 2)
    _, theirs = elmo_pair(write(other, random_bilm(seed=5)), 2)
    theirs.load_state_dict(ours.state_dict())
    assert_same_over_batches(ours, theirs)
    back, _ = elmo_pair(write(other, random_bilm(seed=6)), 2)
    back.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(back.state_dict(), ours.state_dict(), atol=0, rtol=0)


def changing(suffix, change):
    """The layout of a weight file, of which the entries whose keys end so are changed."""
    layout = checkpoint.layout
    return lambda bilm: (change(one) if one.key.endswith(suffix) else one for one in layout(bilm))


def transposed(entry):
    return entry._replace(views=[view.t() for view in entry.views])


def not_negated(entry):
    return entry._replace(is_negated=False)


BREAKS = {
    "swap": ("_swap_gates", lambda array: array),
    "forget bias": ("TENSORFLOW_FORGET_BIAS", 0.0),
    "transpose": ("layout", changing("W_P_0", transposed)),
    "highway transpose": ("layout", changing("W_transform", transposed)),
    "carry sign": ("layout", changing("W_carry", not_negated)),
    "carry bias sign": ("layout", changing("b_carry", not_negated)),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_conversion_is_seen(name, tmp_path, monkeypatch):
    # Cells as wide as outputs: a projection that is not transposed has the right shape.
    files = write(tmp_path, random_bilm(cell_size=6))
    assert_same_over_batches(*elmo_pair(files))
    monkeypatch.setattr(checkpoint, *BREAKS[name])
    ours, theirs = elmo_pair(files)
    monkeypatch.undo()
    with pytest.raises(AssertionError, match="not close"):
        assert_same_over_batches(ours, theirs)


def test_requires_grad_that_programs_set_on_modules_has_no_effect(files):
    """A usual slip: the attribute of a module, not of its parameters."""
    for elmo in elmo_pair(files, requires_grad=True):
        for module in elmo.modules():
            module.requires_grad = module._requires_grad = False
        elmo(IDS)["elmo_representations"][0].sum().backward()
        assert all(one.grad is not None for one in elmo._elmo_lstm.parameters())
