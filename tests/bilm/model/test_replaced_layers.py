"""Layers of a biLM that a user replaced, hooked or set differently are called, at every level."""

import copy
import logging
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from allennlp.confidence_checks.normalization_bias_verification import (
    NormalizationBiasVerification,
)
from torch.ao.nn import qat
from torch.ao.quantization import get_default_qat_qconfig, prepare_qat, quantize_dynamic
from torch.nn.utils import parametrize, prune
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from elmo_plugin.bilm.extraction.chunks import layers_in_chunks as extract_layers
from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.kernels import plain
from elmo_plugin.bilm.kernels.backend import use_backend
from elmo_plugin.bilm.model import bilm as bilm_module
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.pretraining.language_model import LanguageModel
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax
from elmo_plugin.bilm.pretraining.vocabulary import WordVocabulary
from elmo_plugin.bilm.use.layer_cache import LayerCache
from elmo_plugin.bilm.use.scoring import LanguageScorer
from tests.cases import REWEIGHTINGS, Scale
from tests.tiny_bilm import BATCHES, batch_pair, elmo_pair, random_bilm, word_ids

IDS = batch_to_ids(BATCHES[2])
# AllenNLP's names of the layers that both programs call.
LINEARS = (
    "_token_embedder._highways._layers.0",
    "_token_embedder._projection",
    *(
        f"_elmo_lstm.{direction}_layer_{layer}.{name}"
        for direction, layer in (("forward", 0), ("backward", 1))
        for name in ("input_linearity", "state_linearity", "state_projection")
    ),
)
CALLED = ("_token_embedder.char_conv_0", "_token_embedder._highways", *LINEARS)
OURS = ("", "_token_embedder", "_elmo_lstm", "_elmo_lstm.forward_layer_0")


@pytest.fixture(autouse=True)
def _short_warm_up(monkeypatch):
    monkeypatch.setattr(bilm_module, "WARM_UP_TEXT", "It rained .\n")
    plain.say_slower.cache_clear()


def frozen(state="carry", **changes):
    return random_bilm(state=state, **changes).requires_grad_(False).eval()


def layers_of(bilm, *given):
    """All layers, zero at padding."""
    output = bilm(*given or [IDS])
    return torch.stack(output["activations"]) * output["mask"].unsqueeze(-1)


def bilms(files, **arguments):
    """Ours and AllenNLP's."""
    return [elmo._elmo_lstm for elmo in elmo_pair(files, **arguments)]


def as_in_allennlp(files, change, atol=1e-6, given=(IDS,), **arguments):
    """Change our biLM and AllenNLP's, and compare two batches: the second has a carried state."""
    pair = bilms(files, **arguments)
    before = layers_of(pair[0], *given)
    pair[0].reset_states()
    for bilm in pair:
        change(bilm)
    found, expected = ([layers_of(bilm, *given) for _ in range(2)] for bilm in pair)
    torch.testing.assert_close(found, expected, atol=atol, rtol=1e-5)
    assert found[0].shape != before.shape or not torch.allclose(found[0], before, atol=1e-3)
    return pair


