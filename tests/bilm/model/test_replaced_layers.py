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
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm, weight_norm
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
from tests.cases import Fading
from tests.tiny_bilm import BATCHES, batch_pair, elmo_pair, random_bilm, write

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


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write(tmp_path_factory.mktemp("bilm"))


class Wrapper(torch.nn.Module):
    """Has a layer; a subclass says what becomes of its outputs."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer


class Doubled(Wrapper):
    def forward(self, *inputs):
        return 2 * self.layer(*inputs)


class Lora(torch.nn.Module):
    """Low-rank adapter, by hand."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        out, into = base.weight.shape[:2]
        self.a = torch.nn.Parameter(torch.randn(2, into) * 0.1)
        self.b = torch.nn.Parameter(torch.zeros(out, 2))

    def forward(self, x):
        return self.base(x) + x @ self.a.t() @ self.b.t()


class Scale(torch.nn.Module):
    def __init__(self, factor=0.5):
        super().__init__()
        self.factor = factor

    def forward(self, weight):
        return self.factor * weight


def parent_of(root, name):
    path, _, last = name.rpartition(".")
    return root.get_submodule(path), last


def wrap(root, name):
    parent, last = parent_of(root, name)
    parent.add_module(last, Doubled(getattr(parent, last)))


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


CHANGES = [wrap, subclass, own_forward, forward_hook, pre_hook]


def layers_of(elmo, ids=IDS):
    output = elmo._elmo_lstm(ids)
    return torch.stack(output["activations"]) * output["mask"].unsqueeze(-1)


@pytest.mark.parametrize("name", CALLED)
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_layer_computes_as_in_allennlp(files, name, change, caplog):
    ours, theirs = elmo_pair(files)
    before = layers_of(ours)
    for elmo in (ours, theirs):
        elmo._elmo_lstm._elmo_lstm.reset_states()
        change(elmo._elmo_lstm, name)
    with caplog.at_level(logging.WARNING):
        found = layers_of(ours)
    torch.testing.assert_close(found, layers_of(theirs), atol=1e-6, rtol=1e-5)
    assert float((found - before).abs().max().detach()) > 1e-3
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
    torch.stack(bilm(IDS)["activations"]).square().sum().backward()
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
    changed, fresh = (random_bilm().requires_grad_(False).eval() for _ in range(2))
    changed.state = fresh.state = state
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
        found, expected = changed(IDS)["activations"], fresh(IDS)["activations"]
    assert torch.equal(torch.stack(found), torch.stack(expected))


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
    bilms = [random_bilm().requires_grad_(False).eval() for _ in range(2)]
    layers_before = torch.stack(bilms[0](IDS)["activations"])
    copied = copy.deepcopy(bilms[0])
    for bilm in bilms:
        bilm.state = "primed"
        change(bilm.get_submodule(name))
    found, expected = (torch.stack(bilm(IDS)["activations"]) for bilm in bilms)
    # PyTorch's operators give other last bits for another batch.
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    copied.reset_states()
    assert torch.equal(torch.stack(copied(IDS)["activations"]), layers_before)


def test_a_hook_in_a_new_dictionary_is_called():
    bilm, called = random_bilm().requires_grad_(False).eval(), []
    layer = bilm.lstm.forward_layer_0.state_linearity
    bilm(IDS)
    layer._forward_hooks = OrderedDict()  # a way to remove all hooks
    bilm(IDS)
    layer.register_forward_hook(lambda *_: called.append(layer))
    bilm(IDS)
    assert called


@pytest.mark.parametrize("name", ["cell_clip", "state_projection_clip_value"])
def test_a_clip_that_begins_to_learn_at_its_value(name):
    bilm = random_bilm(cell_clip=0.04, projection_clip=0.02).requires_grad_(False).eval()
    layer = bilm.lstm.backward_layer_1
    bilm(IDS)
    clip = torch.tensor(getattr(layer, name), dtype=torch.float64, requires_grad=True)
    assert clip == getattr(layer, name)
    setattr(layer, name, clip)
    torch.stack(bilm(IDS)["activations"]).square().sum().backward()
    assert clip.grad


