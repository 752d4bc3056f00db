"""Predicts whether a premise entails a hypothesis."""

from typing import Dict, List

import numpy
from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.data.fields import LabelField
from allennlp.predictors import Predictor


@Predictor.register("textual_entailment", exist_ok=True)
class TextualEntailmentPredictor(Predictor):
    """
    For models of sentence pairs such as `esim`, whose reader is `snli`. Takes
    `{"premise": "...", "hypothesis": "..."}` and gives the model's output with its `label`.
    """

    def predict(self, premise: str, hypothesis: str) -> JsonDict:
        """
        # Parameters

        premise : `str`
            A sentence taken to be true.
        hypothesis : `str`
            A sentence that may follow from it.

        # Returns

        `JsonDict`
            Among others `label_probs`, the probability of each label, and `label`.
        """
        return self.predict_json({"premise": premise, "hypothesis": hypothesis})

    def _json_to_instance(self, json_dict: JsonDict) -> Instance:
        missing = [key for key in ("premise", "hypothesis") if key not in json_dict]
        if missing:
            raise ValueError(f"found the keys {sorted(json_dict)}, expected premise and hypothesis")
        for key in ("premise", "hypothesis"):
            if not isinstance(json_dict[key], str):
                raise ValueError(f"{key}: found {json_dict[key]!r}, expected a string")
        return self._dataset_reader.text_to_instance(json_dict["premise"], json_dict["hypothesis"])

    def predictions_to_labeled_instances(
        self, instance: Instance, outputs: Dict[str, numpy.ndarray]
    ) -> List[Instance]:
        """
        # Parameters

        instance : `Instance`
            Without a label.
        outputs : `Dict[str, numpy.ndarray]`
            The model's, with `label_logits`.

        # Returns

        `List[Instance]`
            One instance, labelled with the prediction.
        """
        labeled = instance.duplicate()
        label = int(numpy.argmax(outputs["label_logits"]))
        labeled.add_field("label", LabelField(label, skip_indexing=True))
        return [labeled]
