"""Base class of this package's predictors, with which AllenNLP's interpreters can work."""

import torch
from allennlp.predictors import Predictor

from elmo_plugin.modules.elmo_placement import ElmoPlacement


class InterpretablePredictor(Predictor):
    """
    Predictor that tells AllenNLP's interpreters which layer to hook. By default they hook the text
    field embedder. If a model places `elmo` at its input, the embedder returns only a part of the
    input. In `coref` with `encode_by_sentence`, it returns sentences instead of documents. In both
    cases the layer to hook is `ElmoPlacement`, through which the whole input passes.
    """

    def get_interpretable_layer(self) -> torch.nn.Module:
        """Return the module whose output interpreters read and change."""
        for module in self._model.modules():
            if isinstance(module, ElmoPlacement) and module.is_interpretable_layer:
                return module
        return super().get_interpretable_layer()
