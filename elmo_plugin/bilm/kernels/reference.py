"""
The definition of the biLM's computations, in plain differentiable PyTorch: on every device, for
inference and training alike. Everything else in this folder is faster and gives the same numbers.

Rows are *packed*, as PyTorch's `PackedSequence` packs them: sentences sorted by falling length, the
first step of all of them, then the second of those that have one, and so on.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.interface import (
    LstmState,
    LstmWeights,
    Precision,
    Stack,
    TokenWeights,
)


def lstm_step(
    x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, weights: LstmWeights
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    A step of an LSTM with projection (Sak et al. 2014) and the clips of TensorFlow 1's `LSTMCell`.

    # Parameters

    x, h, c : `torch.Tensor`
        Input, output and memory cell before, shapes `(size, input_dim)`,
        `(size, projection_dim)` and `(size, cell_size)`.
    weights : `LstmWeights`

    # Returns

    `tuple[torch.Tensor, torch.Tensor]`
        The new `h` and `c`.
    """
    z = functional.linear(x, weights.input) + functional.linear(h, weights.state, weights.bias)
    gated, c = lstm_gates(z, c, weights.cell_clip)
    h = functional.linear(gated, weights.projection)
    return _clip(h, weights.projection_clip), c


def lstm_gates(
    z: torch.Tensor, c: torch.Tensor, cell_clip: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    What is elementwise in a step: the gates' sums, shape `(size, 4 * cell_size)`, and the cell
    before to `sigmoid(o) tanh(c)` and the new cell.
    """
    i, f, g, o = z.chunk(4, dim=1)
    c = _clip(torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g), cell_clip)
    return torch.sigmoid(o) * torch.tanh(c), c


def lstm_layer(
    inputs: torch.Tensor,
    batch_sizes: Sequence[int],
    hidden: torch.Tensor,
    cell: torch.Tensor,
    weights: LstmWeights,
    precision: Precision = Precision(),  # noqa: B008 (it is a tuple)
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """See `Backend.lstm_layer`."""
    hidden, cell = hidden.detach(), cell.detach()
    outputs, ended = [inputs.new_zeros(0, hidden.shape[1])], []
    for x in inputs.split(list(batch_sizes)):
        ended.append((hidden[len(x) :], cell[len(x) :]))
        hidden, cell = lstm_step(x, hidden[: len(x)], cell[: len(x)], weights)
        outputs.append(hidden)
    ends = zip((hidden, cell), *reversed(ended))
    final_hidden, final_cell = (torch.cat(parts).detach() for parts in ends)
    return torch.cat(outputs), final_hidden, final_cell


def token_layer(
    character_ids: torch.Tensor,
    weights: TokenWeights,
    precision: Precision = Precision(),  # noqa: B008
) -> torch.Tensor:
    """See `Backend.token_layer`: Kim et al. 2016, as bilm-tf builds it (bilm/model.py, 7cffee2)."""
    # Shape: (num_rows, char_embedding_dim, num_characters)
    characters = functional.embedding(character_ids, weights.embedding).transpose(1, 2)
    if len(character_ids) == 0:
        characters = characters.new_zeros(1, *characters.shape[1:])  # conv1d takes no empty batch
    maxima = [functional.conv1d(characters, *one).amax(dim=2) for one in weights.convolutions]
    # Shape: (num_rows, num_filters)
    tokens = weights.activation(torch.cat(maxima, dim=1))[: len(character_ids)]
    for weight, bias in weights.highways:
        tokens = highway(tokens, weight, bias)
    if weights.projection is not None:
        tokens = functional.linear(tokens, *weights.projection)
    return tokens


def highway(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """`gate * x + (1 - gate) * relu(W x + b)` (Srivastava et al. 2015), shape `(..., dim)`."""
    transform, gate = functional.linear(x, weight, bias).chunk(2, dim=-1)
    gate = torch.sigmoid(gate)
    return gate * x + (1 - gate) * torch.relu(transform)


def tokens_over_padded(
    encode: Callable[[torch.Tensor], torch.Tensor],
    ids: torch.Tensor,
    mask: torch.Tensor,
    outputs: torch.Tensor,
    weights: Iterable[torch.Tensor],
) -> None:
    """See `Backend.tokens_over_padded`."""
    outputs[mask] = encode(ids[mask]).to(outputs.dtype)


def over_padded(
    stack: Stack,
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    state: LstmState,
    outputs: list[torch.Tensor],
    weights: Iterable[torch.Tensor],
    *,
    reverse: bool,
) -> LstmState:
    """See `Backend.over_padded`."""
    order = lengths.argsort(descending=True, stable=True)
    steps = torch.arange(inputs.shape[1], device=inputs.device)
    # Row-major order of shape (num_steps, batch_size) is the packed order.
    alive = steps.unsqueeze(1) < lengths[order]
    step, rank = alive.nonzero(as_tuple=True)
    sentence = order[rank]
    if reverse:
        step = lengths[sentence] - 1 - step
    batch_sizes = [size for size in alive.sum(dim=1).tolist() if size]
    packed, end = stack(inputs[sentence, step], batch_sizes, state.map(lambda s: s[:, order]))
    for output, rows in zip(outputs, packed):
        output[sentence, step] = rows
    original = order.argsort()
    return end.map(lambda s: s[:, original])


def _clip(values: torch.Tensor, limit: float | None) -> torch.Tensor:
    return values if limit is None else values.clamp(-limit, limit)
