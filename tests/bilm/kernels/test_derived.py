import copy
import pickle

import pytest
import torch

from elmo_plugin.bilm.kernels.derived import kept
from elmo_plugin.bilm.model.lstm import LstmCellWithProjection

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
def test_a_frozen_cell_equals_one_that_trains(operators, dtype):
    cell, inputs = cell_and_inputs(dtype)
    frozen = cell(*inputs)
    training = cell.requires_grad_()(*inputs)
    for ours, theirs in zip(frozen, training, strict=True):
        torch.testing.assert_close(ours, theirs, atol=TOLERANCE[dtype], rtol=0)
    if dtype is not None:
        assert not torch.allclose(frozen[0], training[0], atol=1e-5)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_changed_parameters_are_seen(operators, dtype):
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


def test_prepared_weights_are_in_no_copy_and_no_checkpoint():
    cell, inputs = cell_and_inputs()
    keys = set(cell.state_dict())
    output = cell(*inputs)[0]
    assert kept(list(cell.parameters()))
    assert set(cell.state_dict()) == keys
    for twin in (copy.deepcopy(cell), pickle.loads(pickle.dumps(cell))):
        assert not kept(list(twin.parameters()))
        assert torch.equal(twin(*inputs)[0], output)
    cell.to(torch.float64)
    assert not kept(list(cell.parameters()))
