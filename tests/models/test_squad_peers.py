"""
The metric and, as far as it goes, the model beside allennlp-models'; and its `bidaf` with our ELMo.
"""

import json
import random
from pathlib import Path

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.data import DatasetReader, Vocabulary
from allennlp.models import Model
from allennlp.modules import Seq2SeqEncoder
from allennlp.predictors import Predictor
from squad_cases import DIM, WORD_DIM, gru

from elmo_plugin.data.readers.squad import SquadReader
from elmo_plugin.metrics.squad import SquadEmAndF1
from elmo_plugin.models.bidaf_self_attention import BidafSelfAttention
from tests.models.tasks import EMBEDDING_DIM, embedder, lstm, write_bilm

stock = pytest.importorskip(
    "allennlp_models.rc",
    reason="allennlp-models is not installed; `make peers` installs it apart",
)
pytestmark = pytest.mark.peers

SAMPLE = Path(__file__).parents[2] / "examples/squad"


def test_scores_are_the_same_where_something_is_left_of_the_answer():
    words = ["the", "a", "cat", "Cat's", "U.S.", "new", "York", "-", "é", "3.5"]
    generator = random.Random(1)
    differences = 0
    for _ in range(500):
        prediction, *answers = (
            " ".join(generator.choices(words, k=generator.randint(1, 4))) for _ in range(3)
        )
        ours, theirs = SquadEmAndF1(), stock.metrics.SquadEmAndF1()
        for metric in (ours, theirs):
            metric(prediction, answers)
        if ours.get_metric() != theirs.get_metric():
            assert ours.get_metric() == (1, 0)
            assert theirs.get_metric() == (1, 1)
            differences += 1
    assert 0 < differences < 50


class SummedCharacters(torch.nn.Module):
    """A word's vector is the sum of its characters', as `dialog_qa` needs character ids."""

    def __init__(self):
        super().__init__()
        self.vectors = torch.nn.Embedding(30, WORD_DIM, padding_idx=0)

    def get_output_dim(self):
        return WORD_DIM

    def forward(self, tokens, num_wrapping_dims=0):
        return self.vectors(tokens["token_characters"]["token_characters"]).sum(dim=-2)


def test_the_logits_are_those_of_dialog_qa():
    """Without the attention to nothing and without the earlier answers, which are each other's."""
    torch.manual_seed(2)
    encoders = {
        name: Seq2SeqEncoder.from_params(Params(gru(size)))
        for name, size in [
            ("phrase_layer", WORD_DIM),
            ("residual_encoder", DIM),
            ("span_start_encoder", DIM),
            ("span_end_encoder", 2 * DIM),
        ]
    }
    embedder = SummedCharacters()
    theirs = stock.models.DialogQA(Vocabulary(), embedder, **encoders).double().eval()
    ours = BidafSelfAttention(Vocabulary(), embedder, **encoders).double().eval()
    for parameter in [*theirs.parameters()]:
        parameter.data.normal_(0.0, 0.5)
    for our, their in [
        ("_attention.similarity", "_matrix_attention"),
        ("_merge_attention", "_merge_atten._module"),
        ("_self_attention.similarity", "_self_attention"),
        ("_self_attention.merge", "_merge_self_attention._module"),
        ("_span_start_predictor", "_span_start_predictor._module"),
        ("_span_end_predictor", "_span_end_predictor._module"),
    ]:
        ours.get_submodule(our).load_state_dict(theirs.get_submodule(their).state_dict())
    ours._self_attention.nothing.data.fill_(-1e9)

    passage = torch.randint(1, 30, (3, 9, 4))
    question = torch.randint(1, 30, (3, 5, 4))
    passage[0, 6:], passage[1, 3:], question[1, 2:] = 0, 0, 0
    fields = [{"token_characters": {"token_characters": ids}} for ids in (question, passage)]
    seen = {}
    for name in ("start", "end"):
        theirs.get_submodule(f"_span_{name}_predictor").register_forward_hook(
            lambda _, __, output, name=name: seen.update({name: output.squeeze(-1)})
        )
    theirs(
        {"token_characters": {"token_characters": question.unsqueeze(1)}},
        fields[1],
        followup_list=torch.zeros(3, 1, dtype=torch.long),
        metadata=[
            {
                "original_passage": "p" * 9,
                "token_offsets": [(i, i + 1) for i in range(9)],
                "instance_id": ["q"],
                "answer_texts_list": [["p"]],
            }
        ]
        * 3,
    )
    output = ours(*fields)
    mask = (passage != 0).any(dim=-1)
    assert not mask.all()
    for name in ("start", "end"):
        torch.testing.assert_close(
            output[f"span_{name}_logits"][mask], seen[name][mask], rtol=0, atol=1e-10
        )
    ours._self_attention.nothing.data.fill_(-1.0)
    changed = ours(*fields)["span_start_logits"]
    assert (changed - seen["start"])[mask].abs().max() > 1e-3


def bidaf_elmo(bilm):
    """allennlp-models' training_config/rc/bidaf_elmo.jsonnet, smaller."""
    bytes_of_words = {"byte_encoding": "utf-8", "start_tokens": [259], "end_tokens": [260]}
    cnn = {"type": "cnn", "embedding_dim": 3, "num_filters": 5, "ngram_filter_sizes": [5]}
    embedders = {
        **embedder(elmo={**bilm, "do_layer_norm": False, "dropout": 0.0})["token_embedders"],
        "token_characters": {
            "type": "character_encoding",
            "embedding": {"num_embeddings": 262, "embedding_dim": 3},
            "encoder": cnn,
            "dropout": 0.2,
        },
    }
    characters = {"character_tokenizer": bytes_of_words, "min_padding_length": 5}
    sizes = {"tensor_1_dim": 4, "tensor_2_dim": 4}
    return {
        "dataset_reader": {
            "type": "squad",
            "token_indexers": {
                "tokens": {"type": "single_id", "lowercase_tokens": True},
                "elmo": {"type": "elmo_characters"},
                "token_characters": {"type": "characters", **characters},
            },
        },
        "train_data_path": str(SAMPLE / "train.json"),
        "validation_data_path": str(SAMPLE / "dev.json"),
        "model": {
            "type": "bidaf",
            "text_field_embedder": {"token_embedders": embedders},
            "num_highway_layers": 2,
            "phrase_layer": lstm(WORD_DIM + EMBEDDING_DIM + 5),
            "matrix_attention": {"type": "linear", "combination": "x,y,x*y", **sizes},
            "modeling_layer": lstm(16),
            "span_end_encoder": lstm(28),
            "dropout": 0.2,
        },
        "data_loader": {"batch_sampler": {"type": "bucket", "batch_size": 40}},
        "trainer": {"num_epochs": 1, "validation_metric": "+em", "optimizer": "adam"},
    }


def test_bidaf_trains_and_answers_with_our_elmo_and_reader(tmp_path):
    assert Model.by_name("bidaf").__module__.startswith("allennlp_models.")
    assert DatasetReader.by_name("squad") is SquadReader
    params = bidaf_elmo(write_bilm(tmp_path))
    model = train_model(Params(params), str(tmp_path / "run"))
    embedder = model._text_field_embedder.token_embedder_elmo
    assert type(embedder).__module__.startswith("elmo_plugin.")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert 0 <= metrics["validation_em"] <= metrics["validation_f1"] <= 1
    predictor = Predictor.from_path(str(tmp_path / "run" / "model.tar.gz"))
    passage = "The mill stands by the river. A farmer built it."
    found = predictor.predict("Who built it?", passage)
    assert found["best_span_str"] in passage
