import numpy as np
import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.modules import Seq2SeqEncoder

from elmo_plugin.modules.coupled_lstm import CoupledLstm
from tests.models import numpy_coref

LENGTHS = [4, 1, 7]


def lstm(**arguments):
    torch.manual_seed(1)
    encoder = CoupledLstm(5, 3, **arguments).double()
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter)
    return encoder


def batch():
    torch.manual_seed(2)
    inputs = torch.randn(3, 7, 5, dtype=torch.float64)
    return inputs, torch.arange(7) < torch.tensor(LENGTHS).unsqueeze(1)


def test_equals_the_reference_with_padding():
    encoder = lstm()
    inputs, mask = batch()
    outputs = encoder(inputs, mask).detach().numpy()
    weights = {name: tensor.numpy() for name, tensor in encoder.state_dict().items()}
    for rows, found, length in zip(inputs.numpy(), outputs, LENGTHS):
        rows = rows[:length]
        forward = numpy_coref.coupled_lstm(rows, weights, "forward_direction")
        backward = numpy_coref.coupled_lstm(rows[::-1], weights, "backward_direction")[::-1]
        np.testing.assert_allclose(found[:length], np.hstack([forward, backward]), atol=1e-12)
        assert not found[length:].any()


def test_without_a_mask_all_tokens_are_real():
    encoder = lstm()
    inputs, _ = batch()
    assert torch.equal(encoder(inputs), encoder(inputs, torch.ones(3, 7, dtype=torch.bool)))


def test_one_dropout_mask_a_sequence(monkeypatch):
    """With the state's share in the gates cut off by dropout, each token is by itself."""
    encoder = lstm(recurrent_dropout=0.999999).train()
    inputs, mask = batch()
    for direction in (encoder.forward_direction, encoder.backward_direction):
        torch.nn.init.zeros_(direction.input_linearity.weight[:3])
    found = encoder(inputs, mask)
    for direction in (encoder.forward_direction, encoder.backward_direction):
        torch.nn.init.zeros_(direction.state_linearity.weight)
    assert torch.equal(encoder.eval()(inputs, mask), found)
    # Of half of the state: the mask that is drawn, in the reference.
    encoder = lstm(recurrent_dropout=0.5).train()
    drawn, dropout = [], torch.nn.functional.dropout

    def draw(*arguments):
        drawn.append(dropout(*arguments))
        return drawn[-1]

    monkeypatch.setattr(torch.nn.functional, "dropout", draw)
    encoder(inputs, mask)
    assert [tuple(one.shape) for one in drawn] == [(3, 3), (3, 3)]  # one a direction


def test_each_gate_starts_orthonormal():
    for direction in CoupledLstm(5, 3).children():
        both = torch.cat([direction.input_linearity.weight, direction.state_linearity.weight], 1)
        for gate in both.chunk(3):
            torch.testing.assert_close(gate @ gate.t(), torch.eye(3), atol=1e-6, rtol=0)
        assert not direction.input_linearity.bias.any()


def test_from_params_and_dimensions():
    params = {"type": "coupled_lstm", "input_size": 5, "hidden_size": 3}
    encoder = Seq2SeqEncoder.from_params(Params(params))
    assert (encoder.get_input_dim(), encoder.get_output_dim()) == (5, 6)
    assert encoder.is_bidirectional()
    with pytest.raises(ConfigurationError, match=r"recurrent_dropout 1\.0"):
        CoupledLstm(5, 3, 1.0)
