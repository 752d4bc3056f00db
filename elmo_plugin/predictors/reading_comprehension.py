"""Predicts the answer to a question on a passage."""

from typing import Dict, List

import numpy
from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.data.fields import IndexField
from allennlp.predictors import Predictor


@Predictor.register("reading_comprehension", exist_ok=True)
class ReadingComprehensionPredictor(Predictor):
    """
    For models such as `bidaf_self_attention`, whose reader is `squad`. Takes `{"question": "...",
    "passage": "..."}` and gives the model's output; `best_span_str` is the answer, as the passage
    spells it.

    Registered as a `Predictor` with name "reading_comprehension".
    """

    def predict(self, question: str, passage: str) -> JsonDict:
        """
        # Parameters

        question : `str`
        passage : `str`
            A text that answers it.

        # Returns

        `JsonDict`
            Among others `best_span_str`, the answer, `best_span`, its first and last token, and
            `passage_tokens`.

        # Raises

        `ValueError`
            If one of them is empty.
        """
        return self.predict_json({"question": question, "passage": passage})

    def _json_to_instance(self, json_dict: JsonDict) -> Instance:
        for name in ("question", "passage"):
            if not isinstance(json_dict.get(name), str):
                raise ValueError(
                    f"found the keys {sorted(json_dict)}, expected a string as `question` and one "
                    "as `passage`"
                )
        return self._dataset_reader.text_to_instance(json_dict["question"], json_dict["passage"])

    def predictions_to_labeled_instances(
        self, instance: Instance, outputs: Dict[str, numpy.ndarray]
    ) -> List[Instance]:
        """
        # Parameters

        instance : `Instance`
            Without an answer.
        outputs : `Dict[str, numpy.ndarray]`
            The model's, with `best_span`.

        # Returns

        `List[Instance]`
            One instance, with the prediction as its answer.

        # Raises

        `ValueError`
            If the model predicts no span.
        """
        if "best_span" not in outputs:
            raise ValueError(f"found the outputs {sorted(outputs)}, expected best_span")
        labeled = instance.duplicate()
        for name, place in zip(("span_start", "span_end"), outputs["best_span"], strict=True):
            field = IndexField(int(place), labeled["passage"])  # type: ignore[arg-type]
            labeled.add_field(name, field, self._model.vocab)
        return [labeled]
