"""`ElmoTokens` in a `SentenceTransformer`; `make libraries` has it."""

from pathlib import Path

import numpy
import pytest
import torch

from elmo_plugin import ElmoTransformer
from elmo_plugin.bilm.kernels import derived
from tests.tiny_bilm import cached_names

pytestmark = pytest.mark.libraries
REASON = "sentence-transformers is not installed"
TEXTS = ["The cat sat", "Dogs bark at the moon .", "", "Yes"]


@pytest.fixture
def model(bilm_files):
    library = pytest.importorskip("sentence_transformers", reason=REASON)
    from sentence_transformers.sentence_transformer.modules import Pooling

    from elmo_plugin.sentence_transformers import ElmoTokens

    tokens = ElmoTokens(**bilm_files)
    pooling = Pooling(tokens.get_embedding_dimension())
    return library.SentenceTransformer(modules=[tokens, pooling], device="cpu")


def test_mean_pooling_is_the_mean(model, bilm_files):
    expected = ElmoTransformer(**bilm_files).fit_transform(TEXTS)
    numpy.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-6)
    numpy.testing.assert_allclose(model.encode(TEXTS, batch_size=1), expected, atol=1e-6)
    prompted = model.encode(TEXTS[:1], prompt="Say : ")
    numpy.testing.assert_allclose(prompted, model.encode(["Say : The cat sat"]), atol=1e-6)
    assert model.get_embedding_dimension() == 12


@pytest.mark.parametrize("mode", ["mean", "max", "cls", "lasttoken"])
def test_an_empty_text_has_a_vector_of_zeros(model, mode):
    model[1].pooling_mode = mode
    assert not model.encode([""]).any()
    assert not model.encode([*TEXTS, ""])[-1].any()


def test_what_is_derived_of_weights_is_kept_from_one_call_to_the_next(model, monkeypatch):
    model.encode(TEXTS)
    assert cached_names(model[0].hub.bilm)
    built = []
    monkeypatch.setattr(derived, "_make", lambda *arguments: built.append(arguments[1]))
    for _ in range(3):  # it begins with `to` and `eval`
        model.encode(TEXTS)
    assert built == []


def test_saved_and_loaded(model, bilm_files, tmp_path):
    library = pytest.importorskip("sentence_transformers", reason=REASON)
    with torch.no_grad():
        model[0].hub.mix.gamma.fill_(1.5)
    before = model.encode(TEXTS)
    model.save(str(tmp_path / "saved"))
    for path in bilm_files.values():
        Path(path).unlink()
    # The library asks for it where a module is not its own.
    loaded = library.SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True)
    numpy.testing.assert_allclose(loaded.encode(TEXTS), before, atol=1e-7)


def test_the_mix_trains_and_the_biLM_does_not(model):
    features = model.preprocess(TEXTS)
    model(features)["sentence_embedding"].pow(2).sum().backward()
    mix = model[0].hub.mix
    assert mix.gamma.grad.abs().item() > 0
    assert all(one.grad.abs().item() > 0 for one in mix.scalar_parameters)
    assert all(one.grad is None for one in model[0].hub.bilm.parameters())