class Wrapper(torch.nn.Module):
    """Has a layer; a subclass says what becomes of its outputs."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer


class Doubled(Wrapper):
    def forward(self, *inputs):
        return 2 * self.layer(*inputs)


class Lora(Wrapper):
    """Low-rank adapter, by hand."""

    def __init__(self, layer):
        super().__init__(layer)
        out, into = layer.weight.shape[:2]
        self.a = torch.nn.Parameter(torch.randn(2, into) * 0.1)
        self.b = torch.nn.Parameter(torch.zeros(out, 2))

    def forward(self, x):
        return self.layer(x) + x @ self.a.t() @ self.b.t()


def put(root, name, kind):
    """Put a new module around a layer, and return it."""
    path, _, last = name.rpartition(".")
    parent = root.get_submodule(path)
    parent.add_module(last, kind(getattr(parent, last)))
    return getattr(parent, last)


def wrap(root, name):
    put(root, name, Doubled)


def subclass(root, name):
    layer = root.get_submodule(name)
    kind = type(layer)
    layer.__class__ = type("Mine", (kind,), {"forward": lambda s, x: 2 * kind.forward(s, x)})


def own_forward(root, name):
    layer = root.get_submodule(name)
    forward = layer.forward
    layer.forward = lambda x: 2 * forward(x)


def forward_hook(root, name):
    root.get_submodule(name).register_forward_hook(lambda m, i, out: 2 * out)


def pre_hook(root, name):
    root.get_submodule(name).register_forward_pre_hook(lambda m, inputs: (2 * inputs[0],))


@pytest.mark.parametrize("name", CALLED)
@pytest.mark.parametrize("change", [wrap, subclass, own_forward, forward_hook, pre_hook])
def test_a_changed_layer_computes_as_in_allennlp(files, name, change, caplog):
    as_in_allennlp(files, lambda bilm: change(bilm, name))
    assert len([one for one in caplog.records if "slower" in one.getMessage()]) == 1


@pytest.mark.parametrize("name", [*CALLED, *OURS])
def test_hooks_of_every_kind_are_called(name):
    bilm = random_bilm()
    layer = bilm.get_submodule(name)
    called = []
    layer.register_forward_hook(lambda *_: called.append("forward"))
    layer.register_forward_pre_hook(lambda *_: called.append("pre"))
    layer.register_forward_hook(lambda *_, **__: called.append("named"), with_kwargs=True)
    kinds = {"forward", "pre", "named"}
    if name in CALLED:
        layer.register_full_backward_hook(lambda *_: called.append("backward"))
        layer.register_full_backward_pre_hook(lambda *_: called.append("backward pre"))
        kinds |= {"backward", "backward pre"}
    layers_of(bilm).square().sum().backward()
    assert set(called) == kinds


def test_hooks_of_all_modules_are_called():
    bilm, called = random_bilm(), []
    handle = torch.nn.modules.module.register_module_forward_hook(
        lambda module, *_: called.append(type(module).__name__)
    )
    try:
        bilm(IDS)
    finally:
        handle.remove()
    assert {"Conv1d", "Linear", "Highways", "LstmCellWithProjection", "BiLm"} <= set(called)


@pytest.mark.parametrize("state", ["carry", "reset", "primed"])
@pytest.mark.parametrize("backend", ["fast", "reference"])
def test_a_hook_that_comes_after_the_first_call_is_called(state, backend):
    """Also in the warm-up text, whose state was kept."""
    changed, fresh = frozen(state), frozen(state)
    with use_backend(backend):
        changed(IDS)
        changed.reset_states()
        for bilm in (changed, fresh):
            bilm.lstm.forward_layer_0.register_forward_hook(
                lambda m, i, out: (0.5 * out[0], *out[1:])
            )
            bilm.lstm.backward_layer_0.state_linearity.register_forward_hook(
                lambda m, i, out: torch.zeros_like(out)
            )
        assert torch.equal(layers_of(changed), layers_of(fresh))


def hook_in_a_new_dict(layer):
    layer._forward_hooks = OrderedDict()
    layer.register_forward_hook(lambda m, i, out: 2 * out)


def hook_in_the_dict(layer):
    layer._forward_hooks[7] = lambda m, i, out: 2 * out


def new_attributes(layer):
    layer.__dict__ = {**vars(layer), "forward": lambda x: 2 * type(layer).forward(layer, x)}


def another_weight(layer):
    layer._parameters["weight"] = torch.nn.Parameter(2 * layer.weight, requires_grad=False)


def no_bias(layer):
    layer._parameters["weight"] = None
    layer.forward = lambda x: 2 * x[..., :1].expand(*x.shape[:-1], layer.out_features)


@pytest.mark.parametrize("name", [LINEARS[1], LINEARS[2], LINEARS[-1]])
@pytest.mark.parametrize(
    "change", [hook_in_a_new_dict, hook_in_the_dict, new_attributes, another_weight, no_bias]
)
def test_changes_behind_pytorchs_back_count_from_then_on(name, change):
    changed, fresh = frozen(), frozen()
    layers_before = layers_of(changed)
    copied = copy.deepcopy(changed)
    for bilm in (changed, fresh):
        bilm.state = "primed"
        change(bilm.get_submodule(name))
    # PyTorch's operators give other last bits for another batch.
    torch.testing.assert_close(layers_of(changed), layers_of(fresh), atol=1e-6, rtol=0)
    copied.reset_states()
    assert torch.equal(layers_of(copied), layers_before)


def test_a_hook_in_a_new_dictionary_is_called():
    bilm, called = frozen(), []
    layer = bilm.lstm.forward_layer_0.state_linearity
    bilm(IDS)
    layer._forward_hooks = OrderedDict()  # a way to remove all hooks
    bilm(IDS)
    layer.register_forward_hook(lambda *_: called.append(layer))
    bilm(IDS)
    assert called


@pytest.mark.parametrize("name", ["cell_clip", "state_projection_clip_value"])
def test_a_clip_that_begins_to_learn_at_its_value(name):
    bilm = frozen(cell_clip=0.04, projection_clip=0.02)
    layer = bilm.lstm.backward_layer_1
    bilm(IDS)
    clip = torch.tensor(getattr(layer, name), dtype=torch.float64, requires_grad=True)
    assert clip == getattr(layer, name)
    setattr(layer, name, clip)
    layers_of(bilm).square().sum().backward()
    assert clip.grad


def test_a_highway_that_is_added_is_called():
    bilm = frozen("reset", num_highways=0)
    before = layers_of(bilm)
    bilm.char_cnn._highways._layers.append(
        torch.nn.Linear(bilm.options.num_filters, 2 * bilm.options.num_filters)
    )
    assert not torch.equal(layers_of(bilm), before)


@pytest.mark.parametrize("name", LINEARS)
def test_a_low_rank_adapter_learns(files, name):
    moved = []
    for bilm in bilms(files):
        bilm.requires_grad_(False)
        torch.manual_seed(5)
        lora = put(bilm, name, Lora)
        optimizer = torch.optim.Adam([lora.a, lora.b], lr=0.01)
        for _ in range(3):
            bilm._elmo_lstm.reset_states()
            optimizer.zero_grad()
            layers_of(bilm).square().sum().backward()
            optimizer.step()
        moved.append(lora.b.detach())
    torch.testing.assert_close(*moved, atol=1e-4, rtol=1e-3)
    assert float(moved[0].abs().max()) > 0.01


@pytest.mark.parametrize(
    ("name", "replacement"),
    [
        ("_token_embedder.char_conv_1", torch.nn.Conv1d(4, 4, 2, padding=1)),
        ("_token_embedder.char_conv_1", torch.nn.Conv1d(4, 4, 2, stride=2)),
        ("_token_embedder.char_conv_1", torch.nn.Conv1d(4, 4, 2, dilation=2)),
        ("_token_embedder.char_conv_1", torch.nn.Conv1d(4, 4, 2, bias=False)),
        ("_token_embedder.char_conv_1", torch.nn.Conv1d(4, 4, 3, groups=2)),
        (
            "_token_embedder.char_conv_1",
            torch.nn.Sequential(torch.nn.Conv1d(4, 4, 2), torch.nn.Tanh()),
        ),
        ("_elmo_lstm.forward_layer_1.input_linearity", torch.nn.Linear(6, 40, bias=True)),
        ("_elmo_lstm.forward_layer_1.state_linearity", torch.nn.Linear(6, 40, bias=False)),
        ("_elmo_lstm.forward_layer_1.state_projection", torch.nn.Linear(10, 6, bias=True)),
    ],
)
def test_a_layer_with_other_settings_or_another_bias(files, name, replacement):
    as_in_allennlp(files, lambda bilm: put(bilm, name, lambda _: replacement))


def test_an_activation_that_is_assigned_counts_from_then_on():
    bilm = frozen("primed")
    bilm(IDS)
    for activation in (torch.tanh, torch.relu, torch.nn.functional.gelu, torch.nn.Softplus()):
        fresh = frozen("primed")
        fresh.char_cnn._activation = bilm.char_cnn._activation = activation
        found = layers_of(bilm)
        assert torch.equal(found, layers_of(fresh))
        with use_backend("reference"):
            torch.testing.assert_close(found, layers_of(bilm), atol=1e-6, rtol=1e-5)


def test_the_highways_activation_is_that_assigned(files):
    def change(bilm):
        bilm._token_embedder._highways._activation = torch.tanh

    as_in_allennlp(files, change, atol=1e-5)


def tensor_as_weight(bilm, factor):
    layer = bilm.lstm.layers("forward")[0].state_linearity
    weight = layer.weight.detach()
    layer._parameters.pop("weight", None)
    layer.weight = factor * weight


def buffer_as_weight(bilm, factor):
    layer = bilm.lstm.forward_layer_0.state_linearity
    if "weight" in layer._parameters:
        weight = layer.weight.detach()
        del layer.weight
        layer.register_buffer("weight", weight)
    layer.weight.mul_(factor)


class MyParameter(torch.nn.Parameter):
    pass


def parameter_of_another_class(bilm, factor):
    layer = bilm.lstm.forward_layer_0.state_linearity
    if type(layer.weight) is not MyParameter:
        layer.weight = MyParameter(layer.weight.detach(), requires_grad=False)
    layer.weight.data.view(-1)[1::2].mul_(factor)


def precision_of_a_layer(bilm, factor):
    bilm.char_cnn.dtype = [None, "int8"][factor - 1]


def dilation(bilm, factor):
    bilm.char_cnn.convolutions[1].dilation = (factor,)


def highways_activation(bilm, factor):
    bilm.char_cnn._highways._activation = [torch.tanh, torch.sigmoid][factor - 1]


def clip(bilm, factor):
    bilm.lstm.forward_layer_0.cell_clip = 0.01 * factor


def assert_primed_as_it_is(bilm):
    """The primed state is that of the layers as they are, not one that was kept."""
    found = bilm.start_states([0])[0].hidden
    bilm.forget_derived()
    assert torch.equal(found, bilm.start_states([0])[0].hidden)


@pytest.mark.parametrize(
    "change",
    [
        tensor_as_weight, buffer_as_weight, parameter_of_another_class, precision_of_a_layer,
        dilation, highways_activation, clip,
    ],
)  # fmt: skip
def test_the_primed_state_is_of_the_layers_as_they_are(change):
    bilm = frozen("primed")
    change(bilm, 1)
    bilm.start_states([0])
    change(bilm, 2)
    assert_primed_as_it_is(bilm)


def test_a_buffer_follows_the_biLM_to_another_dtype():
    bilm = random_bilm()
    bilm.lstm.forward_layer_0.register_buffer("scale", torch.ones(2, dtype=torch.float64))
    assert bilm.float().lstm.forward_layer_0.scale.dtype is torch.float32


class HalvedLinear(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        return 0.5 * found if function is torch.nn.functional.linear else found


class HalvedProduct(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        aten = torch.ops.aten
        return 0.5 * found if function in (aten.mm.default, aten.addmm.default) else found


@contextmanager
def halved_function():
    linear = torch.nn.functional.linear
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "linear", lambda *given: 0.5 * linear(*given))
        yield


@pytest.mark.parametrize("mode", [HalvedLinear, HalvedProduct, halved_function])
def test_modes_of_pytorch_see_every_layer(files, mode):
    ours, theirs = bilms(files)
    before = layers_of(ours)
    ours.reset_states()
    with mode():
        found = layers_of(ours)
        torch.testing.assert_close(found, layers_of(theirs), atol=1e-6, rtol=1e-5)
    assert not torch.allclose(found, before, atol=1e-3)
    ours.state = "primed"
    with mode():
        layers_of(ours)
    assert_primed_as_it_is(ours)


def test_a_default_device_is_no_such_mode(caplog):
    with torch.device("cpu"), caplog.at_level(logging.DEBUG):
        random_bilm()(IDS)
    assert not caplog.records


@pytest.mark.parametrize("state", ["carry", "primed"])
def test_sparse_weights_compute_as_dense_ones(state):
    bilm = frozen(state)
    expected = layers_of(bilm)
    bilm.reset_states()
    for name in LINEARS:
        layer = bilm.get_submodule(name)
        layer.weight = torch.nn.Parameter(layer.weight.to_sparse_csr(), requires_grad=False)
    torch.testing.assert_close(layers_of(bilm), expected, rtol=0, atol=1e-6)


def test_quantization_aware_training_trains(files):
    ours, theirs = elmo_pair(files, requires_grad=True)
    for elmo in (ours, theirs):
        elmo.train()
        elmo.qconfig = get_default_qat_qconfig("x86")
        prepare_qat(elmo, inplace=True)
    layer = ours._elmo_lstm._elmo_lstm.forward_layer_0.input_linearity
    assert isinstance(layer, qat.Linear)
    found, expected = (layers_of(elmo._elmo_lstm) for elmo in (ours, theirs))
    # The observers' ranges depend on the order of calls, and so do the scales.
    torch.testing.assert_close(found, expected, atol=0.05, rtol=0)
    found.square().sum().backward()
    assert bool(layer.weight.grad.abs().max() > 0)


def test_dynamic_quantization_computes_as_in_allennlp(files):
    found, expected = (
        layers_of(quantize_dynamic(elmo.requires_grad_(False), {torch.nn.Linear})._elmo_lstm)
        for elmo in elmo_pair(files)
    )
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0)


def custom_pruning(layer):
    type("Mine", (prune.RandomUnstructured,), {}).apply(layer, "weight", 0.5)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`:FutureWarning")
@pytest.mark.parametrize("name", [CALLED[0], *LINEARS[:5]])
@pytest.mark.parametrize(
    ("how", "training"),
    [
        *((how, False) for how in ("pruned", "custom pruning", "weight norm", "new weight norm")),
        *((how, True) for how in ("spectral norm", "new spectral norm", "another at each use")),
        ("spectral norm", False), ("parametrized", False),
    ],
)  # fmt: skip
def test_computed_weights_follow_what_they_are_computed_from(files, name, how, training):
    """In training, a spectral norm iterates at each use."""
    found = []
    for bilm in bilms(files, requires_grad=True):
        torch.manual_seed(0)
        REWEIGHTINGS.get(how, custom_pruning)(bilm.get_submodule(name))
        bilm.train(training)
        optimizer = torch.optim.SGD(bilm.parameters(), lr=1e-3)
        for _ in range(2):
            bilm._elmo_lstm.reset_states()
            optimizer.zero_grad()
            layers_of(bilm).square().sum().backward()
            optimizer.step()
        bilm._elmo_lstm.reset_states()
        found.append(layers_of(bilm))
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)


def test_a_parametrization_with_settings_of_its_own_is_followed():
    bilm, fresh, scale = frozen("primed"), frozen("primed"), Scale()
    layer = bilm.lstm.forward_layer_0.input_linearity
    parametrize.register_parametrization(layer, "weight", scale)
    first = layers_of(bilm)
    scale.factor = 0.1
    found = layers_of(bilm)
    fresh.lstm.forward_layer_0.input_linearity.weight.mul_(0.1)
    torch.testing.assert_close(found, layers_of(fresh))
    assert not torch.allclose(found, first, atol=1e-3)


def negated(forward):
    def negative(module, *inputs):
        found = forward(module, *inputs)
        if isinstance(found, dict):
            return found | {"token_embedding": -found["token_embedding"]}
        return (-found[0], *found[1:]) if isinstance(found, tuple) else -found

    return negative


def by_subclass(layer, patch):
    kind = type(layer)
    layer.__class__ = type("Mine", (kind,), {"forward": negated(kind.forward)})


def by_class(layer, patch):
    if type(layer).forward.__name__ != "negative":  # PyTorch's classes are of both programs
        patch.setattr(type(layer), "forward", negated(type(layer).forward))


def by_instance(layer, patch):
    layer.forward = negated(type(layer).forward).__get__(layer)


def by_wrapper(layer, patch):
    inner = copy.copy(layer)
    layer.__class__ = torch.nn.Module
    layer.__dict__ = vars(torch.nn.Module()) | {"_modules": {"inner": inner}}
    layer.forward = lambda *inputs: negated(type(inner).__call__)(inner, *inputs)


@pytest.mark.parametrize("state", ["reset", "primed"])
def test_a_forward_that_takes_another_attributes_place_is_called(state):
    bilm = random_bilm(state=state)
    layer = bilm.char_cnn.convolutions[0]
    layer.label = "first"
    before = layers_of(bilm)
    del layer.label
    by_instance(layer, None)
    found = layers_of(bilm)
    layer.other = 0
    torch.testing.assert_close(found, layers_of(bilm))
    assert not torch.allclose(found, before, atol=1e-3)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (torch.nn.Module, "_call_impl"),
        (torch.nn.Conv1d, "_conv_forward"),
        (torch.nn.functional, "embedding"),
        (torch.nn.functional, "relu"),
        (torch, "relu"),
        (torch, "sigmoid"),
        (torch, "tanh"),
    ],
)
def test_functions_of_pytorch_that_were_replaced_are_called(files, owner, name, monkeypatch):
    function, called = getattr(owner, name), (torch.Tensor, torch.nn.Linear, torch.nn.Conv1d)

    def less(*arguments, **named):
        found = function(*arguments, **named)
        # Our modules and AllenNLP's are not the same above these.
        return found * 0.9 if isinstance(arguments[0], called) else found

    as_in_allennlp(files, lambda _: monkeypatch.setattr(owner, name, less))


@pytest.mark.parametrize("trains", [False, True])
def test_an_initial_state_learns(files, trains):
    gradients = []
    for bilm in bilms(files, requires_grad=trains):
        shapes = [(2, len(IDS), 2 * size) for size in (6, 10)]
        states = [torch.full(shape, 0.1).requires_grad_() for shape in shapes]
        bilm._elmo_lstm._states = tuple(states)
        sum(layer.tanh().sum() for layer in bilm(IDS)["activations"]).backward()
        gradients.append([one.grad for one in states])
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-5)
    assert gradients[0][0].any()


@pytest.mark.parametrize(
    "name",
    [
        "_token_embedder", "_token_embedder._highways", "_token_embedder._projection",
        "_elmo_lstm", "_elmo_lstm.forward_layer_0", "_elmo_lstm.backward_layer_1",
    ],
)  # fmt: skip
@pytest.mark.parametrize("change", [by_subclass, by_class, by_instance, by_wrapper])
@pytest.mark.parametrize("state", ["carry", "primed"])
def test_a_forward_of_ones_own_gets_what_allennlp_gives(files, name, change, state, monkeypatch):
    ours, theirs = bilms(files)
    ours.state = state
    before = layers_of(ours)
    ours.reset_states()
    cache = LayerCache("memory")
    cache.layers(ours, IDS)
    ours.reset_states()
    for bilm in (ours, theirs):
        change(bilm.get_submodule(name), monkeypatch)
    for _ in range(2):  # the second time, from the carried state
        if state == "primed":  # AllenNLP's starts where ours does
            start = zip(*ours._start_states(range(len(IDS))))
            lstm = theirs._elmo_lstm
            getattr(lstm, "inner", lstm)._states = tuple(torch.cat(both, 2) for both in start)
        found = layers_of(ours)
        torch.testing.assert_close(found, layers_of(theirs), atol=1e-6, rtol=1e-5)
    assert not torch.allclose(found, before, atol=1e-3)
    if state == "primed":
        cached = torch.stack(cache.layers(ours, IDS)["activations"])
        assert torch.equal(cached, torch.stack(ours(IDS)["activations"]))


@pytest.mark.parametrize("change", [by_subclass, by_instance, by_wrapper])
def test_chunks_of_a_long_sentence_call_the_token_layer(change, monkeypatch):
    bilm = frozen("reset")
    change(bilm.char_cnn, monkeypatch)
    found = torch.cat(list(extract_layers(bilm, BATCHES[2][0], 3)), dim=1)
    expected = layers_of(bilm, IDS[:1])[:, 0, 1 : len(BATCHES[2][0]) + 1]
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


class HalvesTokens(Wrapper):
    """Around the token layer, or around what looks up cached words."""

    def forward(self, inputs):
        found = self.layer(inputs)
        if isinstance(found, torch.Tensor):
            return 0.5 * found
        return found | {"token_embedding": 0.5 * found["token_embedding"]}


def wrap_tokens(bilm, name):
    put(bilm, name, HalvesTokens)


def hook_tokens(bilm, name):
    def halve(layer, inputs, found):
        assert len(inputs[0]) == len(BATCHES[2])  # sentences, not rows
        return HalvesTokens(lambda _: found)(None)

    getattr(bilm, name).register_forward_hook(halve)


def assign_forward(bilm, name):
    layer = getattr(bilm, name)
    layer.forward = HalvesTokens(layer.forward).forward


@pytest.mark.parametrize("change", [wrap_tokens, hook_tokens, assign_forward])
@pytest.mark.parametrize("cached", [False, True])
def test_what_embeds_tokens_is_called_as_in_allennlp(files, change, cached):
    if not cached:
        as_in_allennlp(files, lambda bilm: change(bilm, "_token_embedder"))
        return
    vocabulary = ["@@PADDING", *sorted({token for one in BATCHES[2] for token in one})]
    as_in_allennlp(
        files,
        lambda bilm: change(bilm, "_word_embedding"),
        given=(IDS, word_ids(BATCHES[2], vocabulary)),
        vocab_to_cache=vocabulary,
    )


class Widened(Wrapper):
    """Token vectors twice as wide, as with features of one's own."""

    def forward(self, inputs):
        found = self.layer(inputs)
        return found | {"token_embedding": found["token_embedding"].repeat(1, 1, 2)}

    def get_output_dim(self):
        return 2 * self.layer.get_output_dim()


