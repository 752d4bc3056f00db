"""A frozen LSTM layer, its weights prepacked: the loop over its steps, and a step by PyTorch."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import torch

from elmo_plugin.bilm.kernels import tuning
from elmo_plugin.bilm.kernels.interface import LstmWeights
from elmo_plugin.bilm.kernels.prepacked_linear import LinearKernel
from elmo_plugin.bilm.kernels.same_bits import pad_rows

# From a weight to its linear kernel; the second says whether it is called with dozens of rows.
Prepack = Callable[[torch.Tensor, bool], LinearKernel]


class FrozenLstm(ABC):
    """
    `reference.lstm_layer` for weights that do not change, without gradients. Input products are
    taken for several steps at a time.

    # Parameters

    weights : `LstmWeights`
        Not watched for changes (see `derived.py`).
    prepack : `Prepack`
        Which linear kernels multiply.
    rows_in_steps_of : `int`
        Rows of an input product are padded to a multiple of this.
    input_product_elements : `int`
        Elements of the input products that are taken at a time.
    """

    def __init__(
        self,
        weights: LstmWeights,
        prepack: Prepack,
        rows_in_steps_of: int,
        input_product_elements: int,
    ) -> None:
        self._cell_clip, self._projection_clip = weights.cell_clip, weights.projection_clip
        self._rows_in_steps_of = rows_in_steps_of
        self._input_product_elements = input_product_elements
        self._input_linear = prepack(weights.input.detach(), True)
        self._bias = weights.bias.detach().clone()

    def __call__(
        self,
        inputs: torch.Tensor,
        batch_sizes: Sequence[int],
        hidden: torch.Tensor,
        cell: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As `Backend.lstm_layer`."""
        size = len(hidden)
        if (
            size < tuning.LEAST_SHARED
            or list(batch_sizes[:1]) != [size]
            or not _are_one(inputs[:size], hidden, cell)
        ):
            return self._run(inputs, batch_sizes, hidden, cell)
        # The boundary that every sentence begins with, in a state that was not carried.
        first = self._run(inputs[:1], [1], hidden[:1], cell[:1])
        output, *state = (row.repeat(size, 1) for row in first)
        outputs, hidden, cell = self._run(inputs[size:], batch_sizes[1:], *state)
        return torch.cat([output, outputs]), hidden, cell

    @abstractmethod
    def _run(
        self,
        inputs: torch.Tensor,
        batch_sizes: Sequence[int],
        hidden: torch.Tensor,
        cell: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The same, step by step."""

    def _input_products(
        self, inputs: torch.Tensor, batch_sizes: Sequence[int]
    ) -> Iterator[tuple[torch.Tensor, list[int]]]:
        """`W x + b` of a few steps, shape `(num_rows, 4 * cell_size)`, and those steps' sizes."""
        most_rows = self._input_product_elements // len(self._bias)
        start = done = 0
        while done < len(batch_sizes):
            sizes, num_rows = [batch_sizes[done]], batch_sizes[done]
            for size in batch_sizes[done + 1 :]:
                if num_rows + size > most_rows:
                    break
                sizes.append(size)
                num_rows += size
            rows = inputs[start : start + num_rows]
            padded = pad_rows(rows, -len(rows) % self._rows_in_steps_of)
            yield self._input_linear(padded, self._bias)[: len(rows)], sizes
            start += len(rows)
            done += len(sizes)


class SteppedLstm(FrozenLstm):
    """A frozen layer whose steps are taken one by one in Python."""

    @abstractmethod
    def _step(self, gates: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor) -> torch.Tensor:
        """
        The output before its clip, shape `(size, projection_dim)`. `gates`, shape
        `(size, 4 * cell_size)`, may be overwritten; `cell` becomes the new one.
        """

    def _gates(self, input_products: torch.Tensor) -> torch.Tensor:
        """Input products, shape `(num_rows, 4 * cell_size)`, as steps want them."""
        return input_products

    def _enter(self, cell: torch.Tensor) -> torch.Tensor:
        """A copy of the cell, as steps hold it."""
        return cell.clone()

    def _leave(self, cell: torch.Tensor) -> torch.Tensor:
        """And back."""
        return cell

    def _run(
        self,
        inputs: torch.Tensor,
        batch_sizes: Sequence[int],
        hidden: torch.Tensor,
        cell: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        dtype = cell.dtype
        outputs: list[torch.Tensor] = []
        ended: list[tuple[torch.Tensor, torch.Tensor]] = []
        with torch.inference_mode():
            cell = self._enter(cell)
            for size, gates in zip(batch_sizes, self._gates_by_step(inputs, batch_sizes)):
                if size < len(hidden):
                    ended.append((hidden[size:], cell[size:]))
                    hidden, cell = hidden[:size], cell[:size]
                hidden = self._step(gates, hidden, cell)
                if self._projection_clip is not None:
                    hidden.clamp_(-self._projection_clip, self._projection_clip)
                outputs.append(hidden)
                # The last let their memory go, before the next are made.
                del gates
            ended.append((hidden, cell))
        # Not in inference mode: a step that trains may start with these.
        final_hidden, final_cell = (torch.cat(parts) for parts in zip(*reversed(ended)))
        packed = torch.cat(outputs or [hidden[:0]])
        return packed.to(dtype), final_hidden.to(dtype), self._leave(final_cell)

    def _gates_by_step(
        self, inputs: torch.Tensor, batch_sizes: Sequence[int]
    ) -> Iterator[torch.Tensor]:
        for products, sizes in self._input_products(inputs, batch_sizes):
            yield from self._gates(products).split(sizes)


class PlainLstm(SteppedLstm):
    """
    By PyTorch's operators, in few passes over memory.

    On a CPU `tanh(x) = 2 sigmoid(2 x) - 1` is several times faster in PyTorch than its tanh. So one
    sigmoid serves all four gates: the candidate's sums come doubled, which the state weight brings
    about; the outer 2 of the cell's tanh is in the projection; the cell is held doubled. Doubling
    is exact.

    # Parameters

    weights : `LstmWeights`
    prepack : `Prepack`
        As in `FrozenLstm`, its two sizes behind them.
    """

    def __init__(self, weights: LstmWeights, prepack: Prepack, *sizes: int) -> None:
        super().__init__(weights, prepack, *sizes)
        doubled = weights.state.detach().clone()
        _candidate(doubled, dim=0).mul_(2)
        self._state_linear = prepack(doubled, False)
        self._projection = prepack(2 * weights.projection.detach(), False)

    def _gates(self, input_products: torch.Tensor) -> torch.Tensor:
        # Not in the input weight, a large one, which is used as it lies.
        _candidate(input_products, dim=1).mul_(2)
        return input_products

    def _enter(self, cell: torch.Tensor) -> torch.Tensor:
        return 2 * cell

    def _leave(self, cell: torch.Tensor) -> torch.Tensor:
        return cell / 2

    def _step(self, gates: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor) -> torch.Tensor:
        self._state_linear.add_to(gates, hidden)
        gates.sigmoid_()
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=1)
        cell.mul_(forget_gate).addcmul_(input_gate, candidate.sub_(0.5), value=4)
        if self._cell_clip is not None:
            cell.clamp_(-2 * self._cell_clip, 2 * self._cell_clip)
        return self._projection(cell.sigmoid().sub_(0.5).mul_(output_gate))


def _are_one(*tensors: torch.Tensor) -> bool:
    """Whether rows of a CPU, two or more, are all the same; a GPU would be waited for."""
    return all(
        len(rows) > 1 and rows.device.type == "cpu" and torch.equal(rows[1:], rows[:-1])
        for rows in tensors
    )


def _candidate(gates: torch.Tensor, dim: int) -> torch.Tensor:
    """The part of `g` among `i, f, g, o`."""
    return gates.chunk(4, dim=dim)[2]
