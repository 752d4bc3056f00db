"""The configurable `Elmo`: what a model's `elmo` argument builds."""

import json
import pydoc
from pathlib import Path
from typing import Optional

import pytest
import torch
from allennlp.common import FromParams, Params
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.modules.elmo import Elmo
from tests.tiny_bilm import BATCHES, assert_same_output, elmo_pair, random_bilm


class Holder(FromParams):
    """As a model has it."""

    def __init__(self, elmo: Optional[Elmo] = None) -> None:
        self.elmo = elmo


@pytest.mark.parametrize("inlined", [False, True])
def test_a_models_argument_equals_allennlps_elmo(inlined, files):
    if inlined:
        content = json.loads(Path(files.options).read_text())
        source = {"options": content, "pretrained_file": files.weights}
    else:
        source = {"options_file": files.options, "weight_file": files.weights}
    arguments = {**source, "num_output_representations": 2, "dropout": 0.0}
    elmo = Holder.from_params(Params({"elmo": arguments})).elmo
    assert isinstance(elmo, Elmo)
    assert elmo.get_output_dim() == 12
    _, theirs = elmo_pair(files, 2)
    assert elmo.state_dict().keys() == theirs.state_dict().keys()
    for batch in BATCHES:
        ids = batch_to_ids(batch)
        assert_same_output(elmo(ids), theirs(ids))


def test_options_without_weights_wait_for_an_archive(files):
    """As AllenNLP loads one: `pretrained_file` gone, the parameters from the archive."""
    options = options_dict(random_bilm().options)
    empty = Elmo.from_params(Params({"options": options, "dropout": 0.0}))
    full = Elmo(*files, dropout=0.0)
    ids = batch_to_ids(BATCHES[0])
    with pytest.raises(AssertionError):
        assert_same_output(empty(ids), full(ids))
    empty.reset_states()
    full.reset_states()
    empty.load_state_dict(full.state_dict())
    assert_same_output(empty(ids), full(ids))


def test_a_module_from_python():
    elmo = Elmo(module=BiLm(random_bilm().options), dropout=0.0)
    assert elmo(batch_to_ids([["a"]]))["elmo_representations"][0].shape == (1, 1, 12)


@pytest.mark.parametrize("given", [{"state": "primed"}, {"dtype": "int8"}])
def test_what_is_the_modules_own_is_not_given_beside_it(given):
    bilm = BiLm(random_bilm().options, state="reset")
    with pytest.raises(ConfigurationError, match="were given beside module, which has its own"):
        Elmo(module=bilm, **given)
    assert Elmo(module=bilm, state="reset")._elmo_lstm.state == "reset"


def test_dropout_falls_on_each_representation_alone(files):
    elmo = Elmo(*files, 2, dropout=0.5, state="reset")
    torch.manual_seed(0)
    first, second = elmo(batch_to_ids([["a", "b"] * 20]))["elmo_representations"]
    assert not torch.equal(first == 0, second == 0)


def test_help_has_the_arguments_and_the_outputs():
    from elmo_plugin import Elmo

    text = pydoc.plain(pydoc.render_doc(Elmo))
    for part in ("scalar_mix_parameters : `Optional[List[float]]`", "elmo_representations"):
        assert part in text