def test_a_token_layer_of_another_width(files):
    outputs = []
    for bilm in bilms(files):
        put(bilm, "_token_embedder", Widened)
        torch.manual_seed(4)
        for layer in (bilm._elmo_lstm.forward_layer_0, bilm._elmo_lstm.backward_layer_0):
            layer.input_linearity = torch.nn.Linear(12, 40, bias=False)
        assert bilm.get_output_dim() == 24
        found = bilm(IDS)
        outputs.append([one * found["mask"].unsqueeze(-1) for one in found["activations"]])
    torch.testing.assert_close(*outputs, atol=1e-6, rtol=1e-5)


def halved_outputs(lstm, inputs, outputs):
    assert outputs.shape[1:3] == inputs[1].shape  # of all layers, as AllenNLP stacks them
    return 0.5 * outputs


def halved_inputs(lstm, inputs):
    tokens, mask = inputs
    tokens[:, 0] += 0.1
    return 0.5 * tokens, mask


@pytest.mark.parametrize("trains", [False, True])
def test_hooks_of_the_whole_lstm_are_called_as_in_allennlp(files, trains):
    def change(bilm):
        bilm._elmo_lstm.register_forward_hook(halved_outputs)
        bilm._elmo_lstm.register_forward_pre_hook(halved_inputs)

    ours, _ = as_in_allennlp(files, change, requires_grad=trains)
    found = layers_of(ours)
    for ours.state in ("reset", "primed"):
        assert not torch.allclose(layers_of(ours), found, atol=1e-3)


