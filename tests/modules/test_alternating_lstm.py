import copy
import itertools

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.modules.seq2seq_encoders import Seq2SeqEncoder
from allennlp.modules.seq2seq_encoders.pytorch_seq2seq_wrapper import (
    StackedAlternatingLstmSeq2SeqEncoder,
)
from allennlp.modules.stacked_alternating_lstm import StackedAlternatingLstm
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmo_plugin.modules.alternating_lstm import AlternatingLstm, AlternatingLstmSeq2SeqEncoder
from tests.cases import each_reweighting, first_quick

EXACT = {"rtol": 0.0, "atol": 1e-10}
LENGTHS = [7, 4, 4, 1]


def twins(stock_class, our_class, **arguments):
    """AllenNLP's module and ours with the same random weights, in float64."""
    torch.manual_seed(13)
    stock = stock_class(input_size=5, hidden_size=3, **arguments).double()
    ours = our_class(input_size=5, hidden_size=3, **arguments).double()
    for parameter in stock.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    ours.load_state_dict(stock.state_dict())
    return stock, ours


def padded(lengths, seed=3):
    torch.manual_seed(seed)
    return torch.randn(len(lengths), max(lengths), 5, dtype=torch.float64)


def run(module, inputs, lengths, state=None, seed=11):
    """Packed outputs as a padded tensor, the final state, the gradients of inputs and weights."""
    inputs = inputs.clone().requires_grad_()
    torch.manual_seed(seed)
    packed = pack_padded_sequence(inputs, lengths, batch_first=True)
    outputs, final = module(packed, state)
    outputs, _ = pad_packed_sequence(outputs, batch_first=True)
    torch.manual_seed(seed)
    (outputs * torch.randn_like(outputs)).sum().backward()
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    module.zero_grad()
    return outputs.detach(), [state.detach() for state in final], inputs.grad, gradients


@first_quick(
    ("num_layers", "dropout", "highway", "bias", "training"),
    itertools.product([4, 1], [0.4, 0.0], [True, False], [True, False], [True, False]),
    count=8,
)
def test_equals_allennlp(num_layers, dropout, highway, bias, training):
    stock, ours = twins(
        StackedAlternatingLstm,
        AlternatingLstm,
        num_layers=num_layers,
        recurrent_dropout_probability=dropout,
        use_highway=highway,
        use_input_projection_bias=bias,
    )
    stock.train(training)
    ours.train(training)
    for lengths in (LENGTHS, [5, 5, 5], [1]):
        given = torch.randn(2, num_layers, len(lengths), 3).double().unbind()
        for state in (None, given):
            found, expected = (run(one, padded(lengths), lengths, state) for one in (ours, stock))
            torch.testing.assert_close(found, expected, **EXACT)
    # The same random numbers were drawn, in evaluation too.
    torch.manual_seed(5)
    ours(pack_padded_sequence(padded(LENGTHS), LENGTHS, batch_first=True))
    drawn = torch.rand(3)
    torch.manual_seed(5)
    stock(pack_padded_sequence(padded(LENGTHS), LENGTHS, batch_first=True))
    assert torch.equal(drawn, torch.rand(3))


@pytest.mark.parametrize("stateful", [False, True])
def test_encoder_equals_allennlp_on_shuffled_batches_with_empty_rows(stateful):
    stock, ours = twins(
        StackedAlternatingLstmSeq2SeqEncoder,
        AlternatingLstmSeq2SeqEncoder,
        num_layers=3,
        recurrent_dropout_probability=0.2,
        stateful=stateful,
    )
    for step, lengths in enumerate(([2, 6, 0, 3], [4, 4, 4, 4], [5, 0, 1])):
        inputs = torch.randn(len(lengths), 8, 5, dtype=torch.float64)
        mask = torch.arange(8).unsqueeze(0) < torch.tensor(lengths).unsqueeze(1)
        both = []
        for encoder in (stock, ours):
            torch.manual_seed(step)
            both.append(encoder(inputs, mask))
        torch.testing.assert_close(both[1], both[0], **EXACT)
        assert both[0].abs().sum() > 0


def test_state_dict_names_and_initial_values_are_allennlps():
    arguments = {"input_size": 4, "hidden_size": 2, "num_layers": 2}
    torch.manual_seed(1)
    stock = StackedAlternatingLstmSeq2SeqEncoder(**arguments).state_dict()
    torch.manual_seed(1)
    ours = AlternatingLstmSeq2SeqEncoder(**arguments).state_dict()
    assert list(ours) == list(stock)
    assert all(torch.equal(ours[name], stock[name]) for name in stock)


def test_configs_build_ours():
    params = {"type": "alternating_lstm", "input_size": 4, "hidden_size": 2, "num_layers": 2}
    encoder = Seq2SeqEncoder.from_params(Params(params))
    assert type(encoder) is AlternatingLstmSeq2SeqEncoder
    assert (encoder.get_input_dim(), encoder.get_output_dim()) == (4, 2)
    assert not encoder.is_bidirectional()


@pytest.mark.parametrize("highway", [True, False])
def test_gradients_are_the_numeric_ones(highway):
    torch.manual_seed(2)
    module = AlternatingLstm(2, 2, num_layers=2, use_highway=highway).double()
    names = [name for name, _ in module.named_parameters()]
    lengths = torch.tensor([3, 2])

    def function(inputs, hidden, memory, *parameters):
        packed = pack_padded_sequence(inputs, lengths, batch_first=True)
        outputs, final = torch.func.functional_call(
            module, dict(zip(names, parameters, strict=True)), (packed, (hidden, memory))
        )
        return (outputs.data, *final)

    arguments = [
        torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True),
        torch.randn(2, 2, 2, dtype=torch.float64, requires_grad=True),
        torch.randn(2, 2, 2, dtype=torch.float64, requires_grad=True),
        *(p.detach().clone().requires_grad_() for p in module.parameters()),
    ]
    assert torch.autograd.gradcheck(function, arguments)


