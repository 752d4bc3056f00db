"""
Frozen bidirectional LSTM on a GPU, as CUDA graphs: to launch its kernels from Python would take
longer than their work.

A graph has a few steps of all layers and both directions, for a fixed number of sentences. It runs
until all sentences have ended; those that end earlier keep their state, and their outputs are 0.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from elmo_plugin.bilm.kernels import tuning
from elmo_plugin.bilm.kernels.fork_safe_lock import fork_safe_lock
from elmo_plugin.bilm.kernels.gpu import cuda_graph, lstm_fused
from elmo_plugin.bilm.kernels.gradients import rounded
from elmo_plugin.bilm.kernels.interface import BiLstmState, LstmState, LstmWeights

logger = logging.getLogger(__name__)


class GraphedLstm:
    """
    Frozen LSTM layers in both directions. From the second call on, the work is recorded as graphs.
    Thread-safe.

    The weights of the layers' two directions have the same shapes and clips everywhere, and must
    not change (see `derived.py`). `dtype` is that of matrix products, but not int8; with `skips`,
    layers above the first add their input to their output.
    """

    @torch.inference_mode(False)
    @torch.no_grad()
    def __init__(
        self,
        layers: Sequence[tuple[LstmWeights, LstmWeights]],
        dtype: str | None,
        skips: bool,
    ) -> None:
        self._layers, self._skips = [], skips
        for both in layers:
            first, state, bias, projection = map(torch.stack, zip(*(one.tensors for one in both)))
            first, state, projection = (rounded(one, dtype) for one in (first, state, projection))
            self._layers.append(LstmWeights(first, state, bias, projection, *both[0][4:]))
        self._blocks: dict[int, _Block] = {}
        self._pool: Any = None
        self._records, self._num_calls = True, 0
        # Held while the blocks' memory is in use, on the stream that used it last.
        self._lock = fork_safe_lock()
        self._stream: torch.cuda.Stream | None = None

    @torch.no_grad()
    def __call__(
        self, tokens: Sequence[torch.Tensor], lengths: torch.Tensor, start: BiLstmState
    ) -> tuple[list[torch.Tensor], BiLstmState]:
        """
        Run all layers over a padded batch, see `BiLstm.forward`. `tokens` are those that both
        directions read, or those of the forward and those of the backward direction.
        """
        batch_size, num_steps, _ = tokens[0].shape
        ranks = numbers = torch.arange(batch_size, device=lengths.device)
        order: Any = slice(None)
        inverse, ends = order, [num_steps] * batch_size
        if batch_size >= tuning.LEAST_SORTED_ON_GPU:
            order = lengths.argsort(descending=True)
            inverse = ranks = order.argsort()
            ends = lengths[order].tolist()
        hidden, cell = (torch.stack(both, dim=1)[:, :, order] for both in zip(*start))
        # The last steps may be of no sentence.
        steps = torch.arange(num_steps + tuning.STEPS_IN_GRAPH, device=lengths.device)
        last = lengths.unsqueeze(1) - 1
        reverse = torch.where(steps <= last, last - steps, steps)
        # Token of each sentence, step and direction. Shape: (batch_size, steps, 2)
        places = torch.stack([steps.expand_as(reverse), reverse], dim=2)
        rows = tokens[0].flatten(0, 1)
        index = places.clamp(max=num_steps - 1) + num_steps * numbers.view(-1, 1, 1)
        if len(tokens) == 2:
            index[..., 1].add_(len(rows))
            rows = torch.cat([rows, tokens[1].flatten(0, 1)])
        index = index[order].transpose(0, 2)
        outputs = hidden.new_zeros(len(hidden), *index.shape, hidden.shape[3])
        with self._lock, torch.cuda.device_of(lengths):
            self._take_turn()
            for first in range(0, batch_size, tuning.MOST_ROWS_IN_GRAPH):
                some = slice(first, first + tuning.MOST_ROWS_IN_GRAPH)
                self._run(
                    rows, index[..., some], lengths[order][some], ends[some], hidden[:, :, some],
                    cell[:, :, some], outputs[:, :, :, some],
                )  # fmt: skip
        # Place of each token in the outputs of a layer. Shape: (batch_size, num_steps, 2)
        places[..., 1].add_(len(steps))
        places = (places[:, :num_steps] * batch_size).add_(ranks.view(-1, 1, 1))
        layers = [one.flatten(0, 2)[places].flatten(2) for one in outputs]
        forward, backward = map(
            LstmState, hidden[:, :, inverse].unbind(1), cell[:, :, inverse].unbind(1)
        )
        return layers, (forward, backward)

    def _take_turn(self) -> None:
        """Have the current stream wait for the one that used the blocks' memory before."""
        self._num_calls += 1
        stream = torch.cuda.current_stream()
        if self._stream is not None and stream != self._stream:
            stream.wait_stream(self._stream)
        self._stream = stream

    def _run(
        self,
        rows: torch.Tensor,
        index: torch.Tensor,
        lengths: torch.Tensor,
        ends: Sequence[int],
        hidden: torch.Tensor,
        cell: torch.Tensor,
        outputs: torch.Tensor,
    ) -> None:
        """Run sentences by decreasing length; overwrite their states, and write their outputs."""
        step, block = 0, None
        while count := sum(end > step for end in ends):
            following = self._block(count)
            if following is not block:
                if block is not None:
                    block.save(hidden, cell)
                block = following
                block.load(hidden, cell, lengths - step)
            now = slice(step, step + block.num_steps)
            block.advance(rows, index[:, now], outputs[:, :, now])
            step += block.num_steps
        if block is not None:
            block.save(hidden, cell)

    def _block(self, count: int) -> "_Block":
        """Return the block for so many sentences, or a few more."""
        power = 1 << (count - 1).bit_length()
        size = power * 3 // 4 if count <= power * 3 // 4 else power
        block = self._blocks.get(size)
        if block is None:
            block = self._blocks[size] = _Block(self._layers, self._skips, size)
        # A first call may be the only one, as that of a copy made by `DataParallel`.
        if self._records and self._num_calls > 1 and not block.is_recorded:
            try:
                self._pool = self._pool or torch.cuda.graph_pool_handle()
                block.replay = cuda_graph.record(block.run, pool=self._pool)
                block.is_recorded = True
            except RuntimeError as error:  # of CUDA, the driver or Triton
                logger.warning("CUDA graphs are not used for the LSTM: %s", error)
                self._records = False
        return block


