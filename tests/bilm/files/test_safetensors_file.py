"""A biLM in the files of transformers."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.safetensors_file import save_safetensors
from elmo_plugin.bilm.files.weights import load_weights
from elmo_plugin.bilm.kernels.backend import NOT_PLAIN
from elmo_plugin.bilm.pretraining.export import export_bilm
from elmo_plugin.bilm.use.embedder import ElmoEmbedder
from elmo_plugin.transformers import ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from tests.tiny_bilm import OPTIONS, random_bilm

FIRST = "_elmo_lstm._token_embedder._char_embedding_weights"


def same(first, second):
    pairs = zip(first.named_parameters(), second.named_parameters(), strict=True)
    return all(a == b and torch.equal(one, other) for (a, one), (b, other) in pairs)


def test_exported_loaded_and_read_by_transformers(tmp_path):
    bilm = random_bilm()
    export_bilm(bilm, tmp_path, file_format="safetensors")
    loaded = load_bilm(tmp_path)
    assert loaded.options == OPTIONS
    assert same(loaded, bilm)
    assert same(load_bilm(tmp_path / "config.json", tmp_path / "model.safetensors"), bilm)
    assert same(ElmoModel.from_pretrained(tmp_path)._elmo_lstm, bilm)
    assert ElmoTokenizer.from_pretrained(tmp_path).num_characters == OPTIONS.num_characters


def test_a_bilm_of_a_model_with_a_head(bilm_files, tmp_path):
    model = ElmoForTokenClassification.from_bilm(**bilm_files)
    model.save_pretrained(tmp_path / "tagger")
    expected = ElmoEmbedder(**bilm_files).embed_sentence(["The", "cat"])
    assert (ElmoEmbedder(tmp_path / "tagger").embed_sentence(["The", "cat"]) == expected).all()


def test_half_precision(tmp_path):
    export_bilm(random_bilm(), tmp_path, file_format="safetensors", dtype="float16")
    assert load_file(tmp_path / "model.safetensors")[FIRST].dtype == torch.float16
    for loaded in (load_bilm(tmp_path), ElmoModel.from_pretrained(tmp_path)):
        assert {one.dtype for one in loaded.parameters()} == {torch.float32}
    torch.testing.assert_close(
        dict(loaded._elmo_lstm.named_parameters()),
        dict(random_bilm().named_parameters()),
        atol=2e-3,
        rtol=0,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda all_: all_.pop(FIRST), "has 0 biLMs, expected one key"),
        (lambda all_: all_.update({"x." + FIRST: torch.ones(1)}), "has 2 biLMs"),
        (
            lambda all_: all_.pop("_elmo_lstm._token_embedder.char_conv_0.bias"),
            "only one of them has _elmo_lstm._token_embedder.char_conv_0.bias",
        ),
        (
            lambda all_: all_.update({"_elmo_lstm._elmo_lstm.forward_layer_2.x": torch.ones(1)}),
            "only one of them has _elmo_lstm._elmo_lstm.forward_layer_2.x",
        ),
        (
            lambda all_: all_.update({FIRST: torch.ones(2, 2)}),
            r"has shape \(2, 2\), the options require \(262, 4\)",
        ),
        (lambda all_: all_[FIRST].fill_(float("nan")), "holds NaN or infinity"),
    ],
)
def test_wrong_tensors(tmp_path, change, message):
    export_bilm(random_bilm(), tmp_path, file_format="safetensors")
    tensors = load_file(tmp_path / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=message):
        load_bilm(tmp_path)


def test_wrong_files(tmp_path):
    export_bilm(random_bilm(), tmp_path, file_format="safetensors")
    export_bilm(random_bilm(), tmp_path / "both")
    config = tmp_path / "config.json"
    for content, key in (({"model_type": "elmo"}, "options"), ({"x": 1}, "char_cnn.filters")):
        config.write_text(json.dumps(content))
        with pytest.raises(ValueError, match=f"config.json: .*{key}"):
            load_bilm(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no")
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        load_bilm(tmp_path / "both" / "options.json", tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").rename(tmp_path / "both" / "model.safetensors")
    with pytest.raises(ValueError, match=r"both weights.hdf5 and model.safetensors, expected one"):
        load_bilm(tmp_path / "both")
    with pytest.raises(FileNotFoundError, match="there is no weight file"):
        load_weights(random_bilm(), tmp_path / "no.safetensors")
    bilm = random_bilm()
    bilm.char_cnn.char_conv_0.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match=NOT_PLAIN[:20]):
        save_safetensors(bilm, tmp_path / "x.safetensors")
