"""The same config and seed are the same run as with AllenNLP's own embedder."""

import pytest
import torch
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.common.util import prepare_environment
from allennlp.modules.elmo import Elmo as StockElmo
from allennlp.modules.token_embedders import ElmoTokenEmbedder as StockEmbedder
from allennlp.modules.token_embedders import TokenEmbedder

import elmo_plugin.plugin
from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.modules.token_embedder import ElmoTokenEmbedder
from tests.tagging_task import tagger_config, with_elmo, write_task
from tests.tiny_bilm import random_bilm, write

TokenEmbedder.register("stock_elmo")(StockEmbedder)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_layers": 1, "cell_size": 3, "projection_dim": 2},  # fewer than 16 numbers a block
        {"num_layers": 3, "num_highways": 1, "filters": ((1, 5), (5, 7))},
        {"cell_size": 33, "projection_dim": 17},
    ],
)
def test_the_generator_stands_where_allennlps_would(tmp_path, changes):
    files = write(tmp_path, random_bilm(**changes))
    drawn = []
    for kind in (Elmo, StockElmo):
        torch.manual_seed(5)
        kind(*files, 2)
        drawn.append(torch.cat([torch.rand(3), torch.randn(30)]))
    assert torch.equal(*drawn)


def test_a_biLM_that_is_given_draws_nothing(tmp_path):
    bilm = random_bilm()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    Elmo(None, None, 1, module=bilm)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_is_the_run_with_allennlps_embedder(tmp_path, monkeypatch):
    assert elmo_plugin.plugin
    monkeypatch.chdir(tmp_path)
    write_task(tmp_path)
    write(tmp_path)
    found = []
    for kind, expected in (
        ("elmo_token_embedder", ElmoTokenEmbedder),
        ("stock_elmo", StockEmbedder),
    ):
        config = with_elmo(
            tagger_config(), 12, options_file="options.json", weight_file="weights.hdf5"
        )
        config["model"]["text_field_embedder"]["token_embedders"]["elmo"]["type"] = kind
        config["trainer"]["num_epochs"] = 2
        # In validation AllenNLP's biLM goes on with training's state, ours starts from zero.
        del config["validation_data_path"]
        (tmp_path / kind).mkdir()
        params = Params(config)
        prepare_environment(params)
        loop = TrainModel.from_params(
            params=params, serialization_dir=str(tmp_path / kind), local_rank=0
        )
        assert type(loop.model.text_field_embedder.token_embedder_elmo) is expected
        found.append((loop.run()["training_loss"], loop.model.state_dict()))
    (our_loss, ours), (their_loss, theirs) = found
    assert our_loss == pytest.approx(their_loss, rel=1e-5)
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], atol=1e-5, rtol=1e-4)
