"""Base class of this package's predictors, with which AllenNLP's interpreters can work."""

from typing import Any, Dict, List, Tuple, TypeGuard

import torch
from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.predictors import Predictor

from elmo_plugin.modules.elmo_placement import ElmoPlacement


class InterpretablePredictor(Predictor):
    """
    Predictor that tells AllenNLP's interpreters which layer to hook. By default they hook the text
    field embedder. That is wrong in two cases: a model concatenates ELMo's vectors to the
    embedder's output itself, or `coref` runs with `encode_by_sentence`, and its embedder returns
    sentences, not documents. Interpreters then hook the model's `ElmoPlacement`.
    """

    def get_interpretable_layer(self) -> torch.nn.Module:
        """Return the module whose output interpreters read and change."""
        for module in self._model.modules():
            if isinstance(module, ElmoPlacement) and module.is_interpretable_layer:
                return module
        return super().get_interpretable_layer()

    def get_gradients(self, instances: List[Instance]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """
        Return the gradients and the model's output; see AllenNLP's `Predictor`. Raise a
        `ValueError` if AllenNLP's input reduction removed tokens that the instance needs.
        """
        for instance in instances:
            self.check_tokens(instance)
        return super().get_gradients(instances)

    def check_tokens(self, instance: Instance) -> None:
        """Raise a `ValueError` if input reduction removed tokens that the instance needs."""


def is_words(found: Any) -> TypeGuard[List[str]]:
    """Return whether a value is a list of strings."""
    return isinstance(found, list) and all(isinstance(word, str) for word in found)


def check_texts(inputs: JsonDict, *keys: str, or_else: str = "") -> None:
    """Raise a `ValueError` unless the input has a string under each key; name the alternative."""
    for key in keys:
        if not isinstance(inputs.get(key), str):
            found = f"{key}: {inputs[key]!r}" if key in inputs else f"the keys {sorted(inputs)}"
            expected = " and ".join(f"a string as `{one}`" for one in keys)
            raise ValueError(f"found {found}; expected {expected}{or_else}")
