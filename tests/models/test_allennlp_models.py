"""The models compute what allennlp-models' do: stored outputs, and live in `make peers`."""

import json
from pathlib import Path

import pytest
import torch

from tests.cases import assert_close
from tests.models.tasks import NAMES, build, cases, losses, outputs, theirs, write_bilm

STORED = json.loads(Path(__file__).with_name("allennlp_models.json").read_text(encoding="utf-8"))


@pytest.fixture
def params(request, tmp_path):
    return cases(write_bilm(tmp_path))[request.param]


def all_of(params, classes=None):
    found = outputs(build(params, classes), params)
    return {**found, "losses": losses(build(params, classes), params)}


def assert_equal(found, expected):
    """Ours say more, such as the labels' probabilities by name."""
    assert_close({key: found[key] for key in expected}, expected, tolerance=1e-6)


@pytest.mark.parametrize(("params", "name"), [(name, name) for name in NAMES], indirect=["params"])
def test_equals_the_stored_outputs_of_allennlp_models(params, name):
    assert_equal(all_of(params), STORED[name])


@pytest.mark.peers
@pytest.mark.parametrize("params", NAMES, indirect=True)
def test_equals_allennlp_models_and_weights_move_both_ways(params):
    pytest.importorskip("allennlp_models")
    assert_equal(all_of(params), all_of(params, theirs()))
    ours, peer = build(params), build(params, theirs())
    for parameter in peer.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter)
    ours.load_state_dict(peer.state_dict())
    assert_equal(outputs(ours, params), outputs(peer, params))
    peer.load_state_dict(ours.state_dict())
