"""`esim` and `bcn` compute what allennlp-models do: stored outputs, and live in `make peers`."""

import json
from pathlib import Path

import pytest
import torch
from classifier_cases import NAMES, build, cases, instances, outputs, write_bilm

from elmo_plugin.models.bcn import BiattentiveClassificationNetwork
from elmo_plugin.models.esim import ESIM
from tests.cases import assert_close
from tests.models.batches import losses, tensors

STORED = json.loads(Path(__file__).with_name("classifier_cases.json").read_text(encoding="utf-8"))
OURS = {"esim": ESIM, "bcn": BiattentiveClassificationNetwork}


@pytest.fixture
def params(request, tmp_path):
    return cases(write_bilm(tmp_path))[request.param]


def theirs():
    classification = pytest.importorskip("allennlp_models.classification")
    pairs = pytest.importorskip("allennlp_models.pair_classification")
    return {"esim": pairs.ESIM, "bcn": classification.BiattentiveClassificationNetwork}


@pytest.mark.parametrize(("params", "name"), [(name, name) for name in NAMES], indirect=["params"])
def test_equals_the_stored_outputs_of_allennlp_models(params, name):
    assert_close(outputs(build(OURS, params), params), STORED[name])


@pytest.mark.peers
@pytest.mark.parametrize("params", NAMES, indirect=True)
def test_equals_allennlp_models_and_weights_move_both_ways(params):
    # In float64: of weights drawn anew in each run, float32's rounding alone can pass 1e-5.
    ours, peer = build(OURS, params).double(), build(theirs(), params).double()
    for parameter in peer.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter)
    ours.load_state_dict(peer.state_dict())
    assert_close(outputs(ours, params), outputs(peer, params))
    peer.load_state_dict(ours.state_dict())


@pytest.mark.peers
@pytest.mark.parametrize("params", NAMES, indirect=True)
def test_trains_as_allennlp_models_does(params):
    found, expected = (
        losses(model, tensors(model, instances(params, type(model))))
        for model in (build(OURS, params), build(theirs(), params))
    )
    assert found == pytest.approx(expected, rel=1e-5)
    assert len({round(loss, 3) for loss in expected}) == 3
