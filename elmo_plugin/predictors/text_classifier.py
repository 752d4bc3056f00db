"""Predictor for text classification: predicts the label of a text."""

from typing import Any, Dict, List

from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.predictors import Predictor
from allennlp.predictors import TextClassifierPredictor as AllenNlpTextClassifierPredictor

from elmo_plugin.data.spacy_model import DEFAULT, split_by_rules
from elmo_plugin.predictors.interpretable import InterpretablePredictor, check_texts


@Predictor.register("text_classifier", exist_ok=True)
@Predictor.register("text-classifier", exist_ok=True)
class TextClassifierPredictor(InterpretablePredictor, AllenNlpTextClassifierPredictor):
    """
    AllenNLP's `TextClassifierPredictor`, extended for models such as `bcn`. AllenNLP's interpreters
    then work with models that output `class_probabilities` instead of `probs`. The input is
    `{"sentence": "..."}`.

    Registered as a `Predictor` with name "text_classifier".
    """

    def _json_to_instance(self, json_dict: JsonDict) -> Instance:
        check_texts(json_dict, "sentence")
        split_by_rules(DEFAULT)
        return super()._json_to_instance(json_dict)

    def predictions_to_labeled_instances(
        self, instance: Instance, outputs: Dict[str, Any]
    ) -> List[Instance]:
        """Return a list with one copy of the instance, labelled with the most probable label."""
        probabilities = outputs["probs" if "probs" in outputs else "class_probabilities"]
        return super().predictions_to_labeled_instances(instance, {"probs": probabilities})
