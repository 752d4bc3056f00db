"""TF-Hub's inputs and outputs."""

import numpy
import pytest
import torch

from elmo_plugin.bilm.use.embedder import ElmoEmbedder
from elmo_plugin.bilm.use.hub import ElmoHub

STRINGS = ["the cat sat", "dogs  bark at the moon ", "", "Yes"]
TOKENS = [string.split() for string in STRINGS]
LENGTHS = [3, 5, 0, 1]
PADDED = [tokens + [""] * (5 - len(tokens)) for tokens in TOKENS]


@pytest.fixture(scope="module")
def hub(files):
    return ElmoHub(*files).eval()


def test_strings_and_padded_tokens_give_the_same(hub):
    from_strings = hub(STRINGS)
    assert {name: tuple(value.shape) for name, value in from_strings.items()} == {
        "word_emb": (4, 5, 6),
        "lstm_outputs1": (4, 5, 12),
        "lstm_outputs2": (4, 5, 12),
        "elmo": (4, 5, 12),
        "default": (4, 12),
    }
    for from_tokens in (
        hub(PADDED, LENGTHS),
        hub(PADDED, torch.tensor(LENGTHS, dtype=torch.int32)),
        hub(TOKENS),
    ):
        for name, value in from_strings.items():
            assert torch.equal(from_tokens[name], value)


def test_outputs_are_the_layers_their_mix_and_its_mean(hub, files):
    with torch.no_grad():
        for index, value in enumerate((0.3, -1.0, 0.5)):
            hub.mix.scalar_parameters[index].fill_(value)
        hub.mix.gamma.fill_(1.5)
        outputs = {name: value.numpy() for name, value in hub(STRINGS).items()}
        for parameter in hub.mix.scalar_parameters:
            parameter.fill_(0)
        hub.mix.gamma.fill_(1)
    weights = numpy.exp([0.3, -1.0, 0.5])
    weights = 1.5 * weights / weights.sum()
    for row, vectors in enumerate(ElmoEmbedder(*files).embed_batch(TOKENS)):
        length = LENGTHS[row]
        mixed = sum(weight * layer for weight, layer in zip(weights, vectors))
        for name, expected in (
            ("word_emb", vectors[0][:, :6]),
            ("lstm_outputs1", vectors[1]),
            ("lstm_outputs2", vectors[2]),
            ("elmo", mixed),
        ):
            numpy.testing.assert_allclose(outputs[name][row, :length], expected, atol=1e-6)
            assert not outputs[name][row, length:].any()
        mean = mixed.mean(axis=0) if length else numpy.zeros(12)
        numpy.testing.assert_allclose(outputs["default"][row], mean, atol=1e-6)


def trainable(module):
    return {name for name, parameter in module.named_parameters() if parameter.requires_grad}


def test_four_scalars_train_and_the_lstm_if_asked(files):
    scalars = {"mix.gamma", *(f"mix.scalar_parameters.{index}" for index in range(3))}
    hub = ElmoHub(*files)
    assert trainable(hub) == scalars
    assert sum(p.numel() for p in hub.parameters() if p.requires_grad) == 4
    hub = ElmoHub(*files, train_lstm=True)
    lstm = {name for name, _ in hub.named_parameters() if name.startswith("bilm._elmo_lstm.")}
    assert trainable(hub) == scalars | lstm
    optimizer = torch.optim.SGD([p for p in hub.parameters() if p.requires_grad], lr=0.1)
    before = {name: value.clone() for name, value in hub.state_dict().items()}
    hub(STRINGS)["default"].square().sum().backward()
    optimizer.step()
    moved = {
        name for name, value in hub.state_dict().items() if not torch.equal(value, before[name])
    }
    assert moved == scalars | lstm


def test_calls_as_tf_hubs(hub):
    expected = hub(STRINGS)
    tokens = {"tokens": PADDED, "sequence_len": LENGTHS}
    for found in (
        hub(STRINGS, signature="default", as_dict=True),
        hub({"strings": STRINGS}, signature="default", as_dict=True),
        hub(inputs=tokens, signature="tokens", as_dict=True),
        hub(tokens, signature="tokens"),
    ):
        assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert torch.equal(hub(STRINGS, as_dict=False), expected["default"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["the cat"], "sentences is the string 'the cat', expected a list of strings"),
        ([STRINGS, LENGTHS], "sequence_len was given with strings"),
        ([["a b", ["c", "d"]]], "strings and lists of tokens, expected all of one kind"),
        ([PADDED, [1, 2]], "sequence_len has 2 numbers, expected 4"),
        ([PADDED, [3, 6, 0, 1]], "sequence_len has 6 for 5 tokens, expected 0 to 5"),
        (
            [None, None, None, True, {"words": []}],
            r"inputs has the keys \['words'\], expected strings, or",
        ),
        ([STRINGS, None, "words"], "signature is 'words', expected one of"),
        ([STRINGS, None, "tokens"], "'tokens' was given with the other kind"),
        ([TOKENS, None, "default"], "'default' was given with the other kind"),
        ([], "neither sentences nor inputs are given, expected one of them"),
    ],
)
def test_wrong_calls(hub, arguments, message):
    with pytest.raises(ValueError, match=message):
        hub(*arguments)
