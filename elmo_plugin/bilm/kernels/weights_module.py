"""Modules whose weights the kernels take."""

from typing import Any

import torch

from elmo_plugin.bilm.kernels.derived import forget
from elmo_plugin.bilm.kernels.interface import Precision


class WeightsModule(torch.nn.Module):
    """
    A module whose weights the kernels may derive things from. These are never part of its
    `state_dict`, nor of a copy.

    # Attributes

    dtype, training_dtype : `str | None`
        See `Precision`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dtype: str | None = None
        self.training_dtype: str | None = None

    @property
    def precision(self) -> Precision:
        """Of its matrix products."""
        return Precision(self.dtype, self.training_dtype)

    def forget_derived(self) -> None:
        """
        Call this where weights were written through `.data` or a numpy view in place, which leaves
        no sign: what was derived of the weights before (prepacked copies, vectors of tokens, the
        state after the warm-up text) is made again when it is needed.
        """
        forget(list(self.parameters()))

    def train(self, mode: bool = True) -> "WeightsModule":
        """
        Also forgets what was derived: AllenNLP's moving average changes weights by way of `.data`
        before and after an evaluation.
        """
        self.forget_derived()
        return super().train(mode)

    def _apply(self, fn: Any, recurse: bool = True) -> "WeightsModule":
        """`.to()` and the like free what was derived at once."""
        self.forget_derived()
        return super()._apply(fn, recurse)
