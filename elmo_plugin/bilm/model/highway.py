"""Highway layers."""

from typing import Callable, Optional

import torch
from torch.nn import functional

Linear = Callable[[torch.Tensor, torch.Tensor, Optional[torch.Tensor]], torch.Tensor]


class Highway(torch.nn.Module):
    """
    `y = gate * x + (1 - gate) * relu(W x + b)` (Srivastava et al. 2015), one or more times.

    Parameters are laid out and named as in AllenNLP's `Highway`: `_layers.K` holds the transform's
    rows first, then the gate's; bilm-tf's "carry" is `1 - gate`.

    # Parameters

    input_dim : `int`
        Width of the input and output.
    num_layers : `int`
        How many times.
    """

    def __init__(self, input_dim: int, num_layers: int) -> None:
        super().__init__()
        self._layers = torch.nn.ModuleList(
            [torch.nn.Linear(input_dim, 2 * input_dim) for _ in range(num_layers)]
        )

    @property
    def layers(self) -> list[torch.nn.Linear]:
        """The linear maps, in order."""
        return list(self._layers)  # type: ignore[arg-type]

    def forward(self, inputs: torch.Tensor, linear: Linear = functional.linear) -> torch.Tensor:
        """
        # Parameters

        inputs : `torch.Tensor`
            Shape `(..., input_dim)`.
        linear : `Linear`, optional
            What multiplies; called as `torch.nn.functional.linear` is.

        # Returns

        `torch.Tensor`
            The same shape.
        """
        for layer in self.layers:
            transform, gate = linear(inputs, layer.weight, layer.bias).chunk(2, dim=-1)
            transform = torch.relu(transform)
            # transform + gate * (inputs - transform)
            inputs = torch.lerp(transform, inputs, torch.sigmoid(gate))
        return inputs