class _Block:
    """Memory of a few steps of `size` sentences, and the work on it."""

    @torch.inference_mode(False)
    def __init__(self, layers: Sequence[LstmWeights], skips: bool, size: int) -> None:
        self._layers, self._skips = layers, skips
        weights, num_layers = layers[0], len(layers)
        (_, dim, cell_size), input_dim = weights.projection.shape, weights.input.shape[2]
        most = tuning.INPUT_PRODUCT_ELEMENTS_ON_GPU // (8 * size * cell_size)
        self.size, self.num_steps = size, max(1, min(most, tuning.STEPS_IN_GRAPH))
        like = weights.bias
        self._inputs = like.new_zeros(2, self.num_steps, size, input_dim)
        self._outputs = like.new_zeros(num_layers, 2, self.num_steps, size, dim)
        self._hidden = weights.state.new_zeros(num_layers, 2, size, dim)
        self._cell = like.new_zeros(num_layers, 2, size, cell_size)
        # Number of steps that each sentence still has.
        self._left = like.new_zeros(size, dtype=torch.int32)
        self.replay: Callable[[], None] = self.run
        self.is_recorded = False

    def load(self, hidden: torch.Tensor, cell: torch.Tensor, left: torch.Tensor) -> None:
        """Take the states of the first `size` sentences, and the numbers of their steps."""
        count = min(self.size, len(left))
        self._left[:count] = left[:count]
        self._hidden[:, :, :count] = hidden[:, :, :count]
        self._cell[:, :, :count] = cell[:, :, :count]

    def save(self, hidden: torch.Tensor, cell: torch.Tensor) -> None:
        """Write the states back."""
        hidden[:, :, : self.size] = self._hidden[:, :, : hidden.shape[2]]
        cell[:, :, : self.size] = self._cell[:, :, : cell.shape[2]]

    def advance(self, rows: torch.Tensor, index: torch.Tensor, outputs: torch.Tensor) -> None:
        """Take the next steps, whose inputs are `rows[index]`, and write `outputs`."""
        index = index[..., : self.size]
        self._inputs[:, :, : index.shape[2]] = rows[index]
        self.replay()
        outputs[:, :, :, : self.size] = self._outputs[:, :, :, : index.shape[2]]

    def run(self) -> None:
        """Take the steps: what a graph records."""
        steps = torch.arange(self.num_steps, dtype=torch.int32, device=self._left.device)
        left = self._left - steps.unsqueeze(1)
        self._left -= self.num_steps
        inputs = self._inputs
        for number, weights in enumerate(self._layers):
            outputs = self._outputs[number]
            lstm_fused.run_layer(
                weights, inputs, outputs, self._hidden[number], self._cell[number], left
            )
            if number and self._skips:
                outputs += inputs
            inputs = outputs
