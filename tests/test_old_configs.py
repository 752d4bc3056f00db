"""Configs of AllenNLP 0.9 are told apart before anything is read or written."""

import json
import re

import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

import elmo_plugin.plugin
from elmo_plugin.old_configs import PAGE, check_not_of_0_9
from tests.commands.test_configs_command import evaluated

# The keys of a config that AllenNLP 0.9 shipped for NER with ELMo.
OLD = {
    "dataset_reader": {"type": "conll2003", "lazy": True},
    "train_data_path": "eng.train",
    "model": {
        "type": "crf_tagger",
        "regularizer": [["scalar_parameters", {"type": "l2", "alpha": 0.1}]],
        "text_field_embedder": {"elmo": {"type": "elmo_token_embedder"}},
    },
    "iterator": {"type": "basic", "batch_size": 64},
    # As one who has read half of the page would write it.
    "data_loader": {"batch_sampler": {"sorting_keys": [["tokens", "num_tokens"]]}},
    "trainer": {"optimizer": "adam", "cuda_device": [0, 1], "num_serialized_models_to_keep": 3},
}


def test_every_key_is_named_with_what_takes_its_place(tmp_path):
    assert elmo_plugin.plugin
    with pytest.raises(ConfigurationError) as error:
        train_model(Params(OLD), tmp_path / "out")
    for said in (
        "iterator: now data_loader",
        "trainer.num_serialized_models_to_keep: now checkpointer",
        "trainer.cuda_device, a list: now distributed",
        "model.regularizer, a list: now {regexes",
        "dataset_reader.lazy: now data_loader: {max_instances_in_memory",
        "model.text_field_embedder: now {token_embedders",
        "data_loader.batch_sampler.sorting_keys, lists: now names of fields",
        PAGE,
    ):
        assert said in str(error.value)
    assert not (tmp_path / "out").exists()


def test_present_configs_pass(repository):
    configs = evaluated(repository)
    assert configs
    for config in configs.values():
        check_not_of_0_9(config)


def test_the_page_s_configs_are_json(repository):
    page = (repository / PAGE).read_text("utf-8")
    cells = re.findall(r"`(\"[^`]*)`", page)
    assert len(cells) > 15
    for cell in cells:
        if ":" in cell:
            json.loads("{" + re.sub(r"\{\.\.\.\}|\.\.\.|1000 / batch_size", "0", cell) + "}")


def test_a_module_from_an_archive_is_no_key_of_0_9():
    source = {"archive_file": "model.tar.gz", "module_path": "text_field_embedder"}
    check_not_of_0_9({"model": {"text_field_embedder": {"_pretrained": source}}})
