"""What the classifiers ESIM and BCN have in common: where ELMo goes, and what they predict."""

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.data.token_indexers import ELMoTokenCharactersIndexer
from allennlp.models import Model
from allennlp.predictors import Predictor
from classifier_cases import (
    EMBEDDING_DIM,
    bcn,
    build,
    embedder,
    esim,
    instances,
    lstm,
    relu,
)

from elmo_plugin import compat
from elmo_plugin.data.readers.snli import SnliReader
from elmo_plugin.data.readers.sst_tokens import StanfordSentimentTreeBankDatasetReader
from elmo_plugin.models.bcn import BiattentiveClassificationNetwork
from elmo_plugin.models.esim import ESIM
from elmo_plugin.predictors.textual_entailment import TextualEntailmentPredictor  # noqa: F401
from tests.models.batches import tensors

MODELS = {"esim": ESIM, "bcn": BiattentiveClassificationNetwork}
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
# Both places of ELMo in each model, and the key of its probabilities.
INPUT, OUTPUT = "use_input_elmo", {"esim": "use_output_elmo", "bcn": "use_integrator_output_elmo"}
PROBABILITIES = {"esim": "label_probs", "bcn": "class_probabilities"}
PLACEMENTS = [
    (name, flags)
    for name, output in OUTPUT.items()
    for flags in ({INPUT: True}, {output: True}, {INPUT: True, output: True})
]


def placed(bilm, name, **arguments):
    """A model with word embeddings, and ELMo where the flags among its arguments say."""
    at_input, at_output = (arguments.get(flag, False) for flag in (INPUT, OUTPUT[name]))
    elmo = {**bilm, "num_output_representations": at_input + at_output, "dropout": 0.0}
    sizes = 5 + EMBEDDING_DIM * at_input, 4 + EMBEDDING_DIM * at_output
    return (esim if name == "esim" else bcn)(*sizes, elmo=elmo, **arguments)


def run(model, params, chosen=slice(None)):
    return model(**tensors(model, instances(params, type(model))[chosen]))


@pytest.mark.parametrize(("name", "flags"), PLACEMENTS)
def test_every_mix_learns_and_the_bilm_stays(bilm, name, flags):
    params = placed(bilm, name, **flags)
    model = build(MODELS, params)
    run(model, params)["loss"].backward()
    for parameter_name, parameter in model._elmo.named_parameters():
        if "scalar_mix" in parameter_name:
            assert parameter.grad.abs().sum() > 0, parameter_name
        else:
            assert parameter.grad is None, parameter_name


