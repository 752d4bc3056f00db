"""Whatever writes to the weights, the next call computes with the new ones."""

import copy
import inspect
import io
import pickle
import re
import tempfile

import pytest
import torch
from allennlp.training.optimizers import Optimizer as AllenNlpOptimizer
from torch.nn.utils import prune

from elmo_plugin.bilm.kernels import derived as derived_module
from elmo_plugin.bilm.model import bilm as bilm_module
from elmo_plugin.bilm.model.characters import batch_to_ids
from tests.cases import first_quick
from tests.tiny_bilm import BATCHES, random_bilm

IDS = batch_to_ids(BATCHES[0])
INPUT_AND_STATE = [
    f"_elmo_lstm.forward_layer_0.{name}_linearity.weight" for name in ("input", "state")
]


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


PARTIAL = {
    "every other": lambda weight: weight.data.view(-1)[1::2].zero_(),
    "one element": lambda weight: weight.data[-1, -1].add_(1.0),
    "one row": lambda weight: weight.data[1].zero_(),
    "two rows swapped": lambda weight: weight.data[:2].copy_(weight.data[:2].flip(0)),
    "signs of odd elements": lambda weight: weight.data.view(-1)[1::2].neg_(),
    "numpy": lambda weight: weight.detach().numpy()[2, 2:3].fill(9.0),
    "storage": lambda weight: weight.untyped_storage().fill_(60),
    "dlpack": lambda weight: torch.from_dlpack(weight)[1, 1].add_(1.0),
    "row of a view": lambda weight: weight[1].data.zero_(),
    "block of a view": lambda weight: weight[3:5].data.fill_(1.0),
    "last row": lambda weight: list(weight)[-1].data.zero_(),
    "column": lambda weight: weight.T.data[1].zero_(),
    "flat view": lambda weight: weight.view(-1).numpy()[1::2].fill(0.0),
    "copy": lambda weight: copy.copy(weight).data[1].zero_(),
    "chunk": lambda weight: weight.chunk(4)[1].data[1].zero_(),
}


@pytest.mark.parametrize("write", PARTIAL)
@pytest.mark.parametrize("name", ["_token_embedder._char_embedding_weights", *INPUT_AND_STATE])
@pytest.mark.parametrize(("state", "dtype"), [("reset", "int8"), ("primed", None)])
def test_uncounted_writes_to_a_part_are_noticed(write, name, state, dtype):
    bilm = random_bilm(dtype=dtype).requires_grad_(False).eval()
    bilm.state = state
    bilm(IDS)
    PARTIAL[write](bilm.get_parameter(name))
    found = vectors(bilm)
    fresh = random_bilm(dtype=dtype).requires_grad_(False).eval()
    fresh.state = state
    fresh.load_state_dict(bilm.state_dict())
    assert torch.equal(found, vectors(fresh))


