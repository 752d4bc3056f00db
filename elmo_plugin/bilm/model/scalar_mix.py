"""Scalar mix: a learned weighted sum of the biLM's layers."""

import logging
from collections.abc import Sequence
from typing import Any

import torch

logger = logging.getLogger(__name__)


class ScalarMix(torch.nn.Module):
    """
    Weighted sum of layers, `gamma * sum_j softmax(s)_j * h_j` (Peters et al. 2018, equation 1).

    Starts as the plain average (`s = 0`, `gamma = 1`). Parameters are named as in AllenNLP's
    `ScalarMix`: `scalar_parameters.J` and `gamma`.

    # Parameters

    mixture_size : `int`
        Number of layers; 3 for the published models.
    do_layer_norm : `bool`, optional (default = `False`)
        Whether to normalise each layer first, with one mean and one variance over all real tokens
        and dimensions of the batch. Unlike in torch's LayerNorm, the result depends on the batch.
    initial_scalar_parameters : `Optional[Sequence[float]]`, optional (default = `None`)
        Initial values of `s`, before the softmax; zeros if not given.
    trainable : `bool`, optional (default = `True`)
        Whether `s` and `gamma` are trainable.

    # Raises

    `ValueError`
        If `initial_scalar_parameters` does not hold `mixture_size` numbers.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        if initial_scalar_parameters is None:
            initial_scalar_parameters = [0.0] * mixture_size
        if len(initial_scalar_parameters) != mixture_size:
            raise ValueError(
                f"scalar mix parameters {list(initial_scalar_parameters)} are "
                f"{len(initial_scalar_parameters)} numbers, expected {mixture_size}: one a layer"
            )
        self.mixture_size = mixture_size
        self.do_layer_norm = do_layer_norm
        self.scalar_parameters = torch.nn.ParameterList(
            torch.nn.Parameter(torch.tensor([float(value)]), requires_grad=trainable)
            for value in initial_scalar_parameters
        )
        self.gamma = torch.nn.Parameter(torch.ones(1), requires_grad=trainable)
        self.register_load_state_dict_pre_hook(_restore_gamma)

    def forward(
        self, layers: Sequence[torch.Tensor], mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """
        Return the weighted sum of the layers. Raise a `ValueError` if their number is not
        `mixture_size`, or if `mask` is missing with `do_layer_norm`.

        # Parameters

        layers : `Sequence[torch.Tensor]`
            `mixture_size` tensors of shape `(batch_size, num_tokens, embedding_dim)`.
        mask : `Optional[torch.Tensor]`
            Bool, shape `(batch_size, num_tokens)`; needed with `do_layer_norm`.

        # Returns

        `torch.Tensor`
            Shape `(batch_size, num_tokens, embedding_dim)`.
        """
        if len(layers) != self.mixture_size:
            raise ValueError(f"{len(layers)} layers to mix, expected {self.mixture_size}")
        if self.do_layer_norm:
            if mask is None:
                raise ValueError("no mask given, expected one: layer norm is over real tokens only")
            layers = [_normalize(layer, mask) for layer in layers]
        weights = torch.softmax(torch.cat(list(self.scalar_parameters)), dim=0) * self.gamma
        mixed = weights[0] * layers[0]
        for weight, layer in zip(weights[1:], layers[1:]):
            mixed = torch.addcmul(mixed, weight, layer)
        return mixed


def _restore_gamma(
    mix: torch.nn.Module, state_dict: dict[str, torch.Tensor], prefix: str, *_: Any
) -> None:
    """Undo the renaming of `gamma` to `weight` by `from_pretrained` of transformers up to 4.48."""
    renamed = state_dict.get(f"{prefix}weight")
    if renamed is not None and f"{prefix}gamma" not in state_dict:
        state_dict[f"{prefix}gamma"] = state_dict.pop(f"{prefix}weight")
        logger.warning(
            f"{prefix}gamma was renamed to {prefix}weight, by transformers' from_pretrained; its "
            f"value {renamed.tolist()} was loaded, whatever transformers reports"
        )


def _normalize(layer: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Normalise all positions by the mean and variance of the real tokens, as AllenNLP does."""
    half = layer.dtype in (torch.float16, torch.bfloat16)
    values = layer.float() if half else layer  # the sums overflow float16
    real = mask.unsqueeze(-1)
    count = mask.sum() * layer.shape[-1]
    mean = (values * real).sum() / count
    variance = (((values - mean) * real) ** 2).sum() / count
    # The guard against division by zero is AllenNLP's (nn/util.py, tiny_value_of_dtype).
    guard = 1e-4 if half else 1e-13
    return ((values - mean) / torch.sqrt(variance + guard)).to(layer.dtype)
