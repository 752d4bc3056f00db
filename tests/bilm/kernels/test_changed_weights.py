"""Whatever writes to the weights, the next call computes with the new ones."""

import inspect
import re
import tempfile

import pytest
import torch
from allennlp.training.optimizers import Optimizer as AllenNlpOptimizer
from torch.nn.utils import prune

from elmo_plugin.bilm.model import bilm as bilm_module
from elmo_plugin.bilm.model.characters import batch_to_ids
from tests.cases import first_quick
from tests.tiny_bilm import BATCHES, random_bilm

IDS = batch_to_ids(BATCHES[0])


def torch_optimizers():
    """Every optimizer of `torch.optim`, and its fused variant where it has one."""
    for name, kind in vars(torch.optim).items():
        if inspect.isclass(kind) and torch.optim.Optimizer in kind.__mro__[1:]:
            yield name, kind, {}
            if "fused" in inspect.signature(kind).parameters:
                yield f"{name} fused", kind, {"fused": True}


def allennlp_optimizers():
    for name in AllenNlpOptimizer.list_available():
        yield name, AllenNlpOptimizer.by_name(name), {}


OPTIMIZERS = {
    f"{source}: {name}": (kind, arguments)
    for source, found in (("torch", torch_optimizers()), ("allennlp", allennlp_optimizers()))
    for name, kind, arguments in found
}
# They train parameters of one kind only: sparse gradients, matrices.
RESTRICTED = {"torch: SparseAdam", "torch: Muon", "allennlp: sparse_adam", "allennlp: multi"}


@pytest.fixture(autouse=True)
def _short_warm_up(monkeypatch):
    monkeypatch.setattr(bilm_module, "WARM_UP_TEXT", "It rained .\n")


def loss(bilm):
    return torch.stack(bilm(IDS)["activations"]).square().sum()


def vectors(bilm):
    with torch.no_grad():
        return torch.stack(bilm(IDS)["activations"])


def assert_up_to_date(bilm, before):
    """The outputs are those of the weights as they are now, and not those of before."""
    found = vectors(bilm)
    bilm.forget_derived()
    assert torch.equal(found, vectors(bilm))
    assert not torch.equal(found, before)


def make_optimizer(name, bilm):
    kind, arguments = OPTIMIZERS[name]
    if name.startswith("torch"):
        return kind(bilm.parameters(), **arguments)
    rate = {} if "adafactor" in name else {"lr": 0.01}
    return kind(model_parameters=list(bilm.named_parameters()), **rate)


@first_quick("name", [name for name in OPTIMIZERS if name not in RESTRICTED], count=12)
@pytest.mark.filterwarnings("ignore:This implementation of AdamW:FutureWarning")
def test_an_optimizer_step_is_noticed(name):
    bilm = random_bilm()
    bilm.state = "primed"
    optimizer = make_optimizer(name, bilm)
    before = vectors(bilm)

    def closure():
        optimizer.zero_grad()
        with torch.enable_grad():  # some optimizers call it without
            value = loss(bilm)
        value.backward()
        return value.detach()

    first = closure()
    optimizer.step(closure)
    found = closure()
    bilm.forget_derived()
    assert found == closure() != first
    assert_up_to_date(bilm, before)


def through_data(bilm):
    for parameter in bilm.parameters():
        parameter.data.mul_(0.5)


def through_numpy(bilm):
    for parameter in bilm.parameters():
        parameter.detach().numpy()[:] *= 0.5


def all_reduce(bilm):
    """In a group of one process, so that it needs another write to change anything."""
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=0, world_size=1
        )
        for parameter in bilm.parameters():
            torch.distributed.all_reduce(parameter.data.mul_(0.5))
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("write", [through_data, through_numpy, all_reduce])
@pytest.mark.parametrize("dtype", [None, "int8"])
@pytest.mark.parametrize("state", ["reset", "primed"])
def test_uncounted_writes_to_whole_weights_are_noticed(write, dtype, state):
    bilm = random_bilm(dtype=dtype).requires_grad_(False).eval()
    bilm.state = state
    before = vectors(bilm)
    write(bilm)
    assert_up_to_date(bilm, before)


@pytest.mark.parametrize("state", ["reset", "primed"])
def test_pruning_is_noticed_and_follows_the_original_weight(state):
    bilm = random_bilm().requires_grad_(False).eval()
    bilm.state = state
    before = vectors(bilm)
    linear = bilm.lstm.layers("forward")[1].state_linearity
    prune.random_unstructured(linear, "weight", 0.5)
    assert_up_to_date(bilm, before)
    before = vectors(bilm)
    linear.weight_orig.mul_(0.5)  # the pruned weight is computed from it before a forward pass
    assert_up_to_date(bilm, before)
    pruned = vectors(bilm)
    prune.remove(linear, "weight")
    assert torch.equal(vectors(bilm), pruned)


def test_a_pruned_bilm_trains():
    bilm = random_bilm()
    bilm.state = "reset"
    linear = bilm.lstm.layers("forward")[0].input_linearity
    prune.random_unstructured(linear, "weight", 0.5)
    optimizer = torch.optim.SGD(bilm.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        value = loss(bilm)
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    assert losses[0] > losses[1] > losses[2]
    assert bool((linear.weight[linear.weight_mask == 0] == 0).all())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_loading_weights_that_are_not_finite_warns(value):
    bilm = random_bilm()
    state = {name: tensor.clone() for name, tensor in bilm.state_dict().items()}
    name = "_token_embedder.char_conv_1.weight"
    state[name][0, 0, 0] = value
    with pytest.warns(UserWarning, match=re.escape(f"{name} holds NaN or infinite")):
        bilm.load_state_dict(state)


def test_a_frozen_bilm_in_an_optimizer_keeps_what_was_derived():
    bilm = random_bilm().requires_grad_(False).eval()
    bilm.state = "primed"
    other = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([*bilm.parameters(), other], lr=0.1)
    first = bilm.start_states([0])[0].hidden.data_ptr()
    other.sum().backward()
    optimizer.step()
    assert bilm.start_states([0])[0].hidden.data_ptr() == first
