"""Predictor for reading comprehension: finds the answer to a question in a passage."""

from typing import Dict, List

import numpy
from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.data.fields import IndexField
from allennlp.predictors import Predictor

from elmo_plugin.predictors.interpretable import InterpretablePredictor, check_texts


@Predictor.register("reading_comprehension", exist_ok=True)
@Predictor.register("reading-comprehension", exist_ok=True)
@Predictor.register("machine-comprehension", exist_ok=True)
class ReadingComprehensionPredictor(InterpretablePredictor):
    """
    Predictor for models such as `bidaf_self_attention` with the reader `squad`. The input is
    `{"question": "...", "passage": "..."}`. The result is the model's output, in which
    `best_span_str` is the text of the answer. In the results of AllenNLP's interpreters,
    `grad_input_1` belongs to the question and `grad_input_2` to the passage.

    Registered as a `Predictor` with name "reading_comprehension".
    """

    def predict(self, question: str, passage: str) -> JsonDict:
        """
        Return the model's output. `best_span_str` is the text of the answer, `best_span` the
        indices of its first and last token, and `passage_tokens` the tokens of the passage. Raise a
        `ValueError` if question or passage is empty.
        """
        return self.predict_json({"question": question, "passage": passage})

    def _json_to_instance(self, json_dict: JsonDict) -> Instance:
        check_texts(json_dict, "question", "passage")
        return self._dataset_reader.text_to_instance(json_dict["question"], json_dict["passage"])

    def predictions_to_labeled_instances(
        self, instance: Instance, outputs: Dict[str, numpy.ndarray]
    ) -> List[Instance]:
        """Return a list of one copy of the instance, with the predicted answer as gold answer."""
        if "best_span" not in outputs:
            raise ValueError(f"found the outputs {sorted(outputs)}, expected best_span")
        labeled = instance.duplicate()
        for name, place in zip(("span_start", "span_end"), outputs["best_span"], strict=True):
            field = IndexField(int(place), labeled["passage"])  # type: ignore[arg-type]
            labeled.add_field(name, field, self._model.vocab)
        return [labeled]
