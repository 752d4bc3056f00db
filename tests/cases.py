"""Cases that several tests share, which of them are quick, and checks of results and errors."""

import re

import pytest
import torch
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm, weight_norm


def first_quick(names, cases, count=1, **more):
    """
    Like `pytest.mark.parametrize`, which gets `more`, but every case after the first `count` has
    the mark `slow`. These are further cases of the same behaviour.
    """
    values = [
        pytest.param(
            *((case,) if isinstance(names, str) else case),
            marks=[pytest.mark.slow] * (number >= count),
        )
        for number, case in enumerate(cases)
    ]
    return pytest.mark.parametrize(names, values, **more)


class Fading(torch.nn.Module):
    """Parametrization that gives another weight at each use, as one with noise does."""

    uses = 0

    def forward(self, weight):
        self.uses += 1
        return weight * 0.97**self.uses


class Scale(torch.nn.Module):
    """Parametrization whose factor is no tensor."""

    def __init__(self, factor=0.5):
        super().__init__()
        self.factor = factor

    def forward(self, weight):
        return self.factor * weight


# Functions that make a layer compute its weight from others.
REWEIGHTINGS = {
    "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
    "weight norm": weight_norm,
    "new weight norm": parametrizations.weight_norm,
    "spectral norm": spectral_norm,
    "new spectral norm": parametrizations.spectral_norm,
    "parametrized": lambda layer: parametrize.register_parametrization(layer, "weight", Scale()),
    "another at each use": lambda layer: parametrize.register_parametrization(
        layer, "weight", Fading()
    ),
}


def each_reweighting(test):
    """Run with some of `REWEIGHTINGS`."""
    names = "pruned", "weight norm", "spectral norm", "new spectral norm", "another at each use"
    cases = [REWEIGHTINGS[name] for name in names]
    quiet = pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`:FutureWarning")
    return quiet(pytest.mark.parametrize("reweight", cases, ids=names)(test))


def assert_close(found, expected, rel=1e-5, tolerance=1e-5):
    """The same nested dictionaries and lists, with numbers that may differ a little."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_close(found[key], expected[key], rel, tolerance)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other, rel, tolerance)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=rel, abs=tolerance)
    else:
        assert found == expected


def assert_brief(message):
    """An error is said in one or two sentences, paths aside."""
    without_paths = re.sub(r"\S*/\S*", "", message)
    assert len(without_paths) < 450
    assert len(re.findall(r"[.!?] [A-Z]", without_paths)) <= 1
