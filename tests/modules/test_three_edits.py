"""The README's three edits, taken from its text, make a stock config train with ELMo."""

import json
import re

import pytest
import torch
from allennlp.commands.train import train_model_from_file
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from tagging_task import VECTOR_DIM, tagger_config, with_elmo, write_task
from tiny_bilm import write

import elmo_plugin.plugin
from elmo_plugin.modules.token_embedder import ElmoTokenEmbedder

START, END = "<!-- three-edits:start -->", "<!-- three-edits:end -->"


@pytest.fixture
def edits(repository):
    """The jsonnet block between the marks."""
    section = (repository / "README.md").read_text().split(START)[1].split(END)[0]
    (block,) = re.findall(r"```jsonnet\n(.*?)```", section, re.DOTALL)
    return block


@pytest.fixture
def folder(tmp_path, monkeypatch, edits):
    """A stock config, its data and a biLM, in the current directory."""
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    write(tmp_path)
    (tmp_path / "tagger.jsonnet").write_text(json.dumps(tagger_config()))
    (tmp_path / "tagger_elmo.jsonnet").write_text(edits)
    return tmp_path


def test_the_stock_config_and_the_edited_one_train(folder):
    assert elmo_plugin.plugin
    stock = train_model_from_file("tagger.jsonnet", folder / "stock")
    assert stock.encoder._module.input_size == VECTOR_DIM
    model = train_model_from_file("tagger_elmo.jsonnet", folder / "elmo")
    assert model.encoder._module.input_size == VECTOR_DIM + 12
    embedder = model.text_field_embedder.token_embedder_elmo
    assert type(embedder) is ElmoTokenEmbedder
    weights = torch.cat(list(embedder._elmo.scalar_mixes[0].scalar_parameters))
    assert weights.abs().max() > 0  # the mix was trained
    assert (folder / "elmo" / "model.tar.gz").is_file()


def test_they_are_three_edits_and_no_more(folder):
    """By hand: one indexer, one embedder, one number."""
    options = json.loads((folder / "options.json").read_text())
    expected = with_elmo(
        tagger_config(), 12, options=options, pretrained_file="weights.hdf5", dropout=0.5
    )
    assert Params.from_file("tagger_elmo.jsonnet").as_dict() == expected


def without_the_indexer(config):
    del config["dataset_reader"]["token_indexers"]["elmo"]


def without_the_embedder(config):
    del config["model"]["text_field_embedder"]["token_embedders"]["elmo"]


def without_the_wider_encoder(config):
    config["model"]["encoder"]["input_size"] = VECTOR_DIM


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without_the_indexer, "elmo"),
        (without_the_embedder, "embedding dim must match encoder input dim, but got 5 and 17"),
        (without_the_wider_encoder, "embedding dim must match encoder input dim, but got 17 and 5"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_no_edit_can_be_left_out(spoil, message, folder):
    config = Params.from_file("tagger_elmo.jsonnet").as_dict()
    spoil(config)
    (folder / "spoiled.jsonnet").write_text(json.dumps(config))
    with pytest.raises((ConfigurationError, RuntimeError, ValueError), match=message):
        train_model_from_file("spoiled.jsonnet", folder / "spoiled")
