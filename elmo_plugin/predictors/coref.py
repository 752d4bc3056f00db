"""Predictor for coreference resolution: clusters mentions that refer to the same entity."""

import logging
from typing import Any, Dict, List, Tuple

import numpy
from allennlp.common.util import JsonDict, get_spacy_model
from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import ListField, SequenceLabelField, SpanField
from allennlp.models import Model
from allennlp.predictors import Predictor
from spacy.tokens import Doc

from elmo_plugin.data.spacy_model import DEFAULT, is_installed, split_by_rules
from elmo_plugin.predictors.interpretable import InterpretablePredictor, is_words

logger = logging.getLogger(__name__)

# English possessives, for documents without part-of-speech tags.
POSSESSIVES = {"my", "your", "his", "her", "its", "our", "their", "'s", "’s"}


@Predictor.register("coreference_resolution", exist_ok=True)
@Predictor.register("coreference-resolution", exist_ok=True)
class CorefPredictor(InterpretablePredictor):
    """
    Predictor for the model `coref` with the reader `coref`. The input is `{"document": "..."}`,
    which spaCy splits into words and sentences, or `{"sentences": [["...", ...], ...]}`. Both forms
    may also have `genre`. An input with `sentences` may have `speakers`: a list with a name for
    each sentence, or with a list of one name per word.

    If the spaCy model `language` is not installed or has no parser, sentences end at full stops,
    question marks and exclamation marks. Without the model, words are split by spaCy's rules.

    Registered as a `Predictor` with name "coreference_resolution".

    # Parameters

    model : `Model`
    dataset_reader : `DatasetReader`
    language : `str`, optional (default = `"en_core_web_sm"`)
        The spaCy model that splits documents.
    """

    def __init__(
        self, model: Model, dataset_reader: DatasetReader, language: str = DEFAULT
    ) -> None:
        super().__init__(model, dataset_reader)
        if not is_installed(language):
            logger.warning(
                "the spaCy model %s is not installed: spaCy's rules split sentences", language
            )
        split_by_rules(language)
        self._spacy = get_spacy_model(language, pos_tags=True, parse=True, ner=False)
        if not {"parser", "senter", "sentencizer"} & set(self._spacy.pipe_names):
            self._spacy.add_pipe("sentencizer")

    def predict(self, document: str) -> JsonDict:
        """
        Return a dictionary with the tokens as `document`, the clusters as `clusters`, and the rest
        of the model's output. A cluster is a list of mentions `[first token, last token]`.
        """
        return self.predict_json({"document": document})

    def predict_tokenized(self, tokenized_document: List[str]) -> JsonDict:
        """Return the result of `predict` for a list of words, which spaCy groups into sentences."""
        return self.predict_instance(self._words_list_to_instance(tokenized_document))

    def coref_resolved(self, document: str) -> str:
        """Return the document with each mention replaced by the first one of its cluster."""
        return self.replace_corefs(self._spacy(document), self.predict(document)["clusters"])

    @staticmethod
    def replace_corefs(document: Doc, clusters: List[List[List[int]]]) -> str:
        """
        Return the text of `document` with each mention replaced by the first mention of its
        cluster. A possessive mention is replaced by a possessive form. Mentions inside a replaced
        mention disappear. `clusters` has the form that `predict` returns.
        """
        texts = [token.text_with_ws for token in document]
        replaced = [
            (first, last, document[start : end + 1].text)
            for (start, end), *others in clusters
            for first, last in others
        ]
        done = -1
        for first, last, main in sorted(replaced, key=lambda one: (one[0], -one[1])):
            if first <= done:
                continue
            final = document[last]
            possessive = final.tag_ in ("PRP$", "POS") or (
                not final.tag_ and final.lower_ in POSSESSIVES
            )
            texts[first] = main + ("'s" if possessive else "") + final.whitespace_
            texts[first + 1 : last + 1] = [""] * (last - first)
            done = last
        return "".join(texts)

    def predictions_to_labeled_instances(
        self, instance: Instance, outputs: Dict[str, numpy.ndarray]
    ) -> List[Instance]:
        """
        Return a list with a copy of the instance for each predicted cluster, which is the only gold
        cluster of that copy. If no cluster is predicted, return one copy without clusters.
        """
        labeled = []
        # `get_gradients` renames `clusters` to `predicted_clusters`.
        clusters = outputs["clusters" if "clusters" in outputs else "predicted_clusters"]
        spans: ListField = instance["spans"]  # type: ignore[assignment]
        for cluster in list(clusters) or [[]]:
            mentions = {tuple(mention) for mention in cluster}
            labels = [
                0 if (span.span_start, span.span_end) in mentions else -1
                for span in spans
                if isinstance(span, SpanField)
            ]
            copy = instance.duplicate()
            copy.add_field("span_labels", SequenceLabelField(labels, spans), self._model.vocab)
            metadata: Any = copy["metadata"]
            metadata.metadata["clusters"] = [cluster] if cluster else []
            labeled.append(copy)
        return labeled

    def get_gradients(self, instances: List[Instance]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """
        Return what AllenNLP's `Predictor.get_gradients` does, with the output's `clusters` renamed
        to `predicted_clusters`.
        """
        gradients, outputs = super().get_gradients(instances)
        # Hotflip expects the `clusters` of one document and would fail on those of a batch.
        outputs["predicted_clusters"] = outputs.pop("clusters")
        return gradients, outputs

    def check_tokens(self, instance: Instance) -> None:
        """Raise a `ValueError` if input reduction removed tokens."""
        text, metadata = instance["text"], instance["metadata"]
        if len(text) != len(metadata["original_text"]):  # type: ignore[index]
            raise ValueError(
                "found a document from which tokens were removed: input reduction is not "
                "possible for coreference, whose spans are counted in tokens"
            )

    def _words_list_to_instance(self, words: List[str]) -> Instance:
        document = self._spacy(Doc(self._spacy.vocab, words=words))
        return self._dataset_reader.text_to_instance(_sentences(document))

    def _json_to_instance(self, json_dict: JsonDict) -> Instance:
        document, sentences = json_dict.get("document"), json_dict.get("sentences")
        if isinstance(document, str) and sentences is None:
            if not document.strip():
                raise ValueError("found an empty document, expected words")
            if "speakers" in json_dict:
                raise ValueError("found speakers of an untokenized document, expected sentences")
            sentences, speakers = _sentences(self._spacy(document)), None
        elif document is None and isinstance(sentences, list) and all(map(is_words, sentences)):
            speakers = _speakers(sentences, json_dict.get("speakers"))
        else:
            raise ValueError(
                f"found the keys {sorted(json_dict)}; expected a string as `document`, or as "
                "`sentences` a list of lists of strings"
            )
        # Pass no gold clusters (the second argument), because they are to be predicted.
        return self._dataset_reader.text_to_instance(
            sentences, None, speakers, json_dict.get("genre") or ""
        )


def _sentences(document: Doc) -> List[List[str]]:
    """Return the tokens of each sentence. Like allennlp-models, keep white-space tokens."""
    return [[token.text for token in sentence] for sentence in document.sents]


def _speakers(sentences: Any, speakers: Any) -> Any:
    """Return a list for each sentence with the speaker of each word, or `None` for no speakers."""
    if speakers is None:
        return None
    if not isinstance(speakers, list) or len(speakers) != len(sentences):
        raise ValueError(
            f"found the speakers {speakers!r}, expected {len(sentences)}: a name for each sentence "
            "or a list of names, one for each word"
        )
    for names in speakers:
        if not isinstance(names, (str, list)):
            raise ValueError(
                f"found the speaker {names!r}, expected a name or a list of one for each word"
            )
    return [
        [names] * len(words) if isinstance(names, str) else names
        for words, names in zip(sentences, speakers)
    ]
