"""Our vectors of a biLM are those that another implementation stored."""

import json

import h5py
import numpy
import pytest
import torch

from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.model.characters import batch_to_ids
from tests.numpy_bilm import NumpyBiLm

pytestmark = pytest.mark.usefixtures("either_backend")


@pytest.fixture(scope="module")
def files(bilm_fixture):
    return bilm_fixture / "options.json", bilm_fixture / "lm_weights.hdf5"


@pytest.fixture(scope="module")
def batches(bilm_fixture):
    rows = json.loads((bilm_fixture / "sentences.json").read_text())
    return [[row[k].split() for row in rows] for k in range(10)]


def stored_top_layer(bilm_fixture, row, batch):
    with h5py.File(bilm_fixture / f"lm_embeddings_{row}.hdf5") as file:
        return numpy.concatenate(list(file[str(batch)][...]), axis=-1)


def assert_stored_top_layer(bilm, batches, bilm_fixture):
    with torch.no_grad():
        for number, batch in enumerate(batches):
            output = bilm(batch_to_ids(batch))
            for row, sentence in enumerate(batch):
                expected = stored_top_layer(bilm_fixture, row, number)
                found = output["activations"][-1][row, 1 : len(sentence) + 1].numpy()
                numpy.testing.assert_allclose(found, expected, atol=1e-6, rtol=1e-5)


def test_top_layer_of_ten_stateful_batches(files, batches, bilm_fixture):
    assert len(batches) == 10
    assert_stored_top_layer(load_bilm(*files), batches, bilm_fixture)


def test_token_embeddings(files, bilm_fixture):
    words = (bilm_fixture / "vocab_test.txt").read_text().splitlines()
    with h5py.File(bilm_fixture / "elmo_token_embeddings.hdf5") as file:
        expected = file["embedding"][...]
    found = load_bilm(*files).token_vectors([word.strip() for word in words]).detach().numpy()
    numpy.testing.assert_allclose(found, expected, atol=1e-6, rtol=1e-5)


def test_the_reference_in_numpy_gives_them_too(files, batches, bilm_fixture):
    bilm = NumpyBiLm(*files)
    for number, batch in enumerate(batches[:3]):
        for row, layers in enumerate(bilm(batch)):
            expected = stored_top_layer(bilm_fixture, row, number)
            numpy.testing.assert_allclose(layers[-1][1:-1], expected, atol=1e-6, rtol=1e-5)
