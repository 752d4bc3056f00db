from copy import deepcopy

import pytest
import torch
from allennlp.modules.lstm_cell_with_projection import (
    LstmCellWithProjection as StockCell,
)
from torch.nn import functional

from elmo_plugin.bilm.kernels import library, tuning
from elmo_plugin.bilm.kernels.reference import lstm_layer
from elmo_plugin.bilm.model.lstm import BiLstm, LstmCellWithProjection

LENGTHS = [5, 3, 3, 1]
BATCH_SIZES = [4, 3, 3, 1, 1]


def cell_and_inputs(cell_clip=0.5, projection_clip=0.3, dtype=torch.float64):
    torch.manual_seed(0)
    cell = LstmCellWithProjection(4, 3, 6, cell_clip, projection_clip).to(dtype)
    for parameter in cell.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    inputs = torch.randn(sum(BATCH_SIZES), 4, dtype=dtype)
    return cell, inputs, torch.randn(4, 3, dtype=dtype) * 0.2, torch.randn(4, 6, dtype=dtype) * 0.4


def step_by_step(cell, inputs, hidden, cell_state):
    return lstm_layer(inputs, BATCH_SIZES, hidden, cell_state, cell.weights)


CLIPS = [(0.5, 0.3), (None, 0.3), (0.5, None), (None, None)]


@pytest.mark.parametrize(("cell_clip", "projection_clip"), CLIPS)
@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("chunk", [1, 4, 512])
def test_outputs_and_final_states(cell_clip, projection_clip, requires_grad, chunk, monkeypatch):
    monkeypatch.setattr(tuning, "INPUT_PRODUCT_ELEMENTS", 24 * chunk)
    cell, inputs, hidden, cell_state = cell_and_inputs(cell_clip, projection_clip)
    cell.requires_grad_(requires_grad)
    found = cell(inputs, BATCH_SIZES, hidden, cell_state)
    expected = step_by_step(cell, inputs, hidden, cell_state)
    torch.testing.assert_close(found, expected, atol=1e-13, rtol=1e-12)
    assert found[0].requires_grad is requires_grad
    assert not found[1].requires_grad
    assert not found[2].requires_grad


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(("cell_clip", "projection_clip"), CLIPS)
def test_gradients(cell_clip, projection_clip, frozen):
    cell, inputs, hidden, cell_state = cell_and_inputs(cell_clip, projection_clip)
    inputs.requires_grad_()
    wanted = [inputs] if frozen else [inputs, *cell.parameters()]
    cell.requires_grad_(not frozen)
    weight = torch.randn(sum(BATCH_SIZES), 3, dtype=torch.float64)
    found, expected = (
        torch.autograd.grad((output * weight).sum(), wanted)
        for output in (
            cell(inputs, BATCH_SIZES, hidden, cell_state)[0],
            step_by_step(cell, inputs, hidden, cell_state)[0],
        )
    )
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("training_dtype", ["bfloat16", None])
def test_products_in_bfloat16_turn_gradients_by_little(training_dtype):
    cell, inputs, hidden, cell_state = cell_and_inputs(3.0, 3.0, torch.float32)
    inputs.requires_grad_()
    wanted = [inputs, *cell.parameters()]
    cell.training_dtype = training_dtype
    found, expected = (
        (output, *torch.autograd.grad(output.square().sum(), wanted))
        for output in (
            cell(inputs, BATCH_SIZES, hidden, cell_state)[0],
            step_by_step(cell, inputs, hidden, cell_state)[0],
        )
    )
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == torch.float32
        cosine = functional.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0)
        if training_dtype is None:
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
        else:
            assert cosine > 0.999
            rounds = training_dtype in library.trained_formats()
            assert not rounds or not torch.allclose(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "training_dtype", "clip"),
    [
        (torch.float16, None, 0.2),
        (torch.bfloat16, None, 0.7),
        (torch.float32, None, 0.2),
        (torch.float32, "bfloat16", 0.7),
        (torch.float16, "bfloat16", 0.7),
    ],
)
@pytest.mark.usefixtures("operators")
def test_clipped_values_get_no_gradient_at_a_clip_that_is_rounded(dtype, training_dtype, clip):
    cell, inputs, hidden, cell_state = cell_and_inputs(clip, clip, dtype)
    exact = deepcopy(cell).double()
    exact_inputs = [one.double() for one in (inputs, hidden, cell_state)]
    cell.training_dtype = training_dtype
    found = torch.autograd.grad(
        cell(inputs, BATCH_SIZES, hidden, cell_state)[0].square().sum(), list(cell.parameters())
    )
    outputs = step_by_step(exact, *exact_inputs)[0]
    assert outputs.abs().eq(clip).any()
    expected = torch.autograd.grad(outputs.square().sum(), list(exact.parameters()))
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).norm() < 0.06 * theirs.norm()


