"""biLMs that AllenNLP cannot run, against the plain float64 reference in numpy."""

import numpy
import pytest
import torch

from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.model.characters import batch_to_ids
from tests.cases import first_quick
from tests.numpy_bilm import NumpyBiLm
from tests.tiny_bilm import BATCHES, random_bilm, write

pytestmark = pytest.mark.usefixtures("either_backend")

SHAPES = {
    "as released": {},
    "no skip connections": {"use_skip_connections": False},
    "no skip connections, three layers": {"use_skip_connections": False, "num_layers": 3},
    "one layer": {"num_layers": 1},
    "three layers": {"num_layers": 3},
    "tanh": {"activation": "tanh"},
    "no projection": {"projection_dim": 12},
    "no projection, no highways": {"projection_dim": 12, "num_highways": 0},
    "no highways": {"num_highways": 0},
    "three highways": {"num_highways": 3},
    "short words": {"num_characters": 7},
    "shortest words": {"num_characters": 3, "filters": ((3, 2),)},
    "long words": {"num_characters": 80},
    "one filter, wide": {"filters": ((9, 3),)},
    "filters in any order": {"filters": ((5, 2), (1, 3), (5, 4))},
    "no clips": {"cell_clip": None, "projection_clip": None},
    "no cell clip": {"cell_clip": None},
    "no projection clip": {"projection_clip": None},
    "cells as wide as outputs": {"cell_size": 6},
}


def assert_equals_numpy(files, atol=1e-10):
    bilm, reference = load_bilm(*files).double(), NumpyBiLm(*files)
    num_characters = bilm.options.num_characters
    with torch.no_grad():
        for batch in BATCHES:
            output = bilm(batch_to_ids(batch, num_characters))
            for row, (sentence, expected) in enumerate(zip(batch, reference(batch), strict=True)):
                real = len(sentence) + 2
                assert output["mask"][row].tolist() == [
                    k < real for k in range(output["mask"].shape[1])
                ]
                assert len(output["activations"]) == len(expected)
                for layer, values in zip(output["activations"], expected, strict=True):
                    numpy.testing.assert_allclose(layer[row, :real], values, atol=atol, rtol=1e-9)
                    assert not layer[row, real:].any()


@first_quick("shape", SHAPES, count=8)
def test_layers_equal_the_reference(shape, tmp_path):
    # Storing takes 6e-8 off a forget bias, the same for both: they read one file.
    assert_equals_numpy(write(tmp_path, random_bilm(**SHAPES[shape])), atol=2e-7)


@pytest.mark.parametrize("n_characters", [261, 262])
def test_both_counts_of_characters_mean_the_same_bilm(n_characters, tmp_path):
    files = write(tmp_path, n_characters=n_characters)
    assert load_bilm(*files).options == load_bilm(*write(tmp_path)).options
    assert_equals_numpy(files, atol=2e-7)


def test_the_clips_are_reached(tmp_path):
    """Without them the shapes above would say nothing about clipping."""
    bilm = random_bilm()
    with torch.no_grad():
        unskipped = bilm(batch_to_ids(BATCHES[0]))["activations"][1]
    assert (unskipped.abs() == bilm.options.projection_clip).any()
    assert (bilm.carried[0].cell.abs() == bilm.options.cell_clip).any()