# Arguments with which each method of a tensor is tried.
ARGUMENTS = [
    (), (0,), (2,), (0, 1), (0, 0, 1), (0, 2, 1), (0, (2, 2)), ((-1,),), ((4, 4),), ((1, 0),),
    ([2, 2],), ((1, 4, 4),), ((4, 4), (4, 1)), (torch.ones(4, 4),), (4, 4), (torch.Tensor,),
    ("a", "b"), (lambda x: 2 * x,), (torch.ones(4, 4), lambda x, y: 2 * x),
    (torch.ones(4, 4), torch.ones(4, 4), lambda x, y, z: 2 * x),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_every_method_that_returns_a_view_or_writes_puts_the_content_in_doubt():
    missed, found, ones = set(), set(), torch.ones(4, 4)
    for name in dir(torch.Tensor):
        if name.startswith("_") and name not in ("__getitem__", "__iter__"):
            continue
        for arguments in ARGUMENTS:
            weight = torch.nn.Parameter(ones.clone(), requires_grad=False)
            derived_module.derived([weight], ("value",), lambda: 1)
            record, address = weight._derived_record, weight.data_ptr()
            try:
                result = getattr(weight, name)
                result = result(*arguments) if callable(result) else result
            except Exception:  # other arguments are expected
                continue
            is_written = not torch.equal(record.alias, ones)
            results = result if isinstance(result, (tuple, list)) else [result]
            if is_written or any(is_view(one, weight, address) for one in results):
                found.add(name)
                if record.checked and weight._version == record.version:
                    missed.add(name)
    assert len(found) > 100
    assert not missed


def is_view(result, weight, address):
    if not isinstance(result, torch.Tensor) or result is weight:
        return False
    if result.layout is not torch.strided or not result.numel():
        return False
    return result.untyped_storage().data_ptr() == address


@pytest.mark.parametrize("change", ["train", "forget"])
def test_writes_through_an_old_view_are_noticed_when_the_mode_changes(change):
    bilm = random_bilm(dtype="int8").requires_grad_(False)
    weight = bilm.lstm.forward_layer_0.state_linearity.weight
    view = weight.detach().numpy()
    bilm.state = "primed"
    before = vectors(bilm)
    view[1, 1] += 1.0
    bilm.eval() if change == "train" else bilm.forget_derived()
    assert_up_to_date(bilm, before)


def test_an_adversarial_step_on_the_characters_is_noticed():
    """FGM's: the start state of a primed biLM that learns is that of the changed embeddings."""
    bilm = random_bilm()
    bilm.state = "primed"
    embedding = bilm.char_cnn.char_embedding
    loss(bilm).backward()
    embedding.data.add_(embedding.grad / embedding.grad.norm())
    found = bilm.start_states([0])[0].hidden
    bilm.forget_derived()
    assert torch.equal(found, bilm.start_states([0])[0].hidden)


@pytest.mark.parametrize(
    "change",
    [
        lambda bilm: None,
        lambda bilm: bilm.to("cpu").float().eval(),
        lambda bilm: bilm.train().eval(),
        lambda bilm: (bilm.state_dict(), copy.deepcopy(bilm)),
        lambda bilm: [one.data.norm() for one in bilm.parameters()],
    ],
    ids=["nothing", "moved to where it is", "trained and back", "copied", "looked at"],
)
def test_what_did_not_change_is_not_built_again(change, monkeypatch):
    bilm = random_bilm(dtype="int8").requires_grad_(False).eval()
    bilm.state = "primed"
    vectors(bilm)
    built = []
    monkeypatch.setattr(derived_module, "_make", lambda *arguments: built.append(arguments[1]))
    for _ in range(2):
        change(bilm)
        vectors(bilm)
    assert built == []


def test_only_what_changed_is_built_again(monkeypatch):
    bilm = random_bilm(dtype="int8").requires_grad_(False).eval()
    bilm.state = "reset"
    vectors(bilm)
    built, make = [], derived_module._make
    monkeypatch.setattr(
        derived_module, "_make", lambda *given: (built.append(given[0][0]), make(*given))[1]
    )
    cell = bilm.lstm.backward_layer_1
    cell.state_projection.weight.data[0, 0] += 1
    bilm.train().eval()
    vectors(bilm)
    assert len(built) == 1
    assert built[0] is cell.input_linearity.weight


@pytest.mark.parametrize("frozen", [True, False])
def test_weights_are_loaded_by_swapping(frozen):
    """`set_swap_module_params_on_conversion`: no weak reference may point to a parameter."""
    bilm = random_bilm().requires_grad_(not frozen)
    bilm.state = "primed"
    before = vectors(bilm)
    state = {name: 0.5 * tensor for name, tensor in bilm.state_dict().items()}
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        bilm.load_state_dict(state)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert_up_to_date(bilm, before)
    fresh = random_bilm()
    fresh.state = "primed"
    fresh.load_state_dict(state)
    assert torch.equal(vectors(bilm), vectors(fresh))


def test_a_parameter_stays_one_for_everybody_else():
    bilm = random_bilm()
    bilm.state = "primed"
    vectors(bilm)
    shown = [repr(one) for one in random_bilm().parameters()]
    assert [repr(one) for one in bilm.parameters()] == shown
    for name, parameter in bilm.named_parameters():
        assert isinstance(parameter, torch.nn.Parameter), name
        assert type(parameter.detach()) is type(parameter.data) is type(2 * parameter)
        assert type(parameter.data) is torch.Tensor
        tied = torch.nn.Parameter(parameter, requires_grad=False)
        assert isinstance(tied, torch.nn.Parameter)
        assert tied.data_ptr() == parameter.data_ptr()
    saved = io.BytesIO()
    torch.save(bilm.state_dict(), saved)
    saved.seek(0)
    assert torch.load(saved, weights_only=True).keys() == bilm.state_dict().keys()
    twin = pickle.loads(pickle.dumps(bilm))
    assert {type(one) for one in twin.parameters()} == {torch.nn.Parameter}
    assert torch.equal(vectors(twin), vectors(bilm))


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
    first = bilm._start_states([0])[0].hidden.data_ptr()
    other.sum().backward()
    optimizer.step()
    assert bilm._start_states([0])[0].hidden.data_ptr() == first
