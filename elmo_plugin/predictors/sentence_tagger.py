"""Predicts the tags of a sentence."""

from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.data.tokenizers import Token
from allennlp.predictors import Predictor
from allennlp.predictors import SentenceTaggerPredictor as AllenNlpSentenceTaggerPredictor


@Predictor.register("sentence_tagger", exist_ok=True)
class SentenceTaggerPredictor(AllenNlpSentenceTaggerPredictor):
    """
    AllenNLP's predictor of this name, which takes `{"sentence": "..."}` and splits it by spaCy. It
    takes `{"tokens": ["...", ...]}` too, for text that is already split.

    Registered as a `Predictor` with name "sentence_tagger".
    """

    def _json_to_instance(self, json_dict: JsonDict) -> Instance:
        if "tokens" not in json_dict:
            if not isinstance(json_dict.get("sentence"), str):
                raise ValueError(
                    f"found the keys {sorted(json_dict)}; expected a string as `sentence` or a "
                    "list of strings as `tokens`"
                )
            return super()._json_to_instance(json_dict)
        tokens = json_dict["tokens"]
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise ValueError(f"tokens: found {tokens!r}; expected a list of strings")
        return self._dataset_reader.text_to_instance([Token(token) for token in tokens])
