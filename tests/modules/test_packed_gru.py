import itertools

import pytest
import torch
from allennlp.common import Params
from allennlp.modules.seq2seq_encoders import Seq2SeqEncoder
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmo_plugin.modules.packed_gru import PackedGru, PackedGruSeq2SeqEncoder

EXACT = {"rtol": 0.0, "atol": 1e-10}
LENGTHS = [7, 4, 4, 1]
SIZES = {"input_size": 5, "hidden_size": 3, "batch_first": True, "bidirectional": True}


def twins(**arguments):
    """PyTorch's module and ours with the same random weights, in float64."""
    torch.manual_seed(13)
    stock, ours = (kind(**SIZES | arguments).double() for kind in (torch.nn.GRU, PackedGru))
    for parameter in stock.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    ours.load_state_dict(stock.state_dict())
    return stock, ours


def padded(lengths, seed=3):
    torch.manual_seed(seed)
    return torch.randn(len(lengths), max(lengths), 5, dtype=torch.float64)


def run(module, inputs, lengths, state=None):
    """Outputs, last states, and the gradients of inputs, initial states and weights."""
    inputs = inputs.clone().requires_grad_()
    state = None if state is None else state.clone().requires_grad_()
    packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    outputs, last = module(packed, state)
    outputs, _ = pad_packed_sequence(outputs, batch_first=True)
    torch.manual_seed(11)
    loss = (outputs * torch.randn_like(outputs)).sum() + (last * torch.randn_like(last)).sum()
    loss.backward()
    gradients = [parameter.grad for parameter in module.parameters()]
    module.zero_grad()
    grad_state = None if state is None else state.grad
    return outputs.detach(), last.detach(), inputs.grad, grad_state, gradients


@pytest.mark.parametrize(
    ("lengths", "with_state"),
    itertools.product([LENGTHS, [5, 5, 5], [1], [2, 5, 3]], [False, True]),
)
def test_equals_pytorch(lengths, with_state):
    stock, ours = twins()
    state = torch.randn(2, len(lengths), 3).double() if with_state else None
    torch.testing.assert_close(
        run(ours, padded(lengths), lengths, state), run(stock, padded(lengths), lengths, state),
        **EXACT,
    )  # fmt: skip


@pytest.mark.parametrize(
    "arguments", [{"num_layers": 2}, {"bidirectional": False}, {"bias": False}], ids=str
)
def test_what_it_does_not_do_is_pytorchs(arguments, monkeypatch):
    monkeypatch.delattr(PackedGru, "_both_directions")
    stock, ours = twins(**arguments)
    torch.testing.assert_close(
        run(ours, padded(LENGTHS), LENGTHS), run(stock, padded(LENGTHS), LENGTHS), **EXACT
    )
    assert torch.equal(ours(padded([4]))[0], stock(padded([4]))[0])


def test_autocast_runs_in_the_weights_precision():
    _, ours = twins()
    packed = pack_padded_sequence(padded([4, 2]).float(), [4, 2], batch_first=True)
    ours.float()
    expected = ours(packed)[0].data
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ours(packed)[0].data, expected)


def test_wrong_inputs_are_pytorchs_errors():
    _, ours = twins()
    packed = pack_padded_sequence(torch.zeros(1, 2, 4).double(), [2], batch_first=True)
    with pytest.raises(RuntimeError, match="Expected 5, got 4"):
        ours(packed)
    packed = pack_padded_sequence(torch.zeros(1, 2, 5).double(), [2], batch_first=True)
    with pytest.raises(RuntimeError, match=r"Expected hidden size \(2, 1, 3\)"):
        ours(packed, torch.zeros(1, 1, 3).double())


def test_configs_build_it_and_weights_are_those_of_allennlps_gru():
    sizes = {"input_size": 5, "hidden_size": 3, "bidirectional": True}
    stock, ours = (Seq2SeqEncoder.from_params(Params({"type": kind, **sizes}))
                   for kind in ("gru", "packed_gru"))  # fmt: skip
    assert type(ours) is PackedGruSeq2SeqEncoder
    assert (ours.get_input_dim(), ours.get_output_dim()) == (5, 6)
    assert ours.is_bidirectional()
    ours.load_state_dict(stock.state_dict())
    inputs, mask = torch.randn(3, 4, 5), torch.arange(4) < torch.tensor([[2], [4], [0]])
    torch.testing.assert_close(ours(inputs, mask), stock(inputs, mask))
