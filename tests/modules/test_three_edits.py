"""The README's three edits, taken from its text, make a config train with ELMo."""

import json
import re

import pytest
import torch
from allennlp.commands.train import train_model_from_file
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

import elmo_plugin.plugin
from elmo_plugin.modules.token_embedder import ElmoTokenEmbedder
from tests.tagging_task import VECTOR_DIM, tagger_config, with_elmo, write_task

CONFIG = "out/tagger.jsonnet"
START, END = "<!-- three-edits:start -->", "<!-- three-edits:end -->"


@pytest.fixture
def edits(repository):
    """The jsonnet block between the marks."""
    section = (repository / "README.md").read_text().split(START)[1].split(END)[0]
    (block,) = re.findall(r"```jsonnet\n(.*?)```", section, re.DOTALL)
    return block


@pytest.fixture
def folder(tmp_path, monkeypatch, edits):
    """A stock config in place of the sample one, and its data, in the current directory."""
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path, num_sentences=16)
    for name, text in (("training_config/ner", json.dumps(tagger_config())), ("out/tagger", edits)):
        path = tmp_path / f"{name}.jsonnet"
        path.parent.mkdir()
        path.write_text(text)
    return tmp_path


@pytest.fixture
def width(repository):
    """The width of the embedded biLM's vectors."""
    options = json.loads((repository / "elmo_plugin" / "pretrained" / "options.json").read_text())
    return 2 * options["lstm"]["projection_dim"]


def test_the_stock_config_and_the_edited_one_train(folder, width):
    assert elmo_plugin.plugin
    stock = train_model_from_file("training_config/ner.jsonnet", folder / "stock")
    assert stock.encoder._module.input_size == VECTOR_DIM
    model = train_model_from_file(CONFIG, folder / "elmo")
    assert model.encoder._module.input_size == VECTOR_DIM + width
    embedder = model.text_field_embedder.token_embedder_elmo
    assert type(embedder) is ElmoTokenEmbedder
    weights = torch.cat(list(embedder._elmo.scalar_mixes[0].scalar_parameters))
    assert weights.abs().max() > 0  # the mix was trained
    assert (folder / "elmo" / "model.tar.gz").is_file()


@pytest.mark.usefixtures("folder")
def test_they_are_three_edits_and_no_more(width):
    """By hand: one indexer, one embedder, one number."""
    expected = with_elmo(tagger_config(), width, options_file="embedded", dropout=0.0)
    assert Params.from_file(CONFIG).as_dict() == expected


def test_on_the_sample_config_they_give_ner_elmo(tmp_path, edits, repository):
    """`training_config/ner_elmo.jsonnet` has a regularizer too, and names the biLM's options."""
    (tmp_path / "training_config").symlink_to(repository / "training_config")
    (tmp_path / "elmo_plugin").symlink_to(repository / "elmo_plugin")
    (tmp_path / "out").mkdir()
    (tmp_path / CONFIG).write_text(edits)
    edited = Params.from_file(tmp_path / CONFIG).as_dict()
    expected = Params.from_file(repository / "training_config" / "ner_elmo.jsonnet").as_dict()
    del expected["model"]["regularizer"]
    for config in (edited, expected):
        elmo = config["model"]["text_field_embedder"]["token_embedders"]["elmo"]
        named = [elmo.pop(key, None) for key in ("options", "options_file", "pretrained_file")]
        assert "embedded" in named
        assert elmo.pop("do_layer_norm", False) is False
    assert edited == expected


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
        (without_the_embedder, "embedding dim must match encoder input dim, but got 5 and 517"),
        (
            without_the_wider_encoder,
            "embedding dim must match encoder input dim, but got 517 and 5",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_no_edit_can_be_left_out(spoil, message, folder):
    config = Params.from_file(CONFIG).as_dict()
    spoil(config)
    (folder / "spoiled.jsonnet").write_text(json.dumps(config))
    with pytest.raises((ConfigurationError, RuntimeError, ValueError), match=message):
        train_model_from_file("spoiled.jsonnet", folder / "spoiled")