def hook_layer(bilm, name):
    seen = []

    def halve(layer, inputs, found):
        seen.extend([*inputs[:2], *(inputs[2] or ()), found[0], *found[1]])
        return 0.5 * found[0], found[1]

    layer = bilm.get_submodule(name)
    layer.register_forward_hook(halve)
    layer.register_forward_pre_hook(lambda layer, inputs: (0.5 * inputs[0], *inputs[1:]))
    return seen


def assign_layers_forward(bilm, name):
    layer = bilm.get_submodule(name)
    forward, seen = layer.forward, []

    def doubled(inputs, lengths, start):
        outputs, end = forward(inputs, lengths, start)
        seen.extend([inputs, torch.as_tensor(lengths), *(start or ()), outputs, *end])
        return 2 * outputs, end

    layer.forward = doubled
    return seen


@pytest.mark.parametrize("change", [hook_layer, assign_layers_forward])
@pytest.mark.parametrize("name", ["forward_layer_0", "backward_layer_1"])
@pytest.mark.parametrize("trains", [False, True])
def test_hooks_of_one_lstm_layer_see_padded_sentences_as_in_allennlp(files, change, name, trains):
    seen, results = [], []
    for bilm in bilms(files, requires_grad=trains):
        lstm = bilm._elmo_lstm
        seen.append(change(lstm, name))
        found = [layers_of(bilm)]  # with `None` as state
        lstm._states = tuple(one.detach() for one in lstm._states)
        found += [layers_of(bilm) for _ in range(2)]  # from the carried state
        if trains:
            loss = torch.stack(found).square().sum()
            found += torch.autograd.grad(loss, list(bilm.parameters()))
        results.append(found)
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(*seen, atol=1e-6, rtol=1e-5)
    assert len(seen[0]) == 5 + 7 + 7


