"""PyTorch's transforms of a program: each works on a biLM, or says in one sentence why not."""

import copy

import pytest
import torch
from torch.autograd import forward_ad

from elmo_plugin.bilm.kernels.backend import use_backend
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.use.elmo import Elmo
from tests.process_group import in_processes
from tests.tiny_bilm import BATCHES, random_bilm

IDS = batch_to_ids(BATCHES[0])
WEIGHT = "_elmo_lstm.forward_layer_0.input_linearity.weight"


@pytest.fixture
def elmo(bilm_files):
    return Elmo(**bilm_files, num_output_representations=1, dropout=0.0, state="reset").eval()


@pytest.mark.parametrize("warm", [False, True])
def test_jit_trace_points_to_export_onnx(elmo, warm):
    if warm:
        elmo(IDS)
    with pytest.raises(RuntimeError, match=r"lengths; `python -m elmo_plugin export-onnx`"):
        torch.jit.trace(elmo, IDS, strict=False)


@pytest.mark.slow
def test_export_points_to_export_onnx(elmo):
    with pytest.raises(RuntimeError, match=r"lengths; `python -m elmo_plugin export-onnx`"):
        torch.export.export(elmo, (IDS,))


def test_jit_script_points_to_export_onnx(elmo):
    with pytest.raises(TypeError, match=r"torch\.jit\.script cannot compile a biLM.*export-onnx"):
        torch.jit.script(elmo)


def runs_as_it_is(rank, size, elmo, trains):
    """`backend="eager"` has Dynamo's part, which is what graph breaks cost."""
    elmo.requires_grad_(trains)

    def model(ids):
        return torch.relu(elmo(ids)["elmo_representations"][0]).sum()

    expected = model(IDS)
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(model, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(IDS), expected)
    if trains:
        compiled(IDS).backward()
        assert elmo.scalar_mixes[0].gamma.grad is not None
    # The mix and what surrounds it: none of the biLM's loops.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] < 10


@pytest.mark.slow
@pytest.mark.parametrize("trains", [False, True])
def test_compiled_models_run_the_bilm_as_it_is(elmo, trains):
    # In a child: what Dynamo loads would forbid backward passes in processes forked later.
    in_processes(1, runs_as_it_is, elmo, trains)


def test_vmap_is_refused(elmo):
    with pytest.raises(RuntimeError, match="vmap"):
        torch.vmap(lambda ids: elmo(ids)["elmo_representations"][0])(IDS.unsqueeze(0))


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("state", ["carry", "reset", "primed"])
@pytest.mark.parametrize(
    "name",
    [
        "_token_embedder._char_embedding_weights",
        "_token_embedder._projection.weight",
        "_elmo_lstm.backward_layer_0.state_linearity.bias",
        "_elmo_lstm.backward_layer_1.state_projection.weight",
        "",
    ],
)
def test_vmap_over_some_or_all_parameters(state, name):
    bilm = random_bilm()
    bilm.state = state
    elmo = Elmo(module=bilm, dropout=0.0)
    before = elmo(IDS)["elmo_representations"][0]
    carried = copy.deepcopy(bilm.carried)
    models = {
        key: torch.stack([one.detach(), 0.5 * one.detach()])
        for key, one in elmo.named_parameters()
        if name in key
    }

    def function(parameters):
        bilm.carried = carried
        return torch.func.functional_call(elmo, parameters, (IDS,))["elmo_representations"][0]

    found = torch.vmap(function)(models)
    after = elmo(IDS)["elmo_representations"][0]
    for number in range(2):
        expected = function({key: one[number] for key, one in models.items()})
        torch.testing.assert_close(found[number], expected, atol=1e-5, rtol=0)
    bilm.carried = carried
    torch.testing.assert_close(after, elmo(IDS)["elmo_representations"][0])
    assert torch.equal(before, after) is (state != "carry")


def function_of_a_weight(requires_grad):
    bilm = random_bilm().double().requires_grad_(requires_grad)
    bilm.state = "reset"
    parameters = dict(bilm.named_parameters())

    def function(weight):
        changed = {**parameters, WEIGHT: weight}
        return torch.stack(torch.func.functional_call(bilm, changed, (IDS,))["activations"])

    return function, parameters[WEIGHT].detach()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_forward_mode_derivatives_are_the_difference_quotient(requires_grad):
    function, weight = function_of_a_weight(requires_grad)
    tangent = torch.randn_like(weight)
    _, found = torch.func.jvp(function, (weight,), (tangent,))
    with forward_ad.dual_level():
        dual = function(forward_ad.make_dual(weight, tangent))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, found)
    with use_backend("reference"):
        _, expected = torch.func.jvp(function, (weight,), (tangent,))
        step = 1e-6 * tangent
        quotient = (function(weight + step) - function(weight - step)) / 2e-6
    assert torch.equal(found, expected)
    torch.testing.assert_close(found, quotient.detach(), atol=1e-6, rtol=0)
    assert found.abs().max() > 0.1


def test_functional_gradients_are_those_of_autograd():
    function, weight = function_of_a_weight(False)
    found = torch.func.grad(lambda one: function(one).square().sum())(weight)
    weight.requires_grad_()
    (expected,) = torch.autograd.grad(function(weight).square().sum(), weight)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
