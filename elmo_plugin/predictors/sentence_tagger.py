"""Predictor for tagging, such as NER: predicts a tag for each token of a sentence."""

from typing import Any, Dict, List

from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader, Instance
from allennlp.data.dataset_readers.dataset_utils import bio_tags_to_spans
from allennlp.data.fields import FlagField, SequenceLabelField
from allennlp.data.tokenizers import Token
from allennlp.models import Model
from allennlp.predictors import Predictor
from allennlp.predictors import SentenceTaggerPredictor as AllenNlpSentenceTaggerPredictor

from elmo_plugin.data.spacy_model import DEFAULT, split_by_rules
from elmo_plugin.metrics.conlleval import bio_tags
from elmo_plugin.predictors.interpretable import InterpretablePredictor, check_texts, is_words


@Predictor.register("sentence_tagger", exist_ok=True)
@Predictor.register("sentence-tagger", exist_ok=True)
class SentenceTaggerPredictor(InterpretablePredictor, AllenNlpSentenceTaggerPredictor):
    """
    AllenNLP's `SentenceTaggerPredictor`, extended to accept tokenized input. The input is
    `{"sentence": "..."}`, which spaCy splits into tokens, or `{"tokens": ["...", ...]}`.

    Registered as a `Predictor` with name "sentence_tagger".

    # Parameters

    model : `Model`
    dataset_reader : `DatasetReader`
    language : `str`, optional (default = `"en_core_web_sm"`)
        The spaCy model that splits sentences; if it is not installed, its language's rules do.
    """

    def __init__(
        self, model: Model, dataset_reader: DatasetReader, language: str = DEFAULT
    ) -> None:
        split_by_rules(language)
        super().__init__(model, dataset_reader, language)

    def _json_to_instance(self, json_dict: JsonDict) -> Instance:
        if "tokens" not in json_dict:
            check_texts(json_dict, "sentence", or_else=" or a list of strings as `tokens`")
            return super()._json_to_instance(json_dict)
        tokens = json_dict["tokens"]
        if not is_words(tokens):
            raise ValueError(f"tokens: found {tokens!r}; expected a list of strings")
        return self._dataset_reader.text_to_instance([Token(token) for token in tokens])

    def predictions_to_labeled_instances(
        self, instance: Instance, outputs: Dict[str, Any]
    ) -> List[Instance]:
        """
        Return a list with one copy of the instance for each predicted span. Each copy has that span
        as its only gold span. If no span is predicted, or tags encode no spans (`label_encoding` is
        `None`), return a list of one copy with all predicted tags.
        """
        tags = list(outputs["tags"])
        encoding = getattr(self._model, "label_encoding", "BIOUL")
        spans = []
        if encoding is not None:
            spans = [span for _, span in bio_tags_to_spans(bio_tags(tags, encoding))]
        if not spans:
            return [self._labeled(instance, tags)]
        labeled = []
        for start, end in sorted(spans):
            one = self._labeled(
                instance, [tag if start <= i <= end else "O" for i, tag in enumerate(tags)]
            )
            # Leave other tokens out of the loss, so that the gradients come from this span only.
            one.add_field("ignore_loss_on_o_tags", FlagField(True))
            labeled.append(one)
        return labeled

    def check_tokens(self, instance: Instance) -> None:
        """Raise a `ValueError` if input reduction removed all tokens."""
        if not len(instance["tokens"]):
            raise ValueError(
                "found a sentence from which all tokens were removed: input reduction keeps the "
                "tokens of a span, and the model predicts none"
            )

    def _labeled(self, instance: Instance, tags: List[str]) -> Instance:
        namespace = getattr(self._model, "label_namespace", "labels")
        labeled = instance.duplicate()
        field = SequenceLabelField(tags, labeled["tokens"], namespace)  # type: ignore[arg-type]
        labeled.add_field("tags", field, self._model.vocab)
        return labeled
