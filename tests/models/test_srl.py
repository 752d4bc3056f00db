import json
import math
from pathlib import Path

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from classifier_cases import EMBEDDING_DIM
from srl_cases import CASES, batch, build, outputs

from elmo_plugin.models.srl import SemanticRoleLabeler
from tests.cases import assert_close
from tests.models.batches import losses

STORED = json.loads(Path(__file__).with_name("srl_cases.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_equals_the_stored_outputs_of_allennlp_models(name):
    expected = dict(STORED[name])
    model = build(SemanticRoleLabeler, CASES[name])
    assert losses(model, batch(model)) == pytest.approx(expected.pop("losses"), rel=1e-5)
    assert_close(outputs(build(SemanticRoleLabeler, CASES[name])), expected, tolerance=1e-6)


@pytest.mark.peers
@pytest.mark.parametrize("name", CASES)
def test_equals_allennlp_models_and_weights_move_both_ways(name):
    stock = pytest.importorskip("allennlp_models.structured_prediction").SemanticRoleLabeler
    ours, theirs = build(SemanticRoleLabeler, CASES[name]), build(stock, CASES[name])
    found, expected = (losses(model, batch(model)) for model in (ours, theirs))
    assert found == pytest.approx(expected, rel=1e-5)
    theirs.load_state_dict(ours.state_dict())
    assert_close(outputs(ours), outputs(theirs), tolerance=1e-6)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    assert_close(outputs(ours), outputs(theirs), tolerance=1e-6)


def test_decoding_by_hand():
    # Token by token I-ARG0 is the most probable; it may stand behind B-ARG0 alone.
    model = build(SemanticRoleLabeler, {})
    index = model.vocab.get_token_to_index_vocabulary("labels")
    probabilities = torch.full((1, 3, len(index)), 0.01)
    for position, (tag, probability) in enumerate([("I-ARG0", 0.5), ("I-ARG0", 0.5), ("O", 0.6)]):
        probabilities[0, position, index[tag]] = probability
    probabilities[0, 0, index["B-ARG1"]] = 0.3
    probabilities[0, 0, index["B-ARG0"]] = 0.2
    mask = torch.tensor([[True, True, True]])
    output = {"class_probabilities": probabilities, "mask": mask}
    # B-ARG0 I-ARG0: 0.2 + 0.5; B-ARG1 and what may follow it: 0.3 + 0.01.
    assert model.make_output_human_readable(output)["tags"] == [["B-ARG0", "I-ARG0", "O"]]
    # Sums of probabilities, as AllenNLP has it, not of logarithms: 0.5 + 0.11 is more than
    # 0.3 + 0.3, and 0.5 x 0.11 less than 0.3 x 0.3.
    probabilities[0] = 0.01
    probabilities[0, 0, index["B-ARG0"]] = 0.5
    probabilities[0, 0, index["B-ARG1"]] = 0.3
    probabilities[0, 1, index["I-ARG0"]] = 0.11
    probabilities[0, 1, index["I-ARG1"]] = 0.3
    probabilities[0, 2, index["O"]] = 0.9
    assert model.make_output_human_readable(output)["tags"] == [["B-ARG0", "I-ARG0", "O"]]


def test_decoded_tags_are_always_well_formed():
    model = build(SemanticRoleLabeler, {})
    torch.manual_seed(0)
    probabilities = torch.rand(30, 12, model.num_classes).softmax(-1)
    output = {"class_probabilities": probabilities, "mask": torch.ones(30, 12).bool()}
    for tags in model.make_output_human_readable(output)["tags"]:
        for before, tag in zip(["O", *tags], tags, strict=False):
            assert tag[0] != "I" or before[2:] == tag[2:]


def test_loss_is_the_cross_entropy_of_real_tokens():
    model = build(SemanticRoleLabeler, {}).eval()
    tensors = batch(model)
    output = model(**tensors)
    chosen = -output["logits"].log_softmax(-1).gather(-1, tensors["tags"].unsqueeze(-1)).squeeze(-1)
    mask = output["mask"].float()
    per_sentence = (chosen * mask).sum(1) / (mask.sum(1) + 1e-13)
    assert output["loss"].item() == pytest.approx(per_sentence.mean().item(), rel=1e-6)


def test_a_perfect_prediction_scores_one():
    model = build(SemanticRoleLabeler, {}).eval()
    tensors = batch(model)
    right = torch.nn.functional.one_hot(tensors["tags"], model.num_classes).float()
    model._score(
        {"class_probabilities": right, "mask": tensors["tokens"]["tokens"]["tokens"] != 0},
        tensors["metadata"],
    )
    assert model.get_metrics(reset=True) == {
        "precision-overall": 1.0,
        "recall-overall": 1.0,
        "f1-measure-overall": 1.0,
    }
    assert model.get_metrics()["f1-measure-overall"] == 0.0


def test_training_does_not_score_and_metadata_is_not_needed_to_predict():
    model = build(SemanticRoleLabeler, {}).train()
    model(**batch(model))
    assert model.get_metrics()["recall-overall"] == 0.0
    assert not model.span_metric._missed
    model.eval()
    tensors = batch(model)
    output = model(tensors["tokens"], tensors["verb_indicator"])
    assert "loss" not in output
    assert "words" not in output


def test_without_script_asking_for_a_score_is_an_error():
    model = build(SemanticRoleLabeler, {"srl_eval_path": None}).eval()
    model(**batch(model))
    with pytest.raises(ConfigurationError, match="srl_eval_path: null and ignore_span_metric"):
        model.get_metrics()
    assert build(SemanticRoleLabeler, {"ignore_span_metric": True}).get_metrics() == {}


PLACEMENTS = [
    (1, {"use_input_elmo": True}),
    (1, {"use_output_elmo": True}),
    (2, {"use_input_elmo": True, "use_output_elmo": True}),
]


def placed(bilm, number, flags):
    return {
        "input_dim": 7 + EMBEDDING_DIM * flags.get("use_input_elmo", False),
        "elmo": {**bilm, "state": "reset", "num_output_representations": number, "dropout": 0.0},
        **flags,
    }


@pytest.mark.parametrize(("number", "flags"), PLACEMENTS)
def test_every_placement_learns_and_scores(bilm, number, flags):
    model = build(SemanticRoleLabeler, placed(bilm, number, flags), elmo=True)
    model(**batch(model, elmo=True))["loss"].backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    for index in range(number):
        assert gradients[f"_elmo.scalar_mix_{index}.gamma"].abs() > 0
    assert all((gradient is None) == ("_elmo_lstm" in name) for name, gradient in gradients.items())
    model.eval()
    model(**batch(model, elmo=True))
    assert math.isfinite(model.get_metrics()["f1-measure-overall"])


def test_elmo_at_the_output_is_projected_beside_the_encoding(bilm):
    flags = {"use_output_elmo": True}
    plain = build(SemanticRoleLabeler, {}).float().eval()
    model = build(SemanticRoleLabeler, placed(bilm, 1, flags), elmo=True).eval()
    weights = model.state_dict()
    for name, weight in plain.state_dict().items():
        weights[name] = weight
    extra = torch.randn(model.num_classes, EMBEDDING_DIM)
    name = "tag_projection_layer._module.weight"
    weights[name] = torch.cat([plain.state_dict()[name], extra], dim=1)
    model.load_state_dict(weights)
    tensors = batch(model, elmo=True)
    (elmo,) = model._elmo(tensors["tokens"]["elmo"]["elmo_tokens"])["elmo_representations"]
    found = model(**tensors)["logits"]
    expected = plain(**batch(plain))["logits"] + elmo @ extra.t()
    mask = tensors["tokens"]["tokens"]["tokens"] != 0
    torch.testing.assert_close(found[mask], expected[mask])
