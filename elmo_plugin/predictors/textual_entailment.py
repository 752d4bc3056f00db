"""Predictor for textual entailment: predicts whether a premise entails a hypothesis."""

from typing import Dict, List

import numpy
from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.data.fields import LabelField
from allennlp.predictors import Predictor

from elmo_plugin.predictors.interpretable import InterpretablePredictor, check_texts


@Predictor.register("textual_entailment", exist_ok=True)
@Predictor.register("textual-entailment", exist_ok=True)
class TextualEntailmentPredictor(InterpretablePredictor):
    """
    Predictor for models of sentence pairs, such as `esim` with the reader `snli`. The input is
    `{"premise": "...", "hypothesis": "..."}`. The result is the model's output, in which `label` is
    the most probable label. In the results of AllenNLP's interpreters, `grad_input_1` belongs to
    the hypothesis and `grad_input_2` to the premise.

    Registered as a `Predictor` with name "textual_entailment".
    """

    def predict(self, premise: str, hypothesis: str) -> JsonDict:
        """
        Predict whether the hypothesis follows from the premise, and return the model's output.
        `label` is the most probable label; `probabilities` maps each label to its probability.
        """
        return self.predict_json({"premise": premise, "hypothesis": hypothesis})

    def _json_to_instance(self, json_dict: JsonDict) -> Instance:
        check_texts(json_dict, "premise", "hypothesis")
        return self._dataset_reader.text_to_instance(json_dict["premise"], json_dict["hypothesis"])

    def predictions_to_labeled_instances(
        self, instance: Instance, outputs: Dict[str, numpy.ndarray]
    ) -> List[Instance]:
        """Return a list of one copy of the instance, whose gold label is the most probable one."""
        labeled = instance.duplicate()
        label = int(numpy.argmax(outputs["label_logits"]))
        labeled.add_field("label", LabelField(label, skip_indexing=True))
        return [labeled]
