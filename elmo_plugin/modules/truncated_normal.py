"""TensorFlow's truncated normal initializer, for configs."""

from typing import Any

import torch
from allennlp.nn.initializers import Initializer


@Initializer.register("truncated_normal", exist_ok=True)
class TruncatedNormalInitializer(Initializer):
    """
    Initializer that draws from a normal distribution truncated at two standard deviations, as
    TensorFlow's `truncated_normal_initializer` does.

    Registered as an `Initializer` with name "truncated_normal".

    # Parameters

    mean : `float`, optional (default = `0.0`)
    std : `float`, optional (default = `0.1`)
        Standard deviation before truncation.
    """

    def __init__(self, mean: float = 0.0, std: float = 0.1) -> None:
        self._mean = mean
        self._std = std

    def __call__(self, tensor: torch.Tensor, **kwargs: Any) -> None:
        """Fill `tensor` in place with samples from the truncated normal distribution."""
        limits = self._mean - 2 * self._std, self._mean + 2 * self._std
        torch.nn.init.trunc_normal_(tensor, self._mean, self._std, *limits)
