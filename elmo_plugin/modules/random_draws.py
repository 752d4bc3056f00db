"""
The random numbers that AllenNLP's ELMo draws when it is made.

It initialises every parameter before the weight file overwrites it. What a model draws behind it
(its own initial weights, dropout) depends on that, so that the same config and seed would be
another run with an ELMo that draws others. The same numbers are drawn here, and thrown away: for
the Original biLM's sizes in a second or two, at the start of a training.
"""

import torch

from elmo_plugin.bilm.model.options import ElmoOptions


def draw_as_allennlp(options: ElmoOptions) -> None:
    """
    Moves PyTorch's generator on as the constructor of AllenNLP 2.10.1's `_ElmoBiLm` does.

    # Parameters

    options : `ElmoOptions`
        The biLM's.
    """
    num_filters = 0
    for width, number in options.filters:
        _linear(options.char_embedding_dim * width, number)
        num_filters += number
    for _ in range(options.num_highways):
        _linear(num_filters, 2 * num_filters)
    _linear(num_filters, options.projection_dim)
    cell_size, projection_dim = options.cell_size, options.projection_dim
    for _ in range(2 * options.num_layers):  # of both directions
        _linear(projection_dim, 4 * cell_size, bias=False)
        _linear(projection_dim, 4 * cell_size)
        _linear(cell_size, projection_dim, bias=False)
        for _ in range(8):  # the gates' blocks, of the input and of the state: orthogonal matrices
            torch.empty(cell_size * projection_dim).normal_()


def _linear(input_dim: int, output_dim: int, bias: bool = True) -> None:
    torch.empty(output_dim * input_dim).uniform_()
    if bias:
        torch.empty(output_dim).uniform_()