@pytest.mark.parametrize("state", ["reset", "primed"])
def test_a_hooked_lstm_in_several_threads(state):
    """Each thread has an initial state of its own."""
    bilm, alone = frozen(state), frozen(state)
    arrived = threading.Barrier(2)

    def meet(*_):
        arrived.wait(300)

    bilm.lstm.register_forward_hook(meet)
    bilm.lstm.register_forward_pre_hook(meet)
    batches = IDS[:2], IDS[2:]
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(layers_of, bilm, ids) for ids in batches]
        for one, ids in zip(found, batches, strict=True):
            torch.testing.assert_close(one.result(), layers_of(alone, ids))
    assert bilm.state == state
    assert bilm.carried is None


def exchange(bilm):
    lstm = bilm._elmo_lstm
    lstm.forward_layer_1, lstm.backward_layer_1 = lstm.backward_layer_1, lstm.forward_layer_1


def share(bilm):
    bilm._elmo_lstm.backward_layer_0 = bilm._elmo_lstm.forward_layer_0


@pytest.mark.parametrize("change", [exchange, share])
@pytest.mark.parametrize("trains", [False, True])
def test_a_layer_keeps_its_direction_in_another_place(files, change, trains):
    as_in_allennlp(files, change, requires_grad=trains)


def test_an_lstm_of_another_class_is_called(files):
    """It has states of its own."""
    (ours, theirs), (_, other) = bilms(files), bilms(files)
    ours._elmo_lstm = other._elmo_lstm
    for _ in range(2):  # the second time, from the carried state
        found = layers_of(ours)
        torch.testing.assert_close(found, layers_of(theirs), atol=1e-6, rtol=1e-5)
    ours.reset_states()
    assert not torch.allclose(layers_of(ours), found, atol=1e-3)
    ours.state = "primed"
    with pytest.raises(ValueError, match=r"expected 'carry': the LSTM was replaced by <class 'all"):
        ours(IDS)