@pytest.mark.parametrize(("name", "flags"), PLACEMENTS)
def test_an_instance_alone_gets_what_it_gets_in_a_padded_batch(bilm, name, flags):
    params = placed(bilm, name, **flags)
    params["elmo"]["state"] = "reset"
    model = build(MODELS, params)
    together = run(model, params)[PROBABILITIES[name]]
    alone = [run(model, params, slice(i, i + 1))[PROBABILITIES[name]] for i in range(len(together))]
    torch.testing.assert_close(torch.cat(alone), together, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("params", [esim(), bcn()], ids=MODELS)
def test_without_a_label_there_is_no_loss(params):
    model = build(MODELS, params)
    batch = tensors(model, instances(params, type(model)))
    del batch["label"]
    output = model(**batch)
    assert "loss" not in output
    assert model.get_metrics()["accuracy"] == 0.0
    readable = model.make_output_human_readable(output)
    labels = readable["label"]
    assert [next(iter(named)) for named in readable["probabilities"]] == labels
    assert all(sum(named.values()) == pytest.approx(1) for named in readable["probabilities"])
    best = output[PROBABILITIES[params["type"]]].argmax(dim=1).tolist()
    assert labels == [model.vocab.get_token_from_index(i, "labels") for i in best]


def test_esim_predicts_from_json_without_a_spacy_model():
    compat.repair()
    predictor = Predictor.by_name(ESIM.default_predictor)(build(MODELS, esim()), SnliReader())
    found = predictor.predict_json({"premise": "Two dogs run.", "hypothesis": "It rains."})
    assert found["label"] in ("entailment", "neutral", "contradiction")
    assert sum(found["label_probs"]) == pytest.approx(1.0)
    assert predictor.predict("Two dogs run.", "It rains.") == found


def test_bcn_predicts_from_json_without_a_spacy_model():
    compat.repair()
    predictor = Predictor.by_name(BiattentiveClassificationNetwork.default_predictor)(
        build(MODELS, bcn()), StanfordSentimentTreeBankDatasetReader()
    )
    found = predictor.predict_json({"sentence": "The walk was long, but splendid."})
    assert found["label"] in "01234"
    assert sum(found["class_probabilities"]) == pytest.approx(1.0)


def test_esim_elmo_at_the_input_is_elmo_in_the_embedder(bilm):
    in_embedder = esim(
        EMBEDDING_DIM, text_field_embedder=embedder(words=False, elmo={**bilm, "dropout": 0.0})
    )
    in_model = placed(bilm, "esim", use_input_elmo=True)
    in_model["encoder"] = lstm(EMBEDDING_DIM)
    in_model["text_field_embedder"] = embedder(words=False)
    expected, found = build(MODELS, in_embedder), build(MODELS, in_model)
    prefix = "_text_field_embedder.token_embedder_elmo._elmo."
    weights = expected.state_dict()
    found.load_state_dict({name.replace(prefix, "_elmo."): weights[name] for name in weights})
    torch.testing.assert_close(
        run(found, in_model)["label_logits"], run(expected, in_embedder)["label_logits"]
    )


def test_esim_elmo_at_the_output_joins_the_encoding(bilm):
    plain, params = esim(), placed(bilm, "esim", use_output_elmo=True)
    expected, found = build(MODELS, plain), build(MODELS, params)
    name = "_projection_feedforward._linear_layers.0.weight"
    weights = {n: v for n, v in found.state_dict().items() if n.startswith("_elmo.")}
    weights.update(expected.state_dict())
    # Four parts, each the encoding and then ELMo: the columns of ELMo do not matter if it is 0.
    parts = expected.state_dict()[name].split(4, dim=1)
    noise = torch.full((3, EMBEDDING_DIM), 7.0)
    weights[name] = torch.cat([torch.cat([part, noise], dim=1) for part in parts], dim=1)
    weights["_elmo.scalar_mix_0.gamma"] = torch.zeros(1)
    found.load_state_dict(weights)
    logits = run(expected, plain)["label_logits"]
    torch.testing.assert_close(run(found, params)["label_logits"], logits)
    found._elmo.scalar_mix_0.gamma.data.fill_(1.0)
    assert not torch.allclose(run(found, params)["label_logits"], logits, atol=1e-3)


def test_in_esim_the_first_mix_is_the_inputs_and_the_second_the_outputs(bilm):
    params = placed(bilm, "esim", use_input_elmo=True, use_output_elmo=True)
    model = build(MODELS, params)
    seen = {}
    model._encoder.register_forward_hook(lambda m, inputs, output: seen.update(x=inputs[0]))
    model._elmo.scalar_mix_0.gamma.data.zero_()
    run(model, params)
    assert torch.equal(seen["x"][:, :, 5:], torch.zeros_like(seen["x"][:, :, 5:]))


def test_in_esim_the_shipped_initializer_leaves_the_bilm_alone(bilm):
    params = placed(bilm, "esim", use_input_elmo=True, initializer=INITIALIZER)
    vocab = Vocabulary.from_instances(instances(params, ESIM))
    model = Model.from_params(Params(params), vocab=vocab)
    bilm_weights = build(
        MODELS, placed(bilm, "esim", use_input_elmo=True)
    )._elmo._elmo_lstm.state_dict()
    assert len(bilm_weights) > 20
    for name, value in model._elmo._elmo_lstm.state_dict().items():
        assert torch.equal(value, bilm_weights[name]), name
    forget_gate = model._encoder._module.bias_hh_l0[2:4]
    assert torch.equal(forget_gate, torch.ones(2))  # so that the initializer did run


def test_in_esim_a_missing_indexer_is_named(bilm):
    model = build(MODELS, placed(bilm, "esim", use_input_elmo=True))
    with pytest.raises(ConfigurationError, match=r"\['tokens'\], expected one named 'elmo'"):
        run(model, esim())


def test_esim_attention_dropout_reaches_the_projection_in_training_only():
    params = esim(dropout=0.0, attention_dropout=0.5)
    model = build(MODELS, params)
    seen = []
    model._projection_feedforward.register_forward_hook(lambda m, inputs, o: seen.append(inputs[0]))
    run(model, params)
    run(model.train(), params)
    whole, dropped = seen[0], seen[2]
    gone = dropped == 0
    assert 0.3 < gone.float().mean() < 0.7
    torch.testing.assert_close(dropped[~gone], 2 * whole[~gone])


def test_bcn_pools_by_hand():
    model = build(MODELS, bcn())
    projection = model._self_attentive_pooling_projection
    projection.weight.data.copy_(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    projection.bias.data.zero_()
    first, second = [0.0, -2.0, 1.0, 5.0], [0.0, 4.0, 1.0, -5.0]
    padding = [9.0, 9.0, -9.0, 99.0]
    pooled = model._pool(
        torch.tensor([[first, second, padding]]), torch.tensor([[True, True, False]])
    )
    maximum, minimum = [0.0, 4.0, 1.0, 5.0], [0.0, -2.0, 1.0, -5.0]
    mean = [0.0, 1.0, 1.0, 0.0]
    torch.testing.assert_close(pooled, torch.tensor([maximum + minimum + mean + mean]))


def test_an_elmo_indexer_without_elmo_is_idle():
    params = bcn()
    model = build(MODELS, params)
    expected = run(model, params)["logits"]
    chosen = instances(params, BiattentiveClassificationNetwork)
    for instance in chosen:
        instance["tokens"].token_indexers["elmo"] = ELMoTokenCharactersIndexer()
    assert torch.equal(model(**tensors(model, chosen))["logits"], expected)


def test_bcn_needs_elmo_at_the_input_where_it_is_all(bilm):
    params = placed(bilm, "bcn", use_integrator_output_elmo=True)
    params["text_field_embedder"] = embedder(words=False)
    params["pre_encode_feedforward"] = relu(0, 3)
    model = build(MODELS, params)
    with pytest.raises(ConfigurationError, match="which is not used at the input"):
        run(model, params)
