"""Highway layers."""

import torch

from elmo_plugin.bilm.kernels.backend import Affine


class Highway(torch.nn.Module):
    """
    The weights of `y = gate * x + (1 - gate) * relu(W x + b)` (Srivastava et al. 2015), one or more
    times.

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

    @property
    def weights(self) -> list[Affine]:
        """What the kernels take."""
        return [Affine(layer.weight, layer.bias) for layer in self.layers]