def test_inputs_and_states_are_left_alone():
    cell, inputs, hidden, cell_state = cell_and_inputs()
    copies = [tensor.clone() for tensor in (inputs, hidden, cell_state)]
    output, final_hidden, _ = cell(inputs, BATCH_SIZES, hidden, cell_state)
    output.sum().backward()
    torch.testing.assert_close([inputs, hidden, cell_state], copies, atol=0, rtol=0)
    final_hidden.zero_()
    assert torch.equal(hidden, copies[1])


@pytest.mark.parametrize("go_forward", [True, False])
def test_equals_allennlp(go_forward):
    """Padded there, packed here; the backward direction reads packed rows from the end."""
    cell, _, _, _ = cell_and_inputs(dtype=torch.float32)
    stock = StockCell(
        4, 3, 6, go_forward, memory_cell_clip_value=0.5, state_projection_clip_value=0.3
    )
    stock.load_state_dict(cell.state_dict())
    padded = torch.randn(4, 5, 4)
    expected, (hidden, cell_state) = stock(padded, torch.tensor(LENGTHS))
    places = [
        (row, step if go_forward else LENGTHS[row] - 1 - step)
        for step, size in enumerate(BATCH_SIZES)
        for row in range(size)
    ]
    packed = torch.stack([padded[place] for place in places])
    output, final_hidden, final_cell = cell(
        packed, BATCH_SIZES, torch.zeros(4, 3), torch.zeros(4, 6)
    )
    torch.testing.assert_close(output, torch.stack([expected[place] for place in places]))
    torch.testing.assert_close(final_hidden, hidden[0])
    torch.testing.assert_close(final_cell, cell_state[0])


def bilstm(**changes):
    torch.manual_seed(1)
    sizes = {"projection_dim": 3, "cell_size": 6, "num_layers": 3, **changes}
    return BiLstm(**sizes).double()


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_skip_connections_are_above_the_first_layer_and_outside_the_recurrence(skip, direction):
    module = bilstm(use_skip_connections=skip)
    inputs = torch.randn(sum(BATCH_SIZES), 3, dtype=torch.float64)
    start = module.initial_state(4)
    outputs, final = module.stack(direction, inputs, BATCH_SIZES, start)
    layer_input = inputs
    for layer, cell in enumerate(module.layers(direction)):
        output, hidden, cell_state = cell(
            layer_input, BATCH_SIZES, start.hidden[layer], start.cell[layer]
        )
        assert torch.equal(final.hidden[layer], hidden)
        assert torch.equal(final.cell[layer], cell_state)
        layer_input = output + layer_input if skip and layer > 0 else output
        assert torch.equal(outputs[layer], layer_input)


def test_dropout_is_of_every_layers_input_and_the_skip_adds_the_dropped_one():
    module = bilstm(num_layers=2)
    inputs = torch.randn(sum(BATCH_SIZES), 3, dtype=torch.float64)
    start = module.initial_state(4)
    torch.manual_seed(7)
    outputs, _ = module.stack("forward", inputs, BATCH_SIZES, start, dropout=0.5)
    torch.manual_seed(7)
    first, second = module.layers("forward")
    lower, _, _ = first(functional.dropout(inputs, 0.5), BATCH_SIZES, *zeros_of(start))
    dropped = functional.dropout(lower, 0.5)
    upper, _, _ = second(dropped, BATCH_SIZES, *zeros_of(start))
    assert torch.equal(outputs[0], lower)
    assert torch.equal(outputs[1], upper + dropped)
    undropped, _ = module.eval().stack("forward", inputs, BATCH_SIZES, start, dropout=0.5)
    assert not torch.equal(undropped[0], lower)


def zeros_of(state):
    return state.hidden[0], state.cell[0]


def test_initial_values_are_tensorflows():
    """Glorot over the joint kernel of inputs and outputs; forget bias 1, other biases 0."""
    cell = LstmCellWithProjection(30, 20, 40)
    limit = (6 / (30 + 20 + 160)) ** 0.5
    for weight in (cell.input_linearity.weight, cell.state_linearity.weight):
        assert 0.95 * limit < weight.abs().max() <= limit
    bias = cell.state_linearity.bias.view(4, 40)
    assert bias[1].eq(1).all()
    assert not bias[[0, 2, 3]].any()


def test_what_frozen_steps_give_can_take_part_in_training():
    """They run in inference mode, whose tensors could not."""
    cell, inputs, hidden, cell_state = cell_and_inputs()
    found = cell.requires_grad_(False)(inputs, BATCH_SIZES, hidden, cell_state)
    weight = torch.nn.Parameter(torch.ones((), dtype=torch.float64))
    sum((one * weight).sum() for one in found).backward()
    torch.testing.assert_close(weight.grad, sum(one.sum() for one in found))