def test_a_highway_that_is_added_is_called():
    bilm = random_bilm(num_highways=0).requires_grad_(False).eval()
    bilm.state = "reset"
    before = torch.stack(bilm(IDS)["activations"])
    bilm.char_cnn._highways._layers.append(
        torch.nn.Linear(bilm.options.num_filters, 2 * bilm.options.num_filters)
    )
    assert not torch.equal(torch.stack(bilm(IDS)["activations"]), before)


@pytest.mark.parametrize("name", LINEARS)
def test_a_low_rank_adapter_learns(files, name):
    ours, theirs = elmo_pair(files)
    moved = []
    for elmo in (ours, theirs):
        elmo.requires_grad_(False)
        parent, last = parent_of(elmo._elmo_lstm, name)
        torch.manual_seed(5)
        lora = Lora(getattr(parent, last))
        parent.add_module(last, lora)
        optimizer = torch.optim.Adam([lora.a, lora.b], lr=0.01)
        for _ in range(3):
            elmo._elmo_lstm._elmo_lstm.reset_states()
            optimizer.zero_grad()
            layers_of(elmo).square().sum().backward()
            optimizer.step()
        moved.append(lora.b.detach())
    torch.testing.assert_close(*moved, atol=1e-4, rtol=1e-3)
    assert float(moved[0].abs().max()) > 0.01


@pytest.mark.parametrize(
    "replacement",
    [
        torch.nn.Conv1d(4, 4, 2, padding=1),
        torch.nn.Conv1d(4, 4, 2, stride=2),
        torch.nn.Conv1d(4, 4, 2, dilation=2),
        torch.nn.Conv1d(4, 4, 2, bias=False),
        torch.nn.Conv1d(4, 4, 3, groups=2),
        torch.nn.Sequential(torch.nn.Conv1d(4, 4, 2), torch.nn.Tanh()),
    ],
)
def test_a_convolution_with_other_settings(files, replacement):
    ours, theirs = elmo_pair(files)
    for elmo in (ours, theirs):
        elmo._elmo_lstm._token_embedder.char_conv_1 = replacement
    torch.testing.assert_close(layers_of(ours), layers_of(theirs), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "replacement"),
    [
        ("input_linearity", torch.nn.Linear(6, 40, bias=True)),
        ("state_linearity", torch.nn.Linear(6, 40, bias=False)),
        ("state_projection", torch.nn.Linear(10, 6, bias=True)),
    ],
)
def test_a_linear_layer_with_another_bias(files, name, replacement):
    ours, theirs = elmo_pair(files)
    for elmo in (ours, theirs):
        setattr(elmo._elmo_lstm._elmo_lstm.forward_layer_1, name, replacement)
    torch.testing.assert_close(layers_of(ours), layers_of(theirs), atol=1e-6, rtol=1e-5)


def test_an_activation_that_is_assigned_counts_from_then_on():
    bilm = random_bilm().requires_grad_(False).eval()
    bilm.state = "primed"
    bilm(IDS)
    for activation in (torch.tanh, torch.relu, torch.nn.functional.gelu, torch.nn.Softplus()):
        bilm.char_cnn._activation = activation
        found = torch.stack(bilm(IDS)["activations"])
        fresh = random_bilm().requires_grad_(False).eval()
        fresh.state, fresh.char_cnn._activation = "primed", activation
        assert torch.equal(found, torch.stack(fresh(IDS)["activations"]))
        with use_backend("reference"):
            expected = torch.stack(bilm(IDS)["activations"])
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_the_highways_activation_is_that_assigned(files):
    ours, theirs = elmo_pair(files)
    for elmo in (ours, theirs):
        layers_of(elmo)
        elmo._elmo_lstm._token_embedder._highways._activation = torch.tanh
        elmo._elmo_lstm._elmo_lstm.reset_states()
    torch.testing.assert_close(layers_of(ours), layers_of(theirs), atol=1e-5, rtol=1e-5)


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


