"""Predictor for semantic role labelling: finds the arguments of each predicate in a sentence."""

from typing import Any, Dict, List, Optional, Union

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import JsonDict, sanitize
from allennlp.data import DatasetReader, Instance, Token
from allennlp.data.fields import SequenceLabelField
from allennlp.data.tokenizers import SpacyTokenizer
from allennlp.models import Model
from allennlp.predictors import Predictor
from spacy.tokens import Doc

from elmo_plugin.data.spacy_model import DEFAULT, split_by_rules
from elmo_plugin.predictors.interpretable import InterpretablePredictor, is_words


@Predictor.register("semantic_role_labeling", exist_ok=True)
@Predictor.register("semantic-role-labeling", exist_ok=True)
class SemanticRoleLabelerPredictor(InterpretablePredictor):
    """
    Predictor for the model `srl` with the reader `srl`. The input is `{"sentence": "..."}`, which
    spaCy splits into tokens, or `{"tokens": ["...", ...]}`.

    The input may list the predicates under `verbs`, as words or as token indices from 0. Each
    occurrence of a listed word is a predicate. Without `verbs`, the predicates are the words that
    `tagger` tags as verbs. Without `tagger`, the spaCy model `language` tags them. In English,
    auxiliaries are then predicates too, as in allennlp-models.

    Registered as a `Predictor` with name "semantic_role_labeling".

    # Parameters

    model : `Model`
    dataset_reader : `DatasetReader`
    language : `str`, optional (default = `"en_core_web_sm"`)
        The spaCy model that splits sentences into tokens and finds verbs. If it is not installed,
        sentences are split by spaCy's rules for the language.
    tagger : `str`, optional (default = `None`)
        Archive of a `crf_tagger` that tags parts of speech, such as one trained with the reader
        `conll2003` and `tag_label: "pos"`. Verbs have tags that begin with `V`, or `AUX` or `MD`.

    # Raises

    `ConfigurationError`
        If `tagger` cannot be loaded, or has no tag for verbs.
    """

    def __init__(
        self,
        model: Model,
        dataset_reader: DatasetReader,
        language: str = DEFAULT,
        tagger: Optional[str] = None,
    ) -> None:
        super().__init__(model, dataset_reader)
        self._language = language
        split_by_rules(language)
        self._tokenizer = SpacyTokenizer(language=language, pos_tags=True)
        self._tagger = None if tagger is None else _load_tagger(tagger)

    def predict(self, sentence: str) -> JsonDict:
        """
        Return a dictionary. `words` lists the tokens. `verbs` lists a dictionary for each predicate
        with `verb`, the BIO `tags`, and `description`: the sentence with arguments in brackets.
        """
        return self.predict_json({"sentence": sentence})

    def predict_tokenized(self, tokenized_sentence: List[str]) -> JsonDict:
        """Return the result of `predict` for a sentence that is already split."""
        return self.predict_json({"tokens": tokenized_sentence})

    def predict_json(self, inputs: JsonDict) -> JsonDict:
        """
        Return the result of `predict` for an input with `sentence` or `tokens`, and maybe `verbs`.
        Raise a `ValueError` for other input, or if `verbs` is missing and nothing can find them.
        """
        return self.predict_batch_json([inputs])[0]

    def predict_batch_json(self, inputs: List[JsonDict]) -> List[JsonDict]:
        """Return the result of `predict_json` for each input."""
        sentences = [self._tokens(one) for one in inputs]
        results: List[JsonDict] = [
            {"verbs": [], "words": [token.text for token in tokens]} for tokens in sentences
        ]
        instances, owners = [], []
        for index, (one, tokens) in enumerate(zip(inputs, sentences, strict=True)):
            for instance in self.tokens_to_instances(tokens, one.get("verbs")):
                instances.append(instance)
                owners.append(index)
        # Limit a batch to the number of inputs, but let it hold all predicates of any one input.
        size = max([1, len(inputs), *(owners.count(index) for index in range(len(inputs)))])
        outputs: List[JsonDict] = []
        for start in range(0, len(instances), size):
            outputs += self._model.forward_on_instances(instances[start : start + size])
        for index, output in zip(owners, outputs, strict=True):
            results[index]["verbs"].append(self._frame(output))
        return sanitize(results)

    def predict_instances(self, instances: List[Instance]) -> JsonDict:
        """Return the result of `predict` for one sentence, given as an instance per predicate."""
        outputs = self._model.forward_on_instances(instances)
        frames = [self._frame(output) for output in outputs]
        return sanitize({"verbs": frames, "words": outputs[0]["words"]})

    def tokens_to_instances(
        self, tokens: List[Token], verbs: Union[List[str], List[int], None] = None
    ) -> List[Instance]:
        """
        Return an instance for each predicate, in the order of the tokens. `verbs` is a list of
        words or token indices. If it is `None`, `tagger` finds the verbs; without a `tagger`, each
        token must have spaCy's part of speech as `pos_`.
        """
        return [
            self._dataset_reader.text_to_instance(
                tokens, [int(position == index) for position in range(len(tokens))]
            )
            for index in self._verb_indices(tokens, verbs)
        ]

    def _tokens(self, json_dict: JsonDict) -> List[Token]:
        sentence, tokens = json_dict.get("sentence"), json_dict.get("tokens")
        if isinstance(sentence, str) and tokens is None:
            return self._tokenizer.tokenize(sentence)
        if sentence is None and is_words(tokens):
            if "" in tokens:
                raise ValueError(f"tokens: found an empty one in {tokens}, expected words")
            pipeline = self._tokenizer.spacy
            doc = pipeline(Doc(pipeline.vocab, words=tokens))
            return [Token(token.text, pos_=token.pos_) for token in doc]
        raise ValueError(
            f"found the keys {sorted(json_dict)}; expected a string as `sentence` or a list of "
            "strings as `tokens`"
        )

    def _verb_indices(
        self, tokens: List[Token], verbs: Union[List[str], List[int], None]
    ) -> List[int]:
        words = [token.text for token in tokens]
        if verbs is None:
            return self._found_verbs(tokens)
        if not isinstance(verbs, list):
            raise ValueError(f"verbs: found {verbs!r}, expected a list of words or token indices")
        indices = set()
        for verb in verbs:
            if isinstance(verb, int) and not isinstance(verb, bool) and 0 <= verb < len(words):
                indices.add(verb)
            elif isinstance(verb, str) and verb in words:
                indices.update(index for index, word in enumerate(words) if word == verb)
            else:
                raise ValueError(
                    f"verbs: found {verb!r}, expected a word of {words} or a token index below "
                    f"{len(words)}"
                )
        return sorted(indices)

    def _found_verbs(self, tokens: List[Token]) -> List[int]:
        if not tokens:
            return []
        if self._tagger is not None:
            words = [token.text for token in tokens]
            tags = self._tagger.predict_json({"tokens": words})["tags"]
            return [index for index, tag in enumerate(tags) if _is_verb(tag)]
        if "tagger" not in self._tokenizer.spacy.pipe_names:
            raise ValueError(
                f"the spaCy model {self._language!r}, which finds verbs, is not installed; "
                f"expected it (python -m spacy download {self._language}), "
                '"verbs": [...] in the input, or --predictor-args '
                '\'{"tagger": "POS_TAGGER/model.tar.gz"}\''
            )
        # Auxiliaries count as predicates in English, because the English PropBank annotates them.
        kinds = ("VERB", "AUX") if self._tokenizer.spacy.lang == "en" else ("VERB",)
        return [index for index, token in enumerate(tokens) if token.pos_ in kinds]

    def _frame(self, output: JsonDict) -> JsonDict:
        return {
            "verb": output["verb"],
            "description": self.make_srl_string(output["words"], output["tags"]),
            "tags": output["tags"],
        }

    @staticmethod
    def make_srl_string(words: List[str], tags: List[str]) -> str:
        """
        Return a sentence with its arguments in brackets, such as `[ARG0: The dog] [V: barks] .`.
        `tags` holds a BIO tag for each word, well-formed.
        """
        parts: List[str] = []
        for word, tag, after in zip(words, tags, [*tags[1:], "O"], strict=True):
            text = f"[{tag[2:]}: {word}" if tag.startswith("B-") else word
            parts.append(text if tag == "O" or after.startswith("I-") else text + "]")
        return " ".join(parts)

    def _json_to_instance(self, json_dict: JsonDict) -> Instance:
        instances = self.tokens_to_instances(self._tokens(json_dict), json_dict.get("verbs"))
        if len(instances) != 1:
            raise ValueError(
                f"found {len(instances)} predicates, expected one to make an instance of; "
                '"verbs": [...] in the input chooses it'
            )
        return instances[0]

    def json_to_labeled_instances(self, inputs: JsonDict) -> List[Instance]:
        """Return an instance for each predicate, with the predicted arguments as gold tags."""
        instances = self.tokens_to_instances(self._tokens(inputs), inputs.get("verbs"))
        if not instances:
            raise ValueError("found no predicate in this sentence: nothing to interpret")
        outputs = self._model.forward_on_instances(instances)
        return [
            labeled
            for instance, output in zip(instances, outputs, strict=True)
            for labeled in self.predictions_to_labeled_instances(instance, output)
        ]

    def predictions_to_labeled_instances(
        self, instance: Instance, outputs: Dict[str, Any]
    ) -> List[Instance]:
        """Return a list of one copy of the instance, with the predicted tags as gold tags."""
        labeled = instance.duplicate()
        tags = SequenceLabelField(list(outputs["tags"]), labeled["tokens"])  # type: ignore[arg-type]
        labeled.add_field("tags", tags, self._model.vocab)
        return [labeled]

    def check_tokens(self, instance: Instance) -> None:
        """Raise a `ValueError` if input reduction removed tokens."""
        tokens, indicator = instance["tokens"], instance["verb_indicator"]
        if len(tokens) != len(indicator.labels):  # type: ignore[attr-defined]
            raise ValueError(
                "found a sentence from which tokens were removed: input reduction is not "
                "possible for semantic roles, whose predicate is marked token by token"
            )


def _load_tagger(archive: str) -> Predictor:
    try:
        tagger = Predictor.from_path(archive, "sentence_tagger")
    except (OSError, ConfigurationError) as error:
        raise ConfigurationError(
            f"tagger: {archive!r} cannot be loaded ({error}), expected the archive of a crf_tagger"
        ) from error
    tags = tagger._model.vocab.get_token_to_index_vocabulary("labels")
    if not any(_is_verb(tag) for tag in tags):
        raise ConfigurationError(
            f"tagger: {archive!r} has the labels {list(tags)[:8]}, expected parts of speech, with "
            "V..., AUX or MD among them"
        )
    return tagger


def _is_verb(tag: str) -> bool:
    return tag.startswith("V") or tag in ("AUX", "MD")
