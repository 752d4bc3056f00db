"""
Reference backend: the definition of the biLM's computations in plain, differentiable PyTorch, for
every device, inference and training. Other kernels are faster and agree with it up to rounding, and
up to the lower precision that `Precision` allows.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.interface import (
    Affine,
    LstmModules,
    LstmOutput,
    LstmWeights,
    Precision,
    TokenModules,
    TokenWeights,
)

# If several threads make a process's first call of MKL's tanh, one of them may get a less exact
# result, with errors of 5e-5. So make the first call here, in one thread.
torch.tanh(torch.zeros(1, dtype=torch.float32, device="cpu"))


def lstm_step(
    x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, weights: LstmWeights | LstmModules
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Compute one step of an LSTM with projection (Sak et al. 2014), clipped as in TensorFlow 1's
    `LSTMCell`.

    # Parameters

    x, h, c : `torch.Tensor`
        Input, previous output and previous cell state, shapes `(batch_size, input_dim)`,
        `(batch_size, projection_dim)` and `(batch_size, cell_size)`.
    weights : `LstmWeights | LstmModules`

    # Returns

    `tuple[torch.Tensor, torch.Tensor]`
        The new `h` and `c`.
    """
    if isinstance(weights, LstmWeights):
        weights = _lstm_modules(weights)
    gated, c = lstm_gates(weights.input(x) + weights.state(h), c, weights.cell_clip)
    return _clip(weights.projection(gated), weights.projection_clip), c


def _lstm_modules(weights: LstmWeights) -> LstmModules:
    return LstmModules(
        functools.partial(functional.linear, weight=weights.input),
        functools.partial(functional.linear, weight=weights.state, bias=weights.bias),
        functools.partial(functional.linear, weight=weights.projection),
        weights.cell_clip,
        weights.projection_clip,
    )


def lstm_gates(
    z: torch.Tensor, c: torch.Tensor, cell_clip: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Compute the elementwise part of a step from the gates' pre-activations `z`, shape
    `(batch_size, 4 * cell_size)`, and the previous cell state `c`. Return
    `(sigmoid(o) * tanh(new_c), new_c)`.
    """
    i, f, g, o = z.chunk(4, dim=1)
    c = _clip(torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g), cell_clip)
    return torch.sigmoid(o) * torch.tanh(c), c


def lstm_layer(
    inputs: torch.Tensor,
    batch_sizes: Sequence[int],
    hidden: torch.Tensor,
    cell: torch.Tensor,
    weights: LstmWeights | LstmModules,
    precision: Precision = Precision(),  # noqa: B008 (it is a tuple)
) -> LstmOutput:
    """
    Run one LSTM layer of one direction over packed rows, which are in the order of PyTorch's
    `PackedSequence`. Inputs and weights get gradients, the initial state none.

    # Parameters

    inputs : `torch.Tensor`
        Shape `(num_rows, input_dim)`.
    batch_sizes : `Sequence[int]`
        Number of rows of each step, non-increasing.
    hidden, cell : `torch.Tensor`
        Initial state, shapes `(batch_size, projection_dim)` and `(batch_size, cell_size)`.

    # Returns

    `LstmOutput`
        Packed outputs, shape `(num_rows, projection_dim)`, and each sentence's final state.
    """
    outputs, hidden, cell = lstm_steps(inputs, batch_sizes, hidden.detach(), cell.detach(), weights)
    return outputs, hidden.detach(), cell.detach()


def lstm_steps(
    inputs: torch.Tensor,
    batch_sizes: Sequence[int],
    hidden: torch.Tensor,
    cell: torch.Tensor,
    weights: LstmWeights | LstmModules,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute what `lstm_layer` does, with gradients of the initial and final states."""
    outputs, ended = [inputs.new_zeros(0, hidden.shape[1])], []
    for x in inputs.split(list(batch_sizes)):
        ended.append((hidden[len(x) :], cell[len(x) :]))
        hidden, cell = lstm_step(x, hidden[: len(x)], cell[: len(x)], weights)
        outputs.append(hidden)
    ends = zip((hidden, cell), *reversed(ended))
    final_hidden, final_cell = map(torch.cat, ends)
    return torch.cat(outputs), final_hidden, final_cell


def token_layer(
    character_ids: torch.Tensor,
    weights: TokenWeights | TokenModules,
    precision: Precision = Precision(),  # noqa: B008
    widths: Sequence[int] | None = None,
) -> torch.Tensor:
    """
    Compute token vectors, shape `(num_rows, projection_dim)`, from character ids, shape `(num_rows,
    num_characters)` (Kim et al. 2016), as bilm-tf does (bilm/model.py, 7cffee2). No row may be a
    padding token.

    A caller whose rows are distinct and sorted by length may say so by `widths`: how many character
    ids are enough in each of as many equal parts of the rows, which is the longest token's length
    plus the widest filter's width.
    """
    if isinstance(weights, TokenWeights):
        weights = token_modules(weights)
    # Shape: (num_rows, char_embedding_dim, num_characters)
    characters = functional.embedding(character_ids, weights.embedding).transpose(1, 2)
    if len(character_ids) == 0:
        characters = characters.new_zeros(1, *characters.shape[1:])  # conv1d takes no empty batch
    maxima = [convolve(characters).amax(dim=2) for convolve in weights.convolutions]
    # Shape: (num_rows, num_filters)
    tokens = weights.activation(torch.cat(maxima, dim=1))[: len(character_ids)]
    tokens = weights.highways(tokens)
    return tokens if weights.projection is None else weights.projection(tokens)


def token_modules(weights: TokenWeights) -> TokenModules:
    """Return functions that compute with the weights what plain layers compute."""

    def linear(one: Affine) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: functional.linear(x, *one)

    def convolution(one: Affine) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: functional.conv1d(x, *one)

    return TokenModules(
        weights.embedding,
        [convolution(one) for one in weights.convolutions],
        weights.activation,
        lambda x: highways(x, [linear(one) for one in weights.highways]),
        None if weights.projection is None else linear(weights.projection),
    )


def highways(
    x: torch.Tensor,
    linears: Sequence[Callable[[torch.Tensor], torch.Tensor]],
    activation: Callable[[torch.Tensor], torch.Tensor] = torch.relu,
) -> torch.Tensor:
    """
    Compute `gate * x + (1 - gate) * activation(transform)` for each highway layer (Srivastava et
    al. 2015). A layer's linear map gives `transform` and `gate`; `x` has shape `(..., dim)`.
    """
    for linear in linears:
        transform, gate = linear(x).chunk(2, dim=-1)
        gate = torch.sigmoid(gate)
        x = gate * x + (1 - gate) * activation(transform)
    return x


def linear(
    rows: torch.Tensor,
    weight: torch.Tensor,
    precision: Precision = Precision(),  # noqa: B008
) -> torch.Tensor:
    """
    Return `rows W^T`, shape `(num_rows, output_dim)`, for rows of shape `(num_rows, input_dim)` and
    a weight of shape `(output_dim, input_dim)`. ELMoForManyLangs needs it for word vectors.
    """
    return functional.linear(rows, weight)


def _clip(values: torch.Tensor, limit: float | None) -> torch.Tensor:
    return values if limit is None else values.clamp(-limit, limit)