@pytest.mark.parametrize(
    "change",
    [
        tensor_as_weight, buffer_as_weight, parameter_of_another_class, precision_of_a_layer,
        dilation, highways_activation, clip,
    ],
)  # fmt: skip
def test_the_primed_state_is_of_the_layers_as_they_are(change):
    bilm = random_bilm().requires_grad_(False).eval()
    bilm.state = "primed"
    for factor in (1, 2):
        change(bilm, factor)
        found = bilm.start_states([0])[0].hidden
    bilm.forget_derived()
    assert torch.equal(found, bilm.start_states([0])[0].hidden)


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
    ours, theirs = elmo_pair(files)
    before = layers_of(ours)
    found = []
    for elmo in (ours, theirs):
        elmo._elmo_lstm._elmo_lstm.reset_states()
        with mode():
            found.append(layers_of(elmo))
    torch.testing.assert_close(*found, atol=1e-6, rtol=1e-5)
    assert not torch.allclose(found[0], before, atol=1e-3)
    ours._elmo_lstm.state = "primed"
    with mode():
        layers_of(ours)
    found = ours._elmo_lstm.start_states([0])[0].hidden
    ours._elmo_lstm.forget_derived()
    assert torch.equal(found, ours._elmo_lstm.start_states([0])[0].hidden)


def test_a_default_device_is_no_such_mode(caplog):
    with torch.device("cpu"), caplog.at_level(logging.WARNING):
        random_bilm()(IDS)
    assert not caplog.records


@pytest.mark.parametrize("state", ["carry", "primed"])
def test_sparse_weights_compute_as_dense_ones(state):
    bilm = random_bilm().requires_grad_(False)
    bilm.state = state
    expected = bilm(batch_to_ids(BATCHES[0]))["activations"]
    bilm.reset_states()
    for name in LINEARS:
        layer = bilm.get_submodule(name)
        layer.weight = torch.nn.Parameter(layer.weight.to_sparse_csr(), requires_grad=False)
    for one, other in zip(bilm(batch_to_ids(BATCHES[0]))["activations"], expected):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_quantization_aware_training_trains(files):
    ours, theirs = elmo_pair(files, requires_grad=True)
    for elmo in (ours, theirs):
        elmo.train()
        elmo.qconfig = get_default_qat_qconfig("x86")
        prepare_qat(elmo, inplace=True)
    assert isinstance(ours._elmo_lstm._elmo_lstm.forward_layer_0.input_linearity, qat.Linear)
    found, expected = layers_of(ours), layers_of(theirs)
    # The observers' ranges depend on the order of calls, and so do the scales.
    torch.testing.assert_close(found, expected, atol=0.05, rtol=0)
    found.square().sum().backward()
    grad = ours._elmo_lstm._elmo_lstm.forward_layer_0.input_linearity.weight.grad
    assert bool(grad.abs().max() > 0)


def test_dynamic_quantization_computes_as_in_allennlp(files):
    ours, theirs = (
        quantize_dynamic(elmo.requires_grad_(False), {torch.nn.Linear}) for elmo in elmo_pair(files)
    )
    torch.testing.assert_close(layers_of(ours), layers_of(theirs), atol=0.02, rtol=0)


def reweighted(layer, how):
    torch.manual_seed(0)
    if how == "custom pruning":
        kind = type("Mine", (prune.RandomUnstructured,), {})
        kind.apply(layer, "weight", 0.5)
    else:
        {
            "pruned": lambda: prune.l1_unstructured(layer, "weight", 0.3),
            "weight norm": lambda: weight_norm(layer),
            "spectral norm": lambda: spectral_norm(layer),
            "parametrized": lambda: parametrize.register_parametrization(layer, "weight", Scale()),
            "another at each use": lambda: parametrize.register_parametrization(
                layer, "weight", Fading()
            ),
            "new spectral norm": lambda: parametrizations.spectral_norm(layer),
            "new weight norm": lambda: parametrizations.weight_norm(layer),
        }[how]()


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
    ours, theirs = elmo_pair(files, requires_grad=True)
    for elmo in (ours, theirs):
        reweighted(elmo._elmo_lstm.get_submodule(name), how)
        elmo.train(training)
        optimizer = torch.optim.SGD(elmo.parameters(), lr=1e-3)
        for _ in range(2):
            elmo._elmo_lstm._elmo_lstm.reset_states()
            optimizer.zero_grad()
            layers_of(elmo).square().sum().backward()
            optimizer.step()
        elmo._elmo_lstm._elmo_lstm.reset_states()
    torch.testing.assert_close(layers_of(ours), layers_of(theirs), atol=1e-5, rtol=1e-4)


