import pytest
import torch
from allennlp.data.tokenizers import WhitespaceTokenizer

from elmo_plugin.data.readers.snli import SnliReader
from elmo_plugin.predictors.textual_entailment import TextualEntailmentPredictor


def predictor():
    reader = SnliReader(tokenizer=WhitespaceTokenizer())
    return TextualEntailmentPredictor(torch.nn.Linear(1, 1), reader)  # the model is not called


def test_json_becomes_a_pair():
    json = {"premise": "A dog runs", "hypothesis": "It moves"}
    instance = predictor()._json_to_instance(json)
    assert [token.text for token in instance["premise"]] == ["A", "dog", "runs"]
    assert [token.text for token in instance["hypothesis"]] == ["It", "moves"]


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        ({"premise": "A dog", "text": "It"}, r"the keys \['premise', 'text'\]"),
        *(({"premise": one, "hypothesis": "It"}, "premise: ") for one in (3, None, ["A"])),
    ],
)
def test_what_is_no_string_is_named(inputs, found):
    with pytest.raises(ValueError, match=f"found {found}.*; expected a string as `premise` and"):
        predictor()._json_to_instance(inputs)


def test_a_prediction_labels_its_instance():
    instance = predictor()._json_to_instance({"premise": "A", "hypothesis": "B"})
    (labeled,) = predictor().predictions_to_labeled_instances(
        instance, {"label_logits": [0.1, 2.0, -1.0]}
    )
    assert labeled["label"].label == 1
    assert "label" not in instance.fields
