"""The definition: against AllenNLP's modules, by hand, and what is fast against it."""

import threading

import pytest
import torch
from allennlp.modules.highway import Highway as StockHighway

from elmo_plugin.bilm.kernels import backend, fast, reference
from elmo_plugin.bilm.kernels.backend import LstmWeights, use_backend
from elmo_plugin.bilm.kernels.reference import lstm_step
from elmo_plugin.bilm.model.char_cnn import CharCnn
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.model.options import ElmoOptions
from tests.tiny_bilm import BATCHES, random_bilm


def test_highway_equals_allennlp_and_loads_its_weights():
    torch.manual_seed(4)
    ours = CharCnn(ElmoOptions(5, 1, 1, char_embedding_dim=1, filters=((1, 5),), num_highways=3))
    theirs = StockHighway(5, 3, activation=torch.relu)
    ours._highways.load_state_dict(theirs.state_dict())
    inputs = torch.randn(2, 3, 5)
    torch.testing.assert_close(ours._highways(inputs), theirs(inputs))


def test_a_step_by_hand():
    """One unit; with these weights all gates are sigmoid(0) = 1/2, the candidate is tanh(x)."""
    gates = torch.tensor([[0.0], [0.0], [1.0], [0.0]])
    weights = LstmWeights(gates, torch.zeros(4, 1), torch.zeros(4), torch.tensor([[2.0]]), 0.9, 0.6)
    x, h, c = torch.tensor([[0.5]]), torch.tensor([[7.0]]), torch.tensor([[1.0]])
    new_h, new_c = lstm_step(x, h, c, weights)
    cell = 0.5 * 1.0 + 0.5 * torch.tanh(x)  # 0.731
    torch.testing.assert_close(new_c, cell)
    torch.testing.assert_close(new_h, torch.tensor([[0.6]]))  # 2 * 0.5 * tanh(0.731) = 0.624
    _, clipped = lstm_step(x, h, 3 * c, weights)
    assert float(clipped) == pytest.approx(0.9)


@pytest.mark.parametrize("state", ["carry", "reset", "primed"])
@pytest.mark.parametrize("trains", [True, False])
def test_what_is_fast_gives_the_definitions_numbers(state, trains):
    ours, theirs = (random_bilm().double().requires_grad_(trains) for _ in range(2))
    ours.state = theirs.state = state
    for batch in BATCHES:
        ids = batch_to_ids(batch)
        found = ours(ids)
        with use_backend("reference"):
            expected = theirs(ids)
        assert torch.equal(found["mask"], expected["mask"])
        for one, other in zip(found["activations"], expected["activations"], strict=True):
            torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-10)
    if trains:
        losses = [sum(one.sin().sum() for one in o["activations"]) for o in (found, expected)]
        for loss in losses:
            loss.backward()
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, atol=1e-11, rtol=1e-8)


def test_the_definition_multiplies_exactly_whatever_the_precision():
    exact, lower = random_bilm(), random_bilm(dtype="int8").requires_grad_(False)
    ids = batch_to_ids(BATCHES[0])
    with use_backend("reference"), torch.no_grad():
        found, expected = lower(ids)["activations"], exact(ids)["activations"]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert not torch.equal(lower(ids)["activations"][0], expected[0])


def test_the_choice_is_of_the_block_and_of_the_thread():
    seen = []
    with use_backend("reference"):
        assert backend.backend() is reference
        thread = threading.Thread(target=lambda: seen.append(backend.backend()))
        thread.start()
        thread.join()
        with use_backend("fast"):
            assert backend.backend() is fast
        assert backend.backend() is reference
    assert backend.backend() is fast
    assert seen == [fast]
    with (
        pytest.raises(ValueError, match=r"backend is 'slow', expected one of \('fast', 'refer"),
        use_backend("slow"),
    ):
        pass


def test_a_wrong_definition_would_be_seen(monkeypatch):
    monkeypatch.setattr(reference, "lstm_gates", gates_in_tensorflows_order)
    bilm, ids = random_bilm().requires_grad_(False), batch_to_ids(BATCHES[0])
    found = bilm(ids)["activations"][1]
    bilm.reset_states()
    with use_backend("reference"):
        assert not torch.allclose(bilm(ids)["activations"][1], found, atol=1e-3)


def gates_in_tensorflows_order(z, c, clip):
    i, g, f, o = z.chunk(4, dim=1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c
