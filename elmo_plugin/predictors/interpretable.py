"""Base class of this package's predictors that lets AllenNLP's interpreters work with them."""

import torch
from allennlp.predictors import Predictor

from elmo_plugin.modules.elmo_placement import ElmoPlacement


class InterpretablePredictor(Predictor):
    """
    Predictor that tells AllenNLP's interpreters which layer to hook. By default they hook the text
    field embedder. In a model with an `elmo` argument, the embedder gives only a part of the input.
    In `coref` with `encode_by_sentence`, its rows are sentences instead of documents. For these
    models the layer is `ElmoPlacement`, through which the whole input passes.
    """

    def get_interpretable_layer(self) -> torch.nn.Module:
        """Return the module whose output interpreters read and change."""
        for module in self._model.modules():
            if isinstance(module, ElmoPlacement) and module.is_interpretable_layer:
                return module
        return super().get_interpretable_layer()
