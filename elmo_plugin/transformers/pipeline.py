"""Pipeline of Hugging Face transformers for tagging."""

from typing import Any

from transformers.pipelines import TokenClassificationPipeline

from elmo_plugin.transformers.models import ElmoForTokenClassification
from elmo_plugin.transformers.tokenizer import ElmoTokenizer


class ElmoTokenClassificationPipeline(TokenClassificationPipeline):
    """
    Pipeline `token-classification` that knows that a token of `ElmoTokenizer` is a whole word. It
    is the stock pipeline for every other tokenizer.
    """

    def check_model_type(self, supported_models: Any) -> None:
        """Accept `ElmoForTokenClassification`, which transformers' own list does not have."""
        if not isinstance(self.model, ElmoForTokenClassification):
            super().check_model_type(supported_models)

    def gather_pre_entities(
        self, sentence: str, input_ids: Any, scores: Any, offsets: Any, *rest: Any, **words: Any
    ) -> list[dict[str, Any]]:
        """Return text, scores and place of each word."""
        if not isinstance(self.tokenizer, ElmoTokenizer):
            return super().gather_pre_entities(sentence, input_ids, scores, offsets, *rest, **words)
        places = [(int(start), int(end)) for start, end in offsets]
        if words.get("word_to_chars_map") is not None:
            places = [tuple(words["word_to_chars_map"][one]) for one in words["word_ids"]]
        found = (
            {"word": sentence[start:end], "start": start, "end": end, "is_subword": False}
            for start, end in places
        )
        return [
            {**one, "scores": scores[i], "index": i}
            for i, one in enumerate(found)
            if not rest[0][i]  # the mask of special tokens: padding
        ]
