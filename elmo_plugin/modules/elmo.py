"""
Adapts `elmo_plugin.Elmo` to AllenNLP: importing this module changes that class.

The class becomes a subclass of AllenNLP's, so that configs build it. Invalid arguments raise a
`ConfigurationError`. While AllenNLP loads an archive, the biLM's options and weights come from the
archive, and cache directories in its config are not used. There is one class `Elmo`, whether
AllenNLP is imported before it, after it or never.
"""

import functools
import inspect
from typing import Any, Optional

import torch
from allennlp.modules.elmo import _ElmoCharacterEncoder
from allennlp.modules.elmo_lstm import ElmoLstm

from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.char_cnn import CharCnn
from elmo_plugin.bilm.model.lstm import BiLstm
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.use.elmo import Elmo as Elmo
from elmo_plugin.modules.archived_bilm import is_loading, options_in_archive
from elmo_plugin.modules.scalar_mix import with_configuration_error

try:  # `elmo_plugin.as_allennlp` replaces the class in `allennlp.modules.elmo`, not here
    from allennlp.modules.token_embedders.elmo_token_embedder import Elmo as StockElmo
except ImportError:  # this module is still being imported, and that class not replaced yet
    from allennlp.modules.elmo import Elmo as StockElmo


class _StockElmoType(StockElmo):
    """Base class that makes `Elmo` a subclass of AllenNLP's, without building its submodules."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)


def _drawing_as_allennlp(construct: Any) -> Any:
    @functools.wraps(construct)  # FromParams reads this signature
    def __init__(self: Elmo, *arguments: Any, **named: Any) -> None:
        call = inspect.signature(construct).bind(self, *arguments, **named)
        before = torch.get_rng_state()
        construct(self, *arguments, **named)
        if isinstance(self.bilm, BiLm) and not is_loading():
            # Leave the random generator in the state that AllenNLP's constructor leaves it in. The
            # same seed then gives the same weights and dropout masks in the rest of the model.
            torch.set_rng_state(before)
            if call.arguments.get("module") is None:
                _draw_as_allennlp(self.bilm.options)

    return __init__


def _from_archive(resolve: Any) -> Any:
    def find_files(self: Elmo, source: Any, weights: Any, cache: Optional[str]) -> tuple:
        if not is_loading():
            return resolve(self, source, weights, cache)
        if not isinstance(source, dict):
            source = options_in_archive(source, weights)
        return source, None, cache if cache == "memory" else None

    return find_files


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


Elmo.__bases__ = (_StockElmoType,)
# Methods of AllenNLP's layers that programs call; they run and fill ours.
_METHODS = {
    (BiLstm, ElmoLstm): (
        "load_weights", "sort_and_run_forward", "_lstm_forward", "_get_initial_states",
        "_update_states",
    ),
    (CharCnn, _ElmoCharacterEncoder): (
        "_load_weights", "_load_char_embedding", "_load_cnn_weights", "_load_highway",
        "_load_projection",
    ),
}  # fmt: skip
for (_ours, _theirs), _names in _METHODS.items():
    for _name in _names:
        setattr(_ours, _name, getattr(_theirs, _name))
Elmo.__init__ = with_configuration_error(  # type: ignore[method-assign]
    _drawing_as_allennlp(Elmo.__init__)
)
Elmo.find_files = _from_archive(Elmo.find_files)  # type: ignore[method-assign]
