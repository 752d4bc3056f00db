"""The tagger learns, keeps to the tags' scheme, counts over processes, and predicts."""

import pytest
import torch
from allennlp.data.tokenizers import Token
from allennlp.predictors import Predictor

from elmo_plugin.data.readers.conll2003 import Conll2003DatasetReader
from elmo_plugin.models.crf_tagger import WEIGHTED_CRFS
from elmo_plugin.predictors.sentence_tagger import SentenceTaggerPredictor
from tests.models.tasks import build, cases, instances, ner, outputs, tensors
from tests.process_group import in_processes

BIOUL = ner(label_encoding="BIOUL")
SAMPLE = cases({})["ner, ner.jsonnet"]


def test_predictions_are_well_formed_if_constrained():
    found = outputs(build(BIOUL), BIOUL)["tags"]
    reader = Conll2003DatasetReader(convert_to_coding_scheme="BIOUL")
    for tags in found:  # raises ValueError for an ill-formed one
        reader.text_to_instance([Token("w")] * len(tags), ner_tags=tags)


def test_a_batch_of_one_token_trains():
    torch.manual_seed(0)  # or dropout may leave nothing of a token
    model = build(SAMPLE).train()
    output = model(**tensors(model, instances(BIOUL)[1:2]))
    output["loss"].backward()
    assert output["logits"].shape == (1, 1, model.num_tags)
    assert model.tag_projection_layer._module.weight.grad.abs().sum() > 0


def test_learns_its_training_sentences():
    torch.manual_seed(0)
    model = build(BIOUL).train()
    batch = tensors(model, instances(BIOUL))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        model(**batch)["loss"].backward()
        optimizer.step()
    model.get_metrics(reset=True)
    model.eval()(**batch)
    assert model.get_metrics()["f1-measure-overall"] == 1.0


@pytest.mark.parametrize("strategy", [None, *WEIGHTED_CRFS])
def test_a_sentence_of_o_tags_has_no_loss_where_these_do_not_count(strategy):
    weights = {"label_weights": {"O": 0.5}, "weight_strategy": strategy} if strategy else {}
    model = build(ner(label_encoding="BIOUL", ignore_loss_on_o_tags=True, **weights)).train()
    chosen = instances(BIOUL)
    expected = model(**tensors(model, chosen[:1]))["loss"].item()
    chosen[1]["tags"].labels = ["O"]
    assert model(**tensors(model, chosen[:2]))["loss"].item() == pytest.approx(expected)
    loss = model(**tensors(model, chosen[1:2]))["loss"]
    loss.backward()  # as the trainer does
    assert loss == 0
    assert not any(p.grad.any() for p in model.parameters() if p.grad is not None)


def metrics_in_one_of_two_processes(rank, size, expected):
    model = build(SAMPLE)
    model(**tensors(model, instances(BIOUL)[rank::size]))
    assert model.get_metrics() == pytest.approx(expected)


def test_each_of_two_processes_gets_the_metrics_of_all_sentences():
    model = build(SAMPLE)
    model(**tensors(model, instances(BIOUL)))
    expected = model.get_metrics()
    assert 0 < expected["f1-measure-overall"] < 1
    in_processes(2, metrics_in_one_of_two_processes, expected)


def test_predictor_takes_a_sentence_or_tokens():
    predictor = SentenceTaggerPredictor.__new__(SentenceTaggerPredictor)
    reader = Conll2003DatasetReader(convert_to_coding_scheme="BIOUL")
    model = build(BIOUL)

    class Splitter:
        def tokenize(self, text):
            return [Token(word) for word in text.split("|")]

    Predictor.__init__(predictor, model, reader)
    predictor._tokenizer = Splitter()
    by_tokens = predictor.predict_json({"tokens": ["New York", "\U0001f600", "a\x00"]})
    assert by_tokens["words"] == ["New York", "\U0001f600", "a\x00"]
    assert predictor.predict_json({"sentence": "New York|\U0001f600|a\x00"}) == by_tokens


def test_dropout_stands_before_and_behind_the_encoder():
    model = build(ner(dropout=0.5)).train()
    given, put_out = [], {}
    model.dropout.register_forward_hook(lambda _, inputs, output: given.append(inputs[0]))
    for name in ("text_field_embedder", "encoder"):
        getattr(model, name).register_forward_hook(
            lambda _, inputs, output, name=name: put_out.setdefault(name, output)
        )
    model(**tensors(model, instances(BIOUL)))
    assert len(given) == 2
    assert given[0] is put_out["text_field_embedder"]
    assert given[1] is put_out["encoder"]