def test_a_parametrization_with_settings_of_its_own_is_followed():
    bilm = random_bilm().requires_grad_(False).eval()
    bilm.state = "primed"
    scale = Scale()
    layer = bilm.lstm.forward_layer_0.input_linearity
    parametrize.register_parametrization(layer, "weight", scale)
    first = torch.stack(bilm(IDS)["activations"])
    scale.factor = 0.1
    found = torch.stack(bilm(IDS)["activations"])
    fresh = random_bilm().requires_grad_(False).eval()
    fresh.state = "primed"
    fresh.lstm.forward_layer_0.input_linearity.weight.mul_(0.1)
    torch.testing.assert_close(found, torch.stack(fresh(IDS)["activations"]))
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
    bilm = random_bilm()
    bilm.state = state
    layer = bilm.char_cnn.convolutions[0]
    layer.label = "first"
    before = bilm(IDS)["activations"]
    del layer.label
    by_instance(layer, None)
    found = bilm(IDS)["activations"]
    layer.other = 0
    torch.testing.assert_close(found, bilm(IDS)["activations"])
    assert not torch.allclose(found[0], before[0], atol=1e-3)


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
    ours, theirs = elmo_pair(files)
    before = layers_of(ours)
    ours._elmo_lstm.reset_states()
    function, called = getattr(owner, name), (torch.Tensor, torch.nn.Linear, torch.nn.Conv1d)

    def less(*arguments, **named):
        found = function(*arguments, **named)
        # Our modules and AllenNLP's are not the same above these.
        return found * 0.9 if isinstance(arguments[0], called) else found

    monkeypatch.setattr(owner, name, less)
    found = layers_of(ours)
    torch.testing.assert_close(found, layers_of(theirs), atol=1e-6, rtol=1e-5)
    assert not torch.allclose(found, before, atol=1e-3)


@pytest.mark.parametrize("trains", [False, True])
def test_an_initial_state_learns(files, trains):
    gradients = []
    for elmo in elmo_pair(files, requires_grad=trains):
        bilm = elmo._elmo_lstm
        width, cell = bilm._elmo_lstm.input_size, bilm._elmo_lstm.cell_size
        shapes = [(2, len(IDS), 2 * size) for size in (width, cell)]
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
    ours, theirs = elmo_pair(files)
    ours._elmo_lstm.state = state
    before = layers_of(ours)
    ours._elmo_lstm.reset_states()
    cache = LayerCache("memory")
    cache.layers(ours._elmo_lstm, IDS)
    ours._elmo_lstm.reset_states()
    for elmo in (ours, theirs):
        change(elmo._elmo_lstm.get_submodule(name), monkeypatch)
    for _ in range(2):  # the second time, from the carried state
        if state == "primed":  # AllenNLP's starts where ours does
            start = zip(*ours._elmo_lstm._start_states(range(len(IDS))))
            lstm = theirs._elmo_lstm._elmo_lstm
            getattr(lstm, "inner", lstm)._states = tuple(torch.cat(both, 2) for both in start)
        found = layers_of(ours)
        torch.testing.assert_close(found, layers_of(theirs), atol=1e-6, rtol=1e-5)
    assert not torch.allclose(found, before, atol=1e-3)
    if state == "primed":
        cached = torch.stack(cache.layers(ours._elmo_lstm, IDS)["activations"])
        assert torch.equal(cached, torch.stack(ours._elmo_lstm(IDS)["activations"]))


@pytest.mark.parametrize("change", [by_subclass, by_instance, by_wrapper])
def test_chunks_of_a_long_sentence_call_the_token_layer(change, monkeypatch):
    bilm = random_bilm().requires_grad_(False)
    bilm.state = "reset"
    change(bilm.char_cnn, monkeypatch)
    found = torch.cat(list(extract_layers(bilm, BATCHES[2][0], 3)), dim=1)
    expected = torch.stack(bilm(IDS[:1])["activations"])[:, 0, 1 : len(BATCHES[2][0]) + 1]
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