class Hides(torch.nn.Module):
    """Wrapper that does not register what it wraps."""

    def __init__(self, layer):
        super().__init__()
        self.hidden = [layer]

    def forward(self, *inputs):
        return 0.5 * self.hidden[0](*inputs)


@pytest.mark.parametrize("state", ["carry", "reset", "primed"])
def test_an_lstm_that_a_wrapper_hides_is_called(state):
    hidden, hooked = frozen(state), frozen(state)
    put(hidden, "_elmo_lstm", Hides)
    hooked.lstm.register_forward_hook(lambda lstm, inputs, outputs: 0.5 * outputs)
    for _ in range(2):  # the second time, from the carried state
        torch.testing.assert_close(*(layers_of(copy.deepcopy(one)) for one in (hidden, hooked)))
        torch.testing.assert_close(layers_of(hidden), layers_of(hooked))


def halve_projection(bilm, name):
    for parameter in getattr(bilm, name).projection.parameters():
        parameter.data *= 0.5


def scorer_of(bilm):
    words = WordVocabulary(["<S>", "</S>", "<UNK>", "cat"])
    return LanguageScorer(bilm, WordSoftmax(4, 6), words)


@pytest.mark.parametrize("change", [wrap_tokens, assign_forward])
def test_scoring_calls_the_token_layer(change):
    results = []
    for halve in (change, halve_projection, lambda *_: None):
        torch.manual_seed(4)
        scorer = scorer_of(random_bilm())
        halve(scorer.bilm, "_token_embedder")
        results.append([number for one in scorer.score(BATCHES[2]) for number in one.forward])
    assert results[0] == pytest.approx(results[1], abs=1e-5)
    assert results[0] != pytest.approx(results[2], abs=1e-5)


