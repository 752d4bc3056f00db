"""Predicts the arguments of a sentence's predicates."""

from typing import List, Union

from allennlp.common.util import JsonDict, sanitize
from allennlp.data import DatasetReader, Instance, Token
from allennlp.data.tokenizers import SpacyTokenizer
from allennlp.models import Model
from allennlp.predictors import Predictor
from spacy.tokens import Doc

from elmo_plugin.compat import split_by_rules


@Predictor.register("semantic_role_labeling", exist_ok=True)
class SemanticRoleLabelerPredictor(Predictor):
    """
    For models such as `srl`, whose reader is `srl`. Takes `{"sentence": "..."}`, split by spaCy, or
    `{"tokens": ["...", ...]}`. The predicates may be given as `verbs`: words of the sentence (each
    place where one stands is a predicate), or token indices from 0. Without `verbs` they are what
    spaCy's tagger calls verbs, and auxiliaries in English, as in allennlp-models; that needs the
    spaCy model `language` to be installed, given verbs do not.

    Registered as a `Predictor` with name "semantic_role_labeling".

    # Parameters

    model : `Model`
    dataset_reader : `DatasetReader`
    language : `str`, optional (default = `"en_core_web_sm"`)
        The spaCy model that splits sentences and finds verbs. Where it is not installed, spaCy's
        rules for the language split them.
    """

    def __init__(
        self, model: Model, dataset_reader: DatasetReader, language: str = "en_core_web_sm"
    ) -> None:
        super().__init__(model, dataset_reader)
        self._language = language
        split_by_rules(language)
        self._tokenizer = SpacyTokenizer(language=language, pos_tags=True)

    def predict(self, sentence: str) -> JsonDict:
        """
        # Parameters

        sentence : `str`
            Its verbs are found by spaCy.

        # Returns

        `JsonDict`
            `words`, and in `verbs` for each predicate `verb`, `tags` and `description`, the
            sentence with its arguments in brackets.
        """
        return self.predict_json({"sentence": sentence})

    def predict_tokenized(self, tokenized_sentence: List[str]) -> JsonDict:
        """
        # Parameters

        tokenized_sentence : `List[str]`
            Words, whose verbs are found by spaCy.

        # Returns

        `JsonDict`
            As `predict` returns it.
        """
        return self.predict_json({"tokens": tokenized_sentence})

    def predict_json(self, inputs: JsonDict) -> JsonDict:
        """
        # Parameters

        inputs : `JsonDict`
            `sentence` or `tokens`, and perhaps `verbs`.

        # Returns

        `JsonDict`
            As `predict` returns it.

        # Raises

        `ValueError`
            If the input is not so, or no verbs are given and spaCy's model is not installed.
        """
        return self.predict_batch_json([inputs])[0]

    def predict_batch_json(self, inputs: List[JsonDict]) -> List[JsonDict]:
        """
        # Parameters

        inputs : `List[JsonDict]`
            As `predict_json` takes them.

        # Returns

        `List[JsonDict]`
            As `predict` returns them, one per input.
        """
        sentences = [self._tokens(one) for one in inputs]
        results: List[JsonDict] = [
            {"verbs": [], "words": [token.text for token in tokens]} for tokens in sentences
        ]
        instances, owners = [], []
        for index, (one, tokens) in enumerate(zip(inputs, sentences, strict=True)):
            for instance in self.tokens_to_instances(tokens, one.get("verbs")):
                instances.append(instance)
                owners.append(index)
        # As many predicates in a batch as sentences were given, but all of a sentence's at least.
        size = max([1, len(inputs), *(owners.count(index) for index in range(len(inputs)))])
        outputs: List[JsonDict] = []
        for start in range(0, len(instances), size):
            outputs += self._model.forward_on_instances(instances[start : start + size])
        for index, output in zip(owners, outputs, strict=True):
            results[index]["verbs"].append(self._frame(output))
        return sanitize(results)

    def predict_instances(self, instances: List[Instance]) -> JsonDict:
        """
        # Parameters

        instances : `List[Instance]`
            The predicates of one sentence.

        # Returns

        `JsonDict`
            As `predict` returns it.
        """
        outputs = self._model.forward_on_instances(instances)
        frames = [self._frame(output) for output in outputs]
        return sanitize({"verbs": frames, "words": outputs[0]["words"]})

    def tokens_to_instances(
        self, tokens: List[Token], verbs: Union[List[str], List[int], None] = None
    ) -> List[Instance]:
        """
        # Parameters

        tokens : `List[Token]`
            With spaCy's `pos_` where no verbs are given.
        verbs : `Union[List[str], List[int], None]`, optional (default = `None`)
            Words of the sentence or token indices.

        # Returns

        `List[Instance]`
            One per predicate, in the order of the tokens.
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
        words = (
            [word for word in tokens if isinstance(word, str)] if isinstance(tokens, list) else []
        )
        if sentence is None and words == tokens and "" in words:
            raise ValueError(f"tokens: found an empty one in {words}, expected words")
        if sentence is None and words == tokens:
            doc = Doc(self._tokenizer.spacy.vocab, words=words)
            for _, component in self._tokenizer.spacy.pipeline:
                doc = component(doc)
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
        if "tagger" not in self._tokenizer.spacy.pipe_names:
            raise ValueError(
                f"the spaCy model {self._language!r}, which finds verbs, is not installed; "
                f"expected it (python -m spacy download {self._language}), "
                'or "verbs": [...] in the input'
            )
        # Only English is known to tag as auxiliaries what PropBank annotates.
        kinds = ("VERB", "AUX") if self._language.startswith("en_") else ("VERB",)
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
        # Parameters

        words : `List[str]`
        tags : `List[str]`
            Well-formed BIO tags, one per word.

        # Returns

        `str`
            Such as `[ARG0: The dog] [V: barks] .`
        """
        parts: List[str] = []
        for word, tag, after in zip(words, tags, [*tags[1:], "O"], strict=True):
            text = f"[{tag[2:]}: {word}" if tag.startswith("B-") else word
            parts.append(text if tag == "O" or after.startswith("I-") else text + "]")
        return " ".join(parts)

    def _json_to_instance(self, json_dict: JsonDict) -> Instance:
        raise NotImplementedError("a sentence has one instance per verb: use predict_json")
