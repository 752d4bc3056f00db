"""What is ESIM's and BCN's own, and what they predict."""

import pytest
import torch
from allennlp.predictors import Predictor

from elmo_plugin import compat
from elmo_plugin.data.readers.snli import SnliReader
from elmo_plugin.data.readers.sst_tokens import StanfordSentimentTreeBankDatasetReader
from elmo_plugin.predictors.textual_entailment import TextualEntailmentPredictor  # noqa: F401
from tests.models.tasks import DATA, bcn, build, esim, instances, tensors


@pytest.mark.parametrize(
    ("params", "reader", "texts"),
    [
        (esim(), SnliReader, {"premise": "Two dogs run.", "hypothesis": "It rains."}),
        (
            bcn(),
            StanfordSentimentTreeBankDatasetReader,
            {"sentence": "The walk was long, but splendid."},
        ),
    ],
    ids=["esim", "bcn"],
)
def test_predicts_from_json_without_a_spacy_model(params, reader, texts):
    compat.repair()
    model = build(params)
    predictor = Predictor.by_name(model.default_predictor)(model, reader())
    found = predictor.predict_json(texts)
    assert found["label"] in {label for *_, label in DATA[params["type"]]}
    (key,) = {"label_probs", "class_probabilities"} & found.keys()
    assert sum(found[key]) == pytest.approx(1.0)
    assert predictor.predict(*texts.values()) == found


def test_esim_attention_dropout_reaches_the_projection_in_training_only():
    params = esim(dropout=0.0, attention_dropout=0.5)
    model = build(params)
    seen = []
    model._projection_feedforward.register_forward_hook(lambda m, inputs, o: seen.append(inputs[0]))
    batch = tensors(model, instances(params))
    model(**batch)
    model.train()(**batch)
    whole, dropped = seen[0], seen[2]
    gone = dropped == 0
    assert 0.3 < gone.float().mean() < 0.7
    torch.testing.assert_close(dropped[~gone], 2 * whole[~gone])