class HalvesTokens(Wrapper):
    """Around the token layer, or around what looks up cached words."""

    def forward(self, inputs):
        found = self.layer(inputs)
        if isinstance(found, torch.Tensor):
            return 0.5 * found
        return found | {"token_embedding": 0.5 * found["token_embedding"]}


def wrap_tokens(bilm, name):
    bilm.add_module(name, HalvesTokens(getattr(bilm, name)))


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
    vocabulary = ["@@PADDING", *sorted({token for one in BATCHES[2] for token in one})]
    words = torch.zeros(IDS.shape[:2], dtype=torch.long)
    for row, sentence in zip(words, BATCHES[2], strict=True):
        row[: len(sentence)] = torch.tensor([vocabulary.index(token) for token in sentence])
    given = (IDS, words) if cached else (IDS,)
    outputs = []
    for elmo in elmo_pair(files, vocab_to_cache=vocabulary if cached else None):
        bilm = elmo._elmo_lstm
        before = bilm(*given)["activations"][0]
        change(bilm, "_word_embedding" if cached else "_token_embedder")
        bilm._elmo_lstm.reset_states()
        outputs.append(torch.stack(bilm(*given)["activations"]))
        assert not torch.allclose(outputs[-1][0], before, atol=1e-3)
    torch.testing.assert_close(*outputs, atol=1e-6, rtol=1e-5)


class Widened(Wrapper):
    """Token vectors twice as wide, as with features of one's own."""

    def forward(self, inputs):
        found = self.layer(inputs)
        return found | {"token_embedding": found["token_embedding"].repeat(1, 1, 2)}

    def get_output_dim(self):
        return 2 * self.layer.get_output_dim()


def test_a_token_layer_of_another_width(files):
    outputs = []
    for elmo in elmo_pair(files):
        bilm = elmo._elmo_lstm
        bilm._token_embedder = Widened(bilm._token_embedder)
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
    ours, theirs = elmo_pair(files, requires_grad=trains)
    before = layers_of(ours)
    ours._elmo_lstm.reset_states()
    for elmo in (ours, theirs):
        elmo._elmo_lstm._elmo_lstm.register_forward_hook(halved_outputs)
        elmo._elmo_lstm._elmo_lstm.register_forward_pre_hook(halved_inputs)
    for _ in range(2):  # the second time, from the carried state
        found, expected = layers_of(ours), layers_of(theirs)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    assert not torch.allclose(found, before, atol=1e-3)
    for state in ("reset", "primed"):
        ours._elmo_lstm.state = state
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
    pair = elmo_pair(files, requires_grad=trains)
    for elmo in pair:
        lstm = elmo._elmo_lstm._elmo_lstm
        seen.append(change(lstm, name))
        found = [layers_of(elmo)]  # with `None` as state
        lstm._states = tuple(one.detach() for one in lstm._states)
        found += [layers_of(elmo) for _ in range(2)]  # from the carried state
        if trains:
            loss = torch.stack(found).square().sum()
            found += torch.autograd.grad(loss, list(elmo._elmo_lstm.parameters()))
        results.append(found)
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(*seen, atol=1e-6, rtol=1e-5)
    assert len(seen[0]) == 5 + 7 + 7


@pytest.mark.parametrize("state", ["reset", "primed"])
def test_a_hooked_lstm_in_several_threads(state):
    """Each thread has an initial state of its own."""
    bilm = random_bilm().requires_grad_(False).eval()
    bilm.state = state
    arrived = threading.Barrier(2)

    def meet(*_):
        arrived.wait(300)

    bilm.lstm.register_forward_hook(meet)
    bilm.lstm.register_forward_pre_hook(meet)
    outputs = []
    for ids in (IDS[:2], IDS[2:]):
        alone = copy.deepcopy(bilm)
        alone.lstm._forward_hooks.clear()
        alone.lstm._forward_pre_hooks.clear()
        outputs.append(torch.stack(alone(ids)["activations"]))
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(bilm, ids) for ids in (IDS[:2], IDS[2:])]
        for one, expected in zip(found, outputs, strict=True):
            torch.testing.assert_close(torch.stack(one.result()["activations"]), expected)
    assert bilm.state == state
    assert bilm.carried is None


