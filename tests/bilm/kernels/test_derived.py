import copy
import gc
import pickle
import threading
import weakref

import pytest
import torch

from elmo_plugin.bilm.kernels import library, tuning
from elmo_plugin.bilm.kernels.derived import derived
from elmo_plugin.bilm.model import bilm as bilm_module
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.model.lstm import LstmCellWithProjection
from elmo_plugin.bilm.model.state import WARM_UP_TEXT
from tests.tiny_bilm import BATCHES, cached_names, random_bilm

IDS = batch_to_ids(BATCHES[0])
BATCH_SIZES = [5, 4, 4, 2, 1]
# Largest error.
TOLERANCE = {None: 2e-6, "bfloat16": 0.01, "int8": 0.02}


def cell_and_inputs(dtype=None):
    torch.manual_seed(2)
    cell = LstmCellWithProjection(24, 16, 32, 0.5, 0.3).requires_grad_(False)
    cell.dtype = dtype
    start = torch.randn(5, 16) * 0.2, torch.randn(5, 32) * 0.4
    return cell, (torch.randn(sum(BATCH_SIZES), 24), BATCH_SIZES, *start)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_frozen_cell_equals_one_that_trains(operators, dtype, monkeypatch):
    monkeypatch.setattr(tuning, "MOST_EXACT", 0)
    cell, inputs = cell_and_inputs(dtype)
    frozen = cell(*inputs)
    training = cell.requires_grad_()(*inputs)
    for ours, theirs in zip(frozen, training, strict=True):
        torch.testing.assert_close(ours, theirs, atol=TOLERANCE[dtype], rtol=0)
    # PyTorch's operators on a CPU multiply bfloat16 exactly.
    if dtype == "int8" or (dtype is not None and operators == "library"):
        assert not torch.allclose(frozen[0], training[0], atol=1e-5)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_changed_parameters_are_noticed(operators, dtype):
    cell, inputs = cell_and_inputs(dtype)
    before = cell(*inputs)[0]

    def in_place():
        cell.state_linearity.weight.mul_(0.5)

    def replaced():
        cell.state_projection.weight = torch.nn.Parameter(
            -cell.state_projection.weight, requires_grad=False
        )

    def by_data():
        cell.input_linearity.weight.data.neg_()
        cell.eval()

    def loaded():
        cell.load_state_dict({key: 0.7 * value for key, value in cell.state_dict().items()})

    def moved():
        cell.bfloat16().float()

    for change in (in_place, replaced, by_data, loaded, moved):
        change()
        after = cell(*inputs)[0]
        fresh, _ = cell_and_inputs(dtype)
        fresh.load_state_dict(cell.state_dict())
        assert torch.equal(after, fresh(*inputs)[0])
        assert not torch.equal(after, before), change
        before = after


def test_derived_values_are_in_no_copy_and_no_checkpoint():
    cell, inputs = cell_and_inputs()
    keys = set(cell.state_dict())
    output = cell(*inputs)[0]
    assert cached_names(cell)
    assert set(cell.state_dict()) == keys
    for twin in (copy.deepcopy(cell), pickle.loads(pickle.dumps(cell))):
        assert not cached_names(twin)
        assert torch.equal(twin(*inputs)[0], output)
    cell.to(torch.float64)
    assert not cached_names(cell)


# --- a whole biLM: prepacked weights, vectors of tokens, the state after the warm-up text --------


def frozen_and_run(state, **changes):
    bilm = random_bilm(**changes).requires_grad_(False).eval()
    bilm.state = state
    bilm(IDS)
    return bilm


def swap_data(bilm):
    for parameter in bilm.parameters():
        parameter.data = 0.5 * parameter.data


def swap_data_twice(bilm):
    """The second tensor may come to lie where the first weights were, were they let go."""
    for parameter in bilm.parameters():
        parameter.data = torch.ones_like(parameter)
    for parameter in bilm.parameters():
        parameter.data = 0.3 * torch.ones_like(parameter)


def swap_by_vector(bilm):
    vector = 0.5 * torch.nn.utils.parameters_to_vector(bilm.parameters())
    torch.nn.utils.vector_to_parameters(vector, bilm.parameters())


@pytest.mark.parametrize("change", [swap_data, swap_data_twice, swap_by_vector])
@pytest.mark.parametrize("state", ["reset", "primed"])
@pytest.mark.parametrize("dtype", [None, "int8"])
def test_another_tensor_as_data_is_noticed_in_eval_mode(change, state, dtype):
    bilm = frozen_and_run(state, dtype=dtype)
    before = bilm(IDS)["activations"]
    start = bilm.start_states([0])[0].cell
    change(bilm)
    fresh = random_bilm(dtype=dtype).requires_grad_(False)
    fresh.state = state
    fresh.load_state_dict(bilm.state_dict())
    found, expected = bilm(IDS)["activations"], fresh(IDS)["activations"]
    for ours, theirs, old in zip(found, expected, before, strict=True):
        assert torch.equal(ours, theirs)
        assert not torch.equal(ours, old)
    assert torch.equal(bilm.start_states([0])[0].cell, fresh.start_states([0])[0].cell)
    assert (state == "reset") is torch.equal(bilm.start_states([0])[0].cell, start)


def test_derived_values_are_freed_with_the_weights():
    bilm = frozen_and_run("primed")
    weight = bilm.char_cnn.char_embedding
    value = weakref.ref(derived([weight], ("a value",), lambda: torch.zeros(3)))
    assert value() is derived([weight], ("a value",), lambda: torch.ones(3))
    del bilm, weight
    gc.collect()
    assert value() is None


def test_one_embedder_from_four_threads_gives_what_one_thread_gets(monkeypatch):
    """From the first call on: nothing is prepacked, remembered or warmed up yet."""
    monkeypatch.setattr(bilm_module, "WARM_UP_TEXT", WARM_UP_TEXT.splitlines()[0])
    sentences = [batch[0] for batch in BATCHES]
    expected = embedded_by(random_bilm(), sentences, num_threads=1)
    # Without the library PyTorch's rounding depends on which tokens the cache still lacks.
    tolerance = 1e-6 if library.variant() is None else 0
    for _ in range(15):
        found = embedded_by(random_bilm(), sentences, num_threads=4)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0)


def embedded_by(bilm, sentences, num_threads):
    bilm.requires_grad_(False).eval()
    bilm.state = "primed"
    found = [None] * len(sentences)
    barrier = threading.Barrier(num_threads)

    def work(first):
        barrier.wait()
        for number in range(first, len(sentences), num_threads):
            found[number] = torch.stack(bilm(batch_to_ids([sentences[number]]))["activations"])

    threads = [threading.Thread(target=work, args=(first,)) for first in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
