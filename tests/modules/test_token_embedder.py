import json
from pathlib import Path

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.modules import TextFieldEmbedder, TokenEmbedder
from allennlp.modules.token_embedders import ElmoTokenEmbedder as StockEmbedder

from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.modules.token_embedder import ElmoTokenEmbedder
from tests.tiny_bilm import BATCHES

WORDS = ["@@PADDING@@", "The", "cat", "sat"]


def pair(files, **arguments):
    ours, theirs = (kind(*files, dropout=0.0, **arguments) for kind in EMBEDDERS)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    ours.load_state_dict(theirs.state_dict())  # the projection is drawn at random
    return ours, theirs


EMBEDDERS = (ElmoTokenEmbedder, StockEmbedder)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"projection_dim": 4},
        {"do_layer_norm": True},
        {"scalar_mix_parameters": [-9e10, -9e10, 1]},
        {"scalar_mix_parameters": [0, 0, 0]},
        {"requires_grad": True},
        {"vocab_to_cache": WORDS},
    ],
    ids=str,
)
def test_equals_allennlp(arguments, files):
    ours, theirs = pair(files, **arguments)
    assert ours.get_output_dim() == theirs.get_output_dim() == arguments.get("projection_dim", 12)
    assert {name: p.requires_grad for name, p in ours.named_parameters()} == {
        name: p.requires_grad for name, p in theirs.named_parameters()
    }
    words = batch_to_ids([["The", "cat", "sat"]]), torch.tensor([[1, 2, 3]])
    four_dimensions = torch.stack([batch_to_ids(BATCHES[0])] * 2)
    for given in (*((batch_to_ids(batch),) for batch in BATCHES), words, (four_dimensions,)):
        torch.testing.assert_close(ours(*given), theirs(*given), atol=1e-6, rtol=1e-5)


def test_dropout_is_for_training(files):
    embedder = ElmoTokenEmbedder(*files, dropout=0.9, state="reset")
    ids = batch_to_ids([["The", "cat"] * 10])
    assert (embedder(ids) == 0).float().mean() > 0.7
    embedder.eval()
    assert torch.equal(embedder(ids), embedder(ids))
    assert (embedder(ids) == 0).float().mean() < 0.1


def test_from_params_with_every_argument(files):
    assert TokenEmbedder.by_name("elmo_token_embedder") is ElmoTokenEmbedder
    arguments = {
        "options_file": files.options,
        "weight_file": files.weights,
        "do_layer_norm": True,
        "dropout": 0.25,
        "requires_grad": True,
        "projection_dim": 4,
        "vocab_to_cache": WORDS,
        "scalar_mix_parameters": [0.5, 1.0, 2.0],
        "state": "primed",
    }
    embedder = TokenEmbedder.from_params(Params({"type": "elmo_token_embedder", **arguments}))
    elmo = embedder._elmo
    assert elmo.scalar_mixes[0].do_layer_norm
    assert [float(s) for s in elmo.scalar_mixes[0].scalar_parameters] == [0.5, 1.0, 2.0]
    assert elmo._dropout.p == 0.25
    assert all(parameter.requires_grad for parameter in elmo._elmo_lstm.parameters())
    assert embedder._projection.out_features == embedder.get_output_dim() == 4
    assert elmo._elmo_lstm._word_embedding.num_embeddings == 4
    assert elmo._elmo_lstm.state == "primed"


def test_in_a_text_field_embedder_beside_the_options_inlined(files):
    options = json.loads(Path(files.options).read_text())
    params = Params(
        {
            "token_embedders": {
                "elmo": {
                    "type": "elmo_token_embedder",
                    "options": options,
                    "pretrained_file": files.weights,
                    "dropout": 0.0,
                }
            }
        }
    )
    embedder = TextFieldEmbedder.from_params(params)
    assert embedder.get_output_dim() == 12
    ids = batch_to_ids(BATCHES[0])
    expected = ElmoTokenEmbedder(*files, dropout=0.0)(ids)
    torch.testing.assert_close(embedder({"elmo": {"elmo_tokens": ids}}), expected)


def test_initializers_of_tasks_leave_the_bilm_alone(files):
    """Shipped configs draw `.*weight_ih.*`, `.*weight_hh.*` and biases of theirs anew."""
    names = [name for name, _ in ElmoTokenEmbedder(*files).named_parameters()]
    assert not [name for name in names if "weight_ih" in name or "weight_hh" in name]
    assert not [name for name in names if "bias_ih" in name or "bias_hh" in name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"options_file": "nowhere.json", "weight_file": "w"}, "options_file: there is no file"),
        ({"options": {"lstm": {}}}, "the key char_cnn.filters is missing"),
    ],
    ids=str,
)
def test_what_a_config_says_wrong(arguments, message):
    """Python's errors become AllenNLP's; tests/test_error_messages.py has the messages."""
    with pytest.raises(ConfigurationError, match=message):
        TokenEmbedder.from_params(Params({"type": "elmo_token_embedder", **arguments}))