def exchange(lstm):
    lstm.forward_layer_1, lstm.backward_layer_1 = lstm.backward_layer_1, lstm.forward_layer_1


def share(lstm):
    lstm.backward_layer_0 = lstm.forward_layer_0


@pytest.mark.parametrize("change", [exchange, share])
@pytest.mark.parametrize("trains", [False, True])
def test_a_layer_keeps_its_direction_in_another_place(files, change, trains):
    ours, theirs = elmo_pair(files, requires_grad=trains)
    before = layers_of(ours)
    ours._elmo_lstm.reset_states()
    for elmo in (ours, theirs):
        change(elmo._elmo_lstm._elmo_lstm)
    for _ in range(2):  # the second time, from the carried state
        found = layers_of(ours)
        torch.testing.assert_close(found, layers_of(theirs), atol=1e-6, rtol=1e-5)
    assert not torch.allclose(found, before, atol=1e-3)


def test_an_lstm_of_another_class_is_called(files):
    """It has states of its own."""
    ours, theirs, other = *elmo_pair(files), elmo_pair(files)[1]
    ours._elmo_lstm._elmo_lstm = other._elmo_lstm._elmo_lstm
    for _ in range(2):  # the second time, from the carried state
        found = layers_of(ours)
        torch.testing.assert_close(found, layers_of(theirs), atol=1e-6, rtol=1e-5)
    ours.reset_states()
    assert not torch.allclose(layers_of(ours), found, atol=1e-3)
    ours._elmo_lstm.state = "primed"
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
    bilms = [random_bilm().requires_grad_(False).eval() for _ in range(2)]
    for bilm in bilms:
        bilm.state = state
    bilms[0]._elmo_lstm = Hides(bilms[0]._elmo_lstm)
    bilms[1].lstm.register_forward_hook(lambda lstm, inputs, outputs: 0.5 * outputs)
    for _ in range(2):  # the second time, from the carried state
        found, expected = (copy.deepcopy(one)(IDS)["activations"] for one in bilms)
        torch.testing.assert_close(found, expected)
        for bilm in bilms:
            bilm(IDS)


def halve_projection(bilm, name):
    for parameter in getattr(bilm, name).projection.parameters():
        parameter.data *= 0.5


@pytest.mark.parametrize("change", [wrap_tokens, assign_forward])
def test_scoring_calls_the_token_layer(change):
    results = []
    for halve in (change, halve_projection, lambda *_: None):
        torch.manual_seed(4)
        bilm, words = random_bilm(), WordVocabulary(["<S>", "</S>", "<UNK>", "cat"])
        scorer = LanguageScorer(bilm, WordSoftmax(4, 6), words)
        halve(bilm, "_token_embedder")
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
    words = WordVocabulary(["<S>", "</S>", "<UNK>", "It"])
    list(LanguageScorer(bilm, WordSoftmax(4, 6), words).score([["It"]]))


def in_pretraining(bilm):
    LanguageModel(bilm, WordSoftmax(50, 6))(batch_pair())


@pytest.mark.parametrize("change", [hook, with_forward, with_class])
@pytest.mark.parametrize(
    ("use", "name"),
    [
        (in_extraction, ""), (in_extraction, "_elmo_lstm"), (in_scoring, ""),
        (in_scoring, "_elmo_lstm"), (in_pretraining, ""), (in_pretraining, "_elmo_lstm"),
    ],
)  # fmt: skip
def test_what_calls_the_layers_refuses_hooks_on_the_whole(use, name, change):
    bilm = random_bilm()
    use(bilm)
    change(bilm.get_submodule(name))
    with pytest.raises(ValueError, match="has hooks or a forward of its own"):
        use(bilm)


def test_plain_layers_log_nothing(caplog):
    with caplog.at_level(logging.DEBUG):
        random_bilm()(IDS)
    assert not caplog.records


def test_allennlps_confidence_check_in_the_first_batch_does_not_slow_a_run(caplog):
    bilm = random_bilm()
    check = NormalizationBiasVerification(bilm)
    check.register_hooks()
    bilm(IDS)
    check.destroy_hooks()
    assert not caplog.records
