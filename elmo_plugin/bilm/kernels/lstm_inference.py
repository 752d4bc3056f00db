"""Frozen LSTM layer in PyTorch, with prepacked weights."""

from collections.abc import Callable, Iterator, Sequence

import torch

from elmo_plugin.bilm.kernels.interface import LstmOutput, LstmWeights
from elmo_plugin.bilm.kernels.quantized import LinearKernel

# Prepacks a weight: returns the `LinearKernel` that multiplies by it.
Prepack = Callable[[torch.Tensor], LinearKernel]


class PlainLstm:
    """
    Frozen LSTM layer that loops over the steps in Python, with few passes over memory. Input
    projections `W x + b` are computed for several steps at a time.

    On a CPU, PyTorch's sigmoid is several times faster than its tanh. Since
    `tanh(x) = 2 sigmoid(2 x) - 1`, one sigmoid computes all four gates. For this, the candidate's
    pre-activation, the stored cell state and the projection weight are doubled. Doubling causes no
    rounding error.

    The weights must not change (see `derived.py`). `input_product_elements` is the largest size of
    a block of input projections; a block has at least one step, even if that is larger.
    """

    # Whether an output may have been NaN in any call, which the C++ kernels tell.
    gave_nan = True

    def __init__(self, weights: LstmWeights, prepack: Prepack, input_product_elements: int) -> None:
        self._cell_clip, self._projection_clip = weights.cell_clip, weights.projection_clip
        self._input_product_elements = input_product_elements
        self._input_linear = prepack(weights.input.detach())
        self._bias = weights.bias.detach().clone()
        doubled = weights.state.detach().clone()
        _candidate(doubled, dim=0).mul_(2)
        self._state_linear = prepack(doubled)
        self._projection = prepack(2 * weights.projection.detach())

    def __call__(
        self,
        inputs: torch.Tensor,
        batch_sizes: Sequence[int],
        hidden: torch.Tensor,
        cell: torch.Tensor,
    ) -> LstmOutput:
        """Run the layer, see `reference.lstm_layer`."""
        dtype = cell.dtype
        outputs: list[torch.Tensor] = []
        ended: list[tuple[torch.Tensor, torch.Tensor]] = []
        with torch.inference_mode():
            cell = 2 * cell
            for size, gates in zip(batch_sizes, self._gates_by_step(inputs, batch_sizes)):
                if size < len(hidden):
                    ended.append((hidden[size:], cell[size:]))
                    hidden, cell = hidden[:size], cell[:size]
                hidden = self._step(gates, hidden, cell)
                if self._projection_clip is not None:
                    hidden.clamp_(-self._projection_clip, self._projection_clip)
                outputs.append(hidden)
                # Free the memory before the next input projections are computed.
                del gates
            ended.append((hidden, cell))
        # Concatenated outside inference mode: a training step may start from these states.
        final_hidden, final_cell = (torch.cat(parts) for parts in zip(*reversed(ended)))
        packed = torch.cat(outputs or [hidden[:0]])
        return packed.to(dtype), final_hidden.to(dtype), final_cell / 2

    def _gates_by_step(
        self, inputs: torch.Tensor, batch_sizes: Sequence[int]
    ) -> Iterator[torch.Tensor]:
        """
        Yield the input projections of each step, those of the candidate doubled; blocks of steps
        run together.
        """
        most_rows = self._input_product_elements // len(self._bias)
        start = done = 0
        while done < len(batch_sizes):
            sizes, num_rows = [batch_sizes[done]], batch_sizes[done]
            for size in batch_sizes[done + 1 :]:
                if num_rows + size > most_rows:
                    break
                sizes.append(size)
                num_rows += size
            gates = self._input_linear(inputs[start : start + num_rows], self._bias)
            # Doubled here, because a doubled input weight would be a large copy of it.
            _candidate(gates, dim=1).mul_(2)
            yield from gates.split(sizes)
            start += num_rows
            done += len(sizes)

    def _step(self, gates: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor) -> torch.Tensor:
        """
        Return a step's output before clipping, shape `(number of rows, projection_dim)`; overwrite
        `gates`, the step's input projections, and `cell`, twice the cell states.
        """
        self._state_linear.add_to(gates, hidden)
        gates.sigmoid_()
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=1)
        cell.mul_(forget_gate).addcmul_(input_gate, candidate.sub_(0.5), value=4)
        if self._cell_clip is not None:
            cell.clamp_(-2 * self._cell_clip, 2 * self._cell_clip)
        return self._projection(cell.sigmoid().sub_(0.5).mul_(output_gate))


def _candidate(gates: torch.Tensor, dim: int) -> torch.Tensor:
    """Return a view of the candidate `g` in a tensor of the gates `i, f, g, o`."""
    return gates.chunk(4, dim=dim)[2]
