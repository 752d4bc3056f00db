"""Adagrad from where bilm-tf stopped."""

from typing import Any, List, Tuple

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.training.optimizers import AdagradOptimizer, Optimizer

from elmo_plugin.bilm.files.adagrad_state import INITIAL_ACCUMULATOR, restore_adagrad


@Optimizer.register("bilm_tf_adagrad", exist_ok=True)
class BilmTfAdagrad(AdagradOptimizer):
    """
    AllenNLP's `adagrad`, whose accumulators begin as a checkpoint of bilm-tf has them, so that a
    parameter's rate of learning goes on from what it has come to. For `bilm_language_model`.

    # Parameters

    model_parameters : `List[Tuple[str, torch.nn.Parameter]]`
        Given by AllenNLP.
    directory : `str`
        What `elmo-plugin convert-checkpoint` wrote.
    lr : `float`, optional (default = `0.2`)
        bilm-tf's. The other arguments are those of `adagrad`.

    # Raises

    `ConfigurationError`
        See `restore_adagrad`.
    """

    def __init__(
        self,
        model_parameters: List[Tuple[str, torch.nn.Parameter]],
        directory: str,
        lr: float = 0.2,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("initial_accumulator_value", INITIAL_ACCUMULATOR)
        super().__init__(model_parameters, lr=lr, **kwargs)
        try:
            restore_adagrad(self, model_parameters, directory)
        except (ValueError, OSError) as error:
            raise ConfigurationError(str(error)) from error
