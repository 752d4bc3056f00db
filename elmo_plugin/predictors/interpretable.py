"""Base class of this package's predictors, with which AllenNLP's interpreters can work."""

import torch
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