@pytest.mark.parametrize("change", [wrap, forward_hook, subclass])
def test_what_reads_weights_refuses_a_changed_layer(tmp_path, change):
    bilm = random_bilm()
    change(bilm, LINEARS[2])
    with pytest.raises(ValueError, match="a layer of the biLM was replaced, hooked"):
        save_weights(bilm, tmp_path / "weights.hdf5")
    with pytest.raises(ValueError, match="a layer of the biLM was replaced, hooked"):
        bilm.lstm.forward_layer_0.weights  # noqa: B018
    assert not list(tmp_path.iterdir())


def hook(module):
    module.register_forward_hook(lambda *_: None)


def with_forward(module):
    module.forward = type(module).forward.__get__(module)


def with_class(module):
    module.__class__ = type("Mine", (type(module),), {"forward": lambda *_: None})


def in_extraction(bilm):
    list(extract_layers(bilm, ["It", "rained"], 4))


def in_scoring(bilm):
    list(scorer_of(bilm).score([["It"]]))


def in_pretraining(bilm):
    LanguageModel(bilm, WordSoftmax(50, 6))(batch_pair())


@pytest.mark.parametrize("change", [hook, with_forward, with_class])
@pytest.mark.parametrize("use", [in_extraction, in_scoring, in_pretraining])
@pytest.mark.parametrize("name", ["", "_elmo_lstm"])
def test_what_calls_the_layers_refuses_hooks_on_the_whole(use, name, change):
    bilm = random_bilm()
    use(bilm)
    change(bilm.get_submodule(name))
    with pytest.raises(ValueError, match="has hooks or a forward of its own"):
        use(bilm)


@pytest.mark.parametrize("in_first_batch", [False, True])
def test_plain_layers_log_nothing(caplog, in_first_batch):
    """AllenNLP's confidence check, which hooks all layers in the first batch, does not slow it."""
    bilm = random_bilm()
    check = NormalizationBiasVerification(bilm)
    if in_first_batch:
        check.register_hooks()
    with caplog.at_level(logging.DEBUG):
        bilm(IDS)
    check.destroy_hooks()
    assert not caplog.records
