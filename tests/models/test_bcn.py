import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data.token_indexers import ELMoTokenCharactersIndexer
from allennlp.predictors import Predictor
from classifier_cases import (
    EMBEDDING_DIM,
    bcn,
    build,
    embedder,
    instances,
    lstm,
    relu,
    tensors,
    write_bilm,
)

from elmo_plugin import compat
from elmo_plugin.data.readers.sst_tokens import StanfordSentimentTreeBankDatasetReader
from elmo_plugin.models.bcn import BiattentiveClassificationNetwork

MODELS = {"bcn": BiattentiveClassificationNetwork}
PLACEMENTS = [
    (1, {"use_input_elmo": True}),
    (1, {"use_integrator_output_elmo": True}),
    (2, {"use_input_elmo": True, "use_integrator_output_elmo": True}),
]


@pytest.fixture
def bilm(tmp_path):
    return write_bilm(tmp_path)


def placed(bilm, number, **flags):
    """BCN with word embeddings and ELMo where the flags say."""
    return bcn(
        input_dim=5 + EMBEDDING_DIM * flags.get("use_input_elmo", False),
        integrated_dim=4 + EMBEDDING_DIM * flags.get("use_integrator_output_elmo", False),
        elmo={**bilm, "num_output_representations": number, "dropout": 0.0},
        **flags,
    )


def run(model, params, chosen=slice(None)):
    return model(**tensors(model, instances(params, type(model))[chosen]))


def test_pools_by_hand():
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


@pytest.mark.parametrize(("number", "flags"), PLACEMENTS)
def test_every_mix_learns_and_the_bilm_stays(bilm, number, flags):
    params = placed(bilm, number, **flags)
    model = build(MODELS, params)
    run(model, params)["loss"].backward()
    for name, parameter in model._elmo.named_parameters():
        if "scalar_mix" in name:
            assert parameter.grad.abs().sum() > 0, name
        else:
            assert parameter.grad is None, name


@pytest.mark.parametrize(("number", "flags"), PLACEMENTS)
def test_a_text_alone_gets_what_it_gets_in_a_padded_batch(bilm, number, flags):
    params = placed(bilm, number, **flags)
    params["elmo"]["state"] = "reset"
    model = build(MODELS, params)
    together = run(model, params)["class_probabilities"]
    alone = [
        run(model, params, slice(i, i + 1))["class_probabilities"] for i in range(len(together))
    ]
    torch.testing.assert_close(torch.cat(alone), together, rtol=1e-5, atol=1e-6)


def test_an_elmo_indexer_without_elmo_is_idle():
    params = bcn()
    model = build(MODELS, params)
    expected = run(model, params)["logits"]
    chosen = instances(params, BiattentiveClassificationNetwork)
    for instance in chosen:
        instance["tokens"].token_indexers["elmo"] = ELMoTokenCharactersIndexer()
    assert torch.equal(model(**tensors(model, chosen))["logits"], expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"elmo": None}, "use_input_elmo: true.* without elmo"),
        ({"use_input_elmo": False}, "found elmo and .*expected at least one of them true"),
        ({"use_integrator_output_elmo": True}, "num_output_representations: 1 .* 2"),
        ({"pre_encode_feedforward": relu(5, 3)}, "pre_encode_feedforward input dim, .* 11 and 5"),
        ({"encoder": lstm(4)}, "encoder input dim, but got 3 and 4"),
        ({"integrator": lstm(4)}, "integrator input dim, but got 12 and 4"),
        ({"output_layer": relu(8, 5)}, "output_layer input dim, but got 16 and 8"),
        ({"output_layer": relu(16, 3)}, "number of labels, but got 3 and 5"),
    ],
)
def test_what_does_not_fit_is_named(bilm, change, message):
    params = {**placed(bilm, 1, use_input_elmo=True), **change}
    if params["elmo"] is None:
        del params["elmo"]
    with pytest.raises(ConfigurationError, match=message):
        build(MODELS, params)


def test_elmo_in_both_places_is_refused(bilm):
    params = placed(bilm, 1, use_input_elmo=True)
    params["text_field_embedder"] = embedder(elmo={**bilm, "dropout": 0.0})
    with pytest.raises(ConfigurationError, match="'elmo' in text_field_embedder"):
        build(MODELS, params)


def test_elmo_alone_must_be_at_the_input(bilm):
    params = placed(bilm, 1, use_integrator_output_elmo=True)
    params["text_field_embedder"] = embedder(words=False)
    params["pre_encode_feedforward"] = relu(0, 3)
    model = build(MODELS, params)
    with pytest.raises(ConfigurationError, match="which is not used at the input"):
        run(model, params)


def test_without_a_label_there_is_no_loss():
    params = bcn()
    model = build(MODELS, params)
    batch = tensors(model, instances(params, type(model)))
    del batch["label"]
    output = model(**batch)
    assert "loss" not in output
    labels = model.make_output_human_readable(output)["label"]
    best = output["class_probabilities"].argmax(dim=1).tolist()
    assert labels == [model.vocab.get_token_from_index(i, "labels") for i in best]


def test_predicts_from_json_without_a_spacy_model():
    compat.repair()
    model = build(MODELS, bcn())
    predictor = Predictor.by_name(BiattentiveClassificationNetwork.default_predictor)(
        model, StanfordSentimentTreeBankDatasetReader()
    )
    found = predictor.predict_json({"sentence": "The walk was long, but splendid."})
    assert found["label"] in "01234"
    assert sum(found["class_probabilities"]) == pytest.approx(1.0)