def test_unsorted_packing_keeps_the_order():
    module = AlternatingLstm(5, 3, num_layers=2).double()
    inputs, state = padded([2, 5, 3]), (torch.randn(2, 3, 3).double(),) * 2
    unsorted = pack_padded_sequence(inputs, [2, 5, 3], batch_first=True, enforce_sorted=False)
    outputs, final = module(unsorted, state)
    outputs, _ = pad_packed_sequence(outputs, batch_first=True)
    for row, length in enumerate([2, 5, 3]):
        alone = pack_padded_sequence(inputs[row : row + 1], [length], batch_first=True)
        row_state = tuple(part[:, row : row + 1] for part in state)
        row_outputs, row_final = module(alone, row_state)
        torch.testing.assert_close(outputs[row, :length], row_outputs.data, **EXACT)
        torch.testing.assert_close(final[0][:, row : row + 1], row_final[0], **EXACT)


def test_autocast_runs_in_the_weights_precision():
    module = AlternatingLstm(5, 3, num_layers=2)
    packed = pack_padded_sequence(padded([4, 2]).float(), [4, 2], batch_first=True)
    expected = module(packed)[0].data
    with torch.autocast("cpu", torch.bfloat16):
        outputs = module(packed)[0].data
    assert torch.equal(outputs, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_runs_in_half_precision(dtype):
    module = AlternatingLstm(5, 3, num_layers=2, recurrent_dropout_probability=0.2)
    packed = pack_padded_sequence(padded([4, 2]).to(dtype), [4, 2], batch_first=True)
    torch.manual_seed(0)
    expected = copy.deepcopy(module)(packed.to(torch.float32))[0].data
    torch.manual_seed(0)
    outputs = module.to(dtype)(packed)[0].data
    assert outputs.dtype == dtype
    torch.testing.assert_close(outputs.float(), expected, atol=0.02, rtol=0)


def test_wrong_inputs_are_named():
    module = AlternatingLstm(5, 3, num_layers=2)
    with pytest.raises(ConfigurationError, match="a PackedSequence is needed"):
        module(torch.zeros(1, 2, 5))
    packed = pack_padded_sequence(torch.zeros(1, 2, 5), [2], batch_first=True)
    with pytest.raises(ConfigurationError, match="has 3 layers, the encoder has 2"):
        module(packed, (torch.zeros(3, 1, 3), torch.zeros(3, 1, 3)))


def doubled(layer):
    layer.register_forward_hook(lambda m, i, out: 2 * out if torch.is_tensor(out) else None)


def own_forward(layer):
    forward = layer.forward
    layer.forward = lambda *inputs: forward(
        *(2 * one if torch.is_tensor(one) else one for one in inputs)
    )


def halved_state(layer):
    """For layers whose output is a pair."""
    layer.register_forward_hook(lambda m, i, out: (out[0], (0.5 * out[1][0], out[1][1])))


def no_memory(layer):
    layer.register_forward_hook(lambda m, i, out: (out[0], torch.zeros_like(out[1])))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("layer_0.cell.input_linearity", doubled),
        ("layer_1.cell.state_linearity", doubled),
        ("layer_1.cell.state_linearity", own_forward),
        ("layer_0.cell", no_memory),
        ("layer_1", halved_state),
    ],
)
def test_changed_layers_are_called(name, change):
    stock, ours = twins(StackedAlternatingLstm, AlternatingLstm, num_layers=2)
    before, *_ = run(ours, padded(LENGTHS), LENGTHS)
    for one in (stock, ours):
        change(one.get_submodule(name))
    found, expected = (run(one, padded(LENGTHS), LENGTHS) for one in (ours, stock))
    torch.testing.assert_close(found, expected, **EXACT)
    assert change is halved_state or not torch.allclose(found[0], before)


def test_layers_are_those_of_their_names():
    """A layer may stand at two places, and other modules beside the layers."""
    stock, ours = twins(StackedAlternatingLstm, AlternatingLstm, num_layers=4)
    for one in (stock, ours):
        one.lstm_layers = one.lstm_layers[:3]  # without the upper layer
        one.layer_2 = one.layer_1
        one.adapter = torch.nn.Linear(3, 3)
    found, expected = (run(one, padded(LENGTHS), LENGTHS)[:3] for one in (ours, stock))
    torch.testing.assert_close(found, expected, **EXACT)


@pytest.mark.parametrize("name", ["input_linearity", "state_linearity"])
@pytest.mark.parametrize("training", [True, False])
@each_reweighting
def test_computed_weights_follow_what_they_are_computed_from(name, training, reweight):
    """In training, a spectral norm iterates at each use."""
    stock, ours = twins(StackedAlternatingLstm, AlternatingLstm, num_layers=2)
    for one in (stock, ours):
        torch.manual_seed(3)
        reweight(one.layer_1.cell.get_submodule(name))
        one.train(training)
        optimizer = torch.optim.SGD(one.parameters(), lr=0.01)
        for _ in range(2):
            optimizer.zero_grad()
            packed = pack_padded_sequence(padded(LENGTHS), LENGTHS, batch_first=True)
            one(packed)[0].data.square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(
        run(ours, padded(LENGTHS), LENGTHS)[0], run(stock, padded(LENGTHS), LENGTHS)[0], **EXACT
    )
