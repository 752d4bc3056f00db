"""Padded batches to packed, time-major rows, and how much of them is run at once."""

from collections.abc import Iterator

import torch

from elmo_plugin.bilm.kernels.interface import LstmState, Stack


class Packing:
    """
    Where each real token of some sentences of a padded batch stands among packed rows (see
    `reference.py`).

    # Parameters

    lengths : `torch.Tensor`
        Int64, shape `(batch_size,)`: tokens of every sentence of the batch, with boundaries.
    padded_length : `int`
        Positions of the padded batch with boundaries, `num_tokens + 2`.
    order : `torch.Tensor`
        Int64, shape `(num_sentences,)`: which sentences, by falling length.

    # Attributes

    order : `torch.Tensor`
        As given.
    batch_sizes : `list[int]`
        Rows of each step, falling.
    forward_rows, backward_rows : `torch.Tensor`
        For each packed row its place in the flattened padded batch, reading from the start or from
        the end of each sentence.
    """

    def __init__(self, lengths: torch.Tensor, padded_length: int, order: torch.Tensor) -> None:
        self.order = order
        lengths = lengths[order]
        steps = torch.arange(padded_length, device=lengths.device)
        # Shape: (num_tokens + 2, num_sentences); row-major order is the packed order.
        alive = steps.unsqueeze(1) < lengths
        self.batch_sizes = [size for size in alive.sum(dim=1).tolist() if size > 0]
        step, rank = alive.nonzero(as_tuple=True)
        first = order[rank] * padded_length
        self.forward_rows = first + step
        self.backward_rows = first + lengths[rank] - 1 - step

    def parts(self, most_rows: int) -> Iterator[tuple[slice, list[int]]]:
        """
        # Parameters

        most_rows : `int`
            Rows of a part; a single step may have more.

        # Returns

        `Iterator[tuple[slice, list[int]]]`
            Some steps after one another: their packed rows, and the rows of each.
        """
        start = step = 0
        while step < len(self.batch_sizes):
            first, stop = step, start
            while step < len(self.batch_sizes) and (
                step == first or stop + self.batch_sizes[step] - start <= most_rows
            ):
                stop += self.batch_sizes[step]
                step += 1
            yield slice(start, stop), self.batch_sizes[first:step]
            start = stop


def pack(lengths: torch.Tensor, padded_length: int, most_sentences: int) -> list[Packing]:
    """
    The sentences of a padded batch, those of similar length together.

    # Parameters

    lengths, padded_length
        As in `Packing`.
    most_sentences : `int`
        Sentences of a packing.

    # Returns

    `list[Packing]`
        Together all sentences, the longest first.
    """
    order = lengths.argsort(descending=True, stable=True)
    return [Packing(lengths, padded_length, some) for some in order.split(max(1, most_sentences))]


def over_padded(
    stack: Stack,
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    state: LstmState,
    outputs: list[torch.Tensor],
    *,
    reverse: bool,
    sentences_at_once: int,
    tokens_at_once: int,
) -> LstmState:
    """
    `reference.over_padded`, so many sentences at a time, the longest first, and so many of their
    tokens.
    """
    if len(inputs) == 1:
        return _over_one(stack, inputs[0], int(lengths), state, outputs, reverse, tokens_at_once)
    rows_of_batch = inputs.flatten(0, 1)
    rows_of_layers = [output.view(rows_of_batch.shape) for output in outputs]
    end = state.map(torch.clone)
    for packing in pack(lengths, inputs.shape[1], sentences_at_once):
        rows = packing.backward_rows if reverse else packing.forward_rows
        part = state.map(lambda values: values[:, packing.order])  # noqa: B023
        for places, batch_sizes in packing.parts(tokens_at_once):
            index, size = rows[places], batch_sizes[0]
            start = part.map(lambda values: values[:, :size])  # noqa: B023
            packed, final = stack(rows_of_batch.index_select(0, index), batch_sizes, start)
            for layer, values in zip(rows_of_layers, packed):
                layer.index_copy_(0, index, values)
            part = part.continued_by(final)
        for whole, values in zip(end, part):
            whole[:, packing.order] = values
    return end


def _over_one(
    stack: Stack,
    inputs: torch.Tensor,
    length: int,
    state: LstmState,
    outputs: list[torch.Tensor],
    reverse: bool,
    tokens_at_once: int,
) -> LstmState:
    """The same of one sentence, shape `(num_steps, input_dim)`, which is packed as it lies."""

    def turned(rows: torch.Tensor) -> torch.Tensor:
        return rows.flip(0) if reverse else rows

    for start in range(0, length, tokens_at_once):
        stop = min(start + tokens_at_once, length)
        places = slice(length - stop, length - start) if reverse else slice(start, stop)
        packed, state = stack(turned(inputs[places]), [1] * (stop - start), state)
        for output, values in zip(outputs, packed):
            output[0, places] = turned(values)
    return state
