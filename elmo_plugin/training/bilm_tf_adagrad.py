"""Adagrad from where bilm-tf stopped."""

from pathlib import Path
from typing import Any, List, Tuple

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.training.optimizers import AdagradOptimizer, Optimizer

from elmo_plugin.bilm.files.bilm_tf import (
    ADAGRAD_FILE,
    INITIAL_ACCUMULATOR,
    OPTIONS_FILE,
    read_accumulators,
)
from elmo_plugin.bilm.files.options import read_options

BILM, SOFTMAX = "language_model.bilm.", "language_model.softmax."


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
        If the directory holds no accumulators, or those of a biLM or a softmax of other sizes.
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
        path = Path(directory) / ADAGRAD_FILE
        try:
            found = read_accumulators(read_options(Path(directory) / OPTIONS_FILE), path)
        except (ValueError, OSError) as error:
            raise ConfigurationError(str(error)) from error
        sums = {BILM + name: values for name, values in found.bilm.items()}
        if found.softmax_weight is not None and found.softmax_bias is not None:
            sums[f"{SOFTMAX}weight"] = found.softmax_weight
            sums[f"{SOFTMAX}bias"] = found.softmax_bias
        for name, parameter in model_parameters:
            if name not in sums or sums[name].shape != parameter.shape:
                shape = tuple(sums[name].shape) if name in sums else None
                raise ConfigurationError(
                    f"{path}: the accumulator of {name} has shape {shape}, expected "
                    f"{tuple(parameter.shape)}"
                )
            self.state[parameter]["sum"].copy_(sums[name])
