"""Where ELMo stands in every task's model, what learns there, and what is said without it."""

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.data.token_indexers import ELMoTokenCharactersIndexer
from allennlp.models import Model

from tests.models.tasks import (
    EMBEDDING_DIM,
    KINDS,
    WORD_DIM,
    bcn,
    build,
    embedder,
    instances,
    placed,
    relu,
    tensors,
)

# The initializer of AllenNLP's esim.jsonnet and esim_elmo.jsonnet.
INITIALIZER = {
    "regexes": [
        [".*linear_layers.*weight", {"type": "xavier_uniform"}],
        [".*linear_layers.*bias", {"type": "constant", "val": 0}],
        [".*weight_ih.*", {"type": "xavier_uniform"}],
        [".*weight_hh.*", {"type": "orthogonal"}],
        [".*bias_ih.*", {"type": "constant", "val": 0}],
        [".*bias_hh.*", {"type": "lstm_hidden_bias"}],
    ]
}
# The layer that reads the input, the one whose output ELMo joins, and the one that reads both.
LAYERS = {
    "esim": ("_encoder", "_encoder", "_projection_feedforward"),
    "bcn": ("_pre_encode_feedforward", "_integrator", "_self_attentive_pooling_projection"),
    "crf_tagger": ("encoder", "encoder", "tag_projection_layer"),
    "srl": ("encoder", "encoder", "tag_projection_layer"),
}
PLACES = [(True, False), (False, True), (True, True)]
each_place = pytest.mark.parametrize(
    ("name", "at_input", "at_output"), [(name, *place) for name in KINDS for place in PLACES]
)


def run(model, params, chosen=slice(None)):
    return model(**tensors(model, instances(params)[chosen]))


@each_place
def test_elmo_stands_where_the_flags_say_and_its_mixes_learn(bilm, name, at_input, at_output):
    params = placed(name, bilm, at_input, at_output)
    params["elmo"]["state"] = "reset"
    model = build(params)
    calls = []
    for layer in LAYERS[name]:
        model.get_submodule(layer).register_forward_hook(
            lambda _, inputs, output, layer=layer: calls.append((layer, (inputs[0], output)))
        )
    batch = tensors(model, instances(params))
    model(**batch)["loss"].backward()
    tokens = batch["premise" if name == "esim" else "tokens"]
    mixes = model._elmo(tokens["elmo"]["elmo_tokens"])["elmo_representations"]
    first = dict(reversed(calls))  # the premise's, in ESIM
    inputs, encoded, both = (first[layer][part] for layer, part in zip(LAYERS[name], (0, 1, 0)))
    if at_input:
        torch.testing.assert_close(inputs[..., WORD_DIM:][..., :EMBEDDING_DIM], mixes[0])
    if at_output:
        joined = torch.cat([encoded, mixes[-1]], dim=-1)
        torch.testing.assert_close(both[..., : joined.size(-1)], joined)
    for parameter_name, parameter in model._elmo.named_parameters():
        if "scalar_mix" in parameter_name:
            assert parameter.grad.abs().sum() > 0, parameter_name
        else:
            assert parameter.grad is None, parameter_name


@each_place
def test_an_instance_alone_gets_what_it_gets_in_a_padded_batch(bilm, name, at_input, at_output):
    params = placed(name, bilm, at_input, at_output)
    params["elmo"]["state"] = "reset"
    model = build(params)
    (key,) = {"logits", "label_logits"} & run(model, params).keys()
    together = run(model, params)[key]
    for row, expected in enumerate(together):
        (alone,) = run(model, params, slice(row, row + 1))[key]
        if alone.dim() == 2:  # by token
            expected = expected[: len(alone)]
        torch.testing.assert_close(alone, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_without_gold_annotation_there_is_no_loss(name):
    params = KINDS[name]()
    model = build(params)
    batch = tensors(model, instances(params))
    for key in {"label", "tags", "metadata"} & batch.keys():
        del batch[key]
    output = model(**batch)
    assert "loss" not in output
    assert set(model.get_metrics().values()) == {0.0}
    readable = model.make_output_human_readable(dict(output))
    if "label" in readable:
        (key,) = {"label_logits", "logits"} & output.keys()
        best = output[key].argmax(dim=1).tolist()
        assert readable["label"] == [model.vocab.get_token_from_index(i, "labels") for i in best]
        assert all(sum(one.values()) == pytest.approx(1) for one in readable["probabilities"])


def test_the_shipped_initializer_leaves_the_bilm_alone(bilm):
    params = placed("esim", bilm, True, initializer=INITIALIZER)
    vocab = Vocabulary.from_instances(instances(params))
    model = Model.from_params(Params(params), vocab=vocab)
    expected = build(placed("esim", bilm, True))._elmo._elmo_lstm.state_dict()
    assert len(expected) > 20
    for name, value in model._elmo._elmo_lstm.state_dict().items():
        assert torch.equal(value, expected[name]), name
    forget_gate = model._encoder._module.bias_hh_l0[2:4]
    assert torch.equal(forget_gate, torch.ones(2))  # so that the initializer did run


def test_a_missing_indexer_is_named(bilm):
    model = build(placed("esim", bilm, True))
    with pytest.raises(ConfigurationError, match=r"\['tokens'\], expected one named 'elmo'"):
        run(model, KINDS["esim"]())


def test_elmo_is_needed_at_the_input_where_it_is_all(bilm):
    params = placed("bcn", bilm, False, True, text_field_embedder=embedder(words=False))
    params["pre_encode_feedforward"] = relu(0, 3)
    model = build(params)
    with pytest.raises(ConfigurationError, match="which is not used at the input"):
        run(model, params)


def test_in_bcn_an_elmo_indexer_without_elmo_is_idle():
    params = bcn()
    model = build(params)
    expected = run(model, params)["logits"]
    chosen = instances(params)
    for instance in chosen:
        instance["tokens"].token_indexers["elmo"] = ELMoTokenCharactersIndexer()
    assert torch.equal(model(**tensors(model, chosen))["logits"], expected)
