"""`ScalarMix` with AllenNLP's errors."""

from typing import List, Optional, Sequence

import torch
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm.model import scalar_mix


class ScalarMix(scalar_mix.ScalarMix):
    """
    `elmo_plugin.bilm.model.scalar_mix.ScalarMix`; what that calls a `ValueError` of its arguments
    is here a `ConfigurationError`, as in AllenNLP.

    # Parameters

    mixture_size : `int`
        How many layers are mixed; 3 for the published models.
    do_layer_norm : `bool`, optional (default = `False`)
        As in `elmo_plugin.bilm.model.scalar_mix.ScalarMix`.
    initial_scalar_parameters : `Optional[List[float]]`, optional (default = `None`)
        Weights before the softmax; zeros if not given.
    trainable : `bool`, optional (default = `True`)
        Whether they and `gamma` train.

    # Raises

    `ConfigurationError`
        If `initial_scalar_parameters` does not hold `mixture_size` numbers.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Optional[List[float]] = None,
        trainable: bool = True,
    ) -> None:
        try:
            super().__init__(mixture_size, do_layer_norm, initial_scalar_parameters, trainable)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    def forward(
        self, tensors: Sequence[torch.Tensor], mask: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        """
        # Parameters

        tensors : `Sequence[torch.Tensor]`
            `mixture_size` layers of shape `(batch_size, num_tokens, embedding_dim)`.
        mask : `Optional[torch.Tensor]`
            Bool, shape `(batch_size, num_tokens)`; needed with `do_layer_norm`.

        # Returns

        `torch.Tensor`
            Shape `(batch_size, num_tokens, embedding_dim)`.

        # Raises

        `ConfigurationError`
            If there are not `mixture_size` layers.
        """
        try:
            return super().forward(tensors, mask)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
