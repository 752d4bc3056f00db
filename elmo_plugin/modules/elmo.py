"""The class `Elmo` for AllenNLP's configs, where it is the `elmo` argument of a model."""

import functools
import inspect
from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules.elmo import Elmo as StockElmo

from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.use import elmo
from elmo_plugin.modules.archived_bilm import is_loading, options_in_archive


class _StockElmoType(StockElmo):
    """Base class that makes `Elmo` a subclass of AllenNLP's, without building its submodules."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)


class Elmo(elmo.Elmo, _StockElmoType):  # type: ignore[misc]
    """
    `elmo_plugin.bilm.use.elmo.Elmo` for AllenNLP's configs, with the same arguments.

    Invalid arguments raise a `ConfigurationError`. While AllenNLP loads an archive, the biLM's
    options and weights come from the archive, and cache directories in its config are not used.
    """

    @functools.wraps(elmo.Elmo.__init__)  # type: ignore[misc]  # FromParams reads this signature
    def __init__(self, *arguments: Any, **named: Any) -> None:
        call = inspect.signature(elmo.Elmo.__init__).bind(self, *arguments, **named)
        before = torch.get_rng_state()
        try:
            super().__init__(*arguments, **named)
        except (ValueError, FileNotFoundError) as error:
            raise ConfigurationError(str(error)) from error
        if isinstance(self._elmo_lstm, BiLm) and not is_loading():
            # Leave the random generator in the state that AllenNLP's constructor leaves it in. The
            # same seed then gives the same weights and dropout masks in the rest of the model.
            torch.set_rng_state(before)
            if call.arguments.get("module") is None:
                _draw_as_allennlp(self._elmo_lstm.options)

    def _resolve(self, source: Any, weights: Any, cache: Optional[str]) -> tuple[Any, Any, Any]:
        if not is_loading():
            return super()._resolve(source, weights, cache)
        if not isinstance(source, dict):
            source = options_in_archive(source, weights)
        return source, None, cache if cache == "memory" else None


def _draw_as_allennlp(options: ElmoOptions) -> None:
    """
    Advance PyTorch's random generator as the constructor of AllenNLP 2.10.1's `_ElmoBiLm` does.
    That constructor initializes every parameter before it reads the weight file.
    """

    def linear(input_dim: int, output_dim: int, bias: bool = True) -> None:
        torch.empty(output_dim * input_dim).uniform_()
        if bias:
            torch.empty(output_dim).uniform_()

    num_filters, cell_size = options.num_filters, options.cell_size
    projection_dim = options.projection_dim
    for width, number in options.filters:
        linear(options.char_embedding_dim * width, number)
    for _ in range(options.num_highways):
        linear(num_filters, 2 * num_filters)
    linear(num_filters, projection_dim)
    for _ in range(2 * options.num_layers):  # both directions
        linear(projection_dim, 4 * cell_size, bias=False)
        linear(projection_dim, 4 * cell_size)
        linear(cell_size, projection_dim, bias=False)
        for _ in range(8):  # an orthogonal matrix for input and state of each gate
            torch.empty(cell_size * projection_dim).normal_()
