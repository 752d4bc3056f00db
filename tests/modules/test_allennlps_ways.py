"""What AllenNLP's own code asks of its ELMo holds for ours."""

import pytest
import torch
from allennlp.common import FromParams, Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import TokenIndexer
from allennlp.data.token_indexers import ELMoTokenCharactersIndexer
from allennlp.modules import TokenEmbedder
from allennlp.modules.elmo import Elmo as StockElmo
from allennlp.modules.text_field_embedders import BasicTextFieldEmbedder
from allennlp.modules.token_embedders import ElmoTokenEmbedder as StockEmbedder

import elmo_plugin.plugin
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.data.indexer import ElmoTokenCharactersIndexer
from elmo_plugin.modules.alternating_lstm import AlternatingLstm
from elmo_plugin.modules.elmo_placement import ElmoPlacement
from elmo_plugin.modules.token_embedder import ElmoTokenEmbedder
from tests.fresh_process import run


class HasElmo(FromParams):
    def __init__(self, elmo: elmo_plugin.Elmo) -> None:
        self.elmo = elmo


def test_the_elmo_that_people_import_is_built_from_configs(bilm_files):
    params = Params({"elmo": {**bilm_files, "num_output_representations": 2}})
    built = HasElmo.from_params(params).elmo
    assert isinstance(built, elmo_plugin.Elmo)
    assert built.num_output_representations == 2


def test_one_class_before_and_after_allennlp_is_imported(bilm_files):
    """A user's annotation, made before AllenNLP is there, is built from a config."""
    code = """
import sys
from elmo_plugin import Elmo, ScalarMix
class Mine(Elmo): pass
assert not any(name.split(".")[0] == "allennlp" for name in sys.modules)
plain = Elmo(*sys.argv[1:], 1)
WRONG = (Elmo, (None, 3)), (Elmo, ("missing", "missing")), (ScalarMix, (3, False, [1]))
for kind, arguments in WRONG:
    try:
        kind(*arguments)
    except (ValueError, FileNotFoundError) as error:
        print(type(error).__name__)
from allennlp.common import FromParams, Params
from allennlp.common.checks import ConfigurationError
from allennlp.modules.elmo import Elmo as Stock
import elmo_plugin, elmo_plugin.modules.elmo
assert elmo_plugin.Elmo is Elmo is elmo_plugin.modules.elmo.Elmo
assert elmo_plugin.ScalarMix is ScalarMix
assert isinstance(plain, Stock)
class Holder(FromParams):
    def __init__(self, elmo: Elmo, mine: Mine) -> None:
        self.both = elmo, mine
options = {"options_file": sys.argv[1], "weight_file": sys.argv[2], "num_output_representations": 2}
both = Holder.from_params(Params({"elmo": dict(options), "mine": dict(options)})).both
assert [type(one) for one in both] == [Elmo, Mine]
for kind, arguments in WRONG:
    for expected in (ConfigurationError, (ValueError, FileNotFoundError)):
        try:
            kind(*arguments)
        except expected as error:
            print(bool(str(error)))
"""
    child = run(code, *bilm_files.values())
    assert child.stdout.split() == ["ValueError", "FileNotFoundError", "ValueError", *["True"] * 6]


def test_they_are_instances_of_allennlps_classes(bilm_files):
    embedder = TokenEmbedder.from_params(Params({"type": "elmo_token_embedder", **bilm_files}))
    assert isinstance(embedder, ElmoTokenEmbedder)
    assert isinstance(embedder, StockEmbedder)
    assert isinstance(embedder._elmo, StockElmo)
    indexer = TokenIndexer.from_params(Params({"type": "elmo_characters"}))
    assert isinstance(indexer, ElmoTokenCharactersIndexer)
    assert isinstance(indexer, ELMoTokenCharactersIndexer)


def test_names_that_people_reach_for(bilm_files):
    elmo = elmo_plugin.Elmo(**bilm_files, num_output_representations=2)
    assert elmo._scalar_mixes == [elmo.scalar_mix_0, elmo.scalar_mix_1]
    lstm = AlternatingLstm(3, 4, 2)
    assert lstm.lstm_layers == [lstm.layer_0, lstm.layer_1]


def test_an_indexer_of_another_type_is_named(bilm_files):
    embedder = BasicTextFieldEmbedder({"elmo": ElmoTokenEmbedder(**bilm_files)})
    wrong = {"elmo": {"tokens": torch.ones(1, 2, dtype=torch.long)}}
    said = r"gives tokens, expected elmo_tokens: an indexer of type \"elmo_characters\""
    with pytest.raises(ConfigurationError, match=said):
        embedder(wrong)
    elmo = elmo_plugin.Elmo(**bilm_files)
    no_words = BasicTextFieldEmbedder({})
    placement = ElmoPlacement(elmo, no_words, use_input_elmo=True)
    for embedders in [(), (no_words, elmo)]:  # a model need not name them
        with pytest.raises(ConfigurationError, match=said):
            placement.embed(wrong, *embedders)
    assert embedder({"elmo": {"elmo_tokens": batch_to_ids([["a", "b"]])}}).shape == (1, 2, 12)
