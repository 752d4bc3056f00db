"""Compute the layers of a very long sentence in chunks, with bounded memory."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from elmo_plugin.bilm.kernels.backend import check_no_hooks
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.lstm import BiLstm, LstmState


@torch.no_grad()
def layers_in_chunks(
    bilm: BiLm,
    sentence: Sequence[str],
    chunk_size: int,
    row: int = 0,
    report: Callable[[int], Any] = lambda count: None,
) -> Iterator[torch.Tensor]:
    """
    Compute the layers of one sentence, `chunk_size` tokens at a time, and yield those of each
    chunk, shape `(mixture_size, n, embedding_dim)` without boundaries, as `BiLm.forward` has them.

    The backward direction runs twice: first from the end, to keep the state before each chunk
    (which calls `report(0)`), then with the forward direction. Memory holds one chunk, and a state
    for each. In state `"carry"`, `row` is the batch row whose carried LSTM state is used and
    replaced.
    """
    num_steps = len(sentence) + 2
    begin, end = bilm.boundary_vectors().split(1)
    chunks = [
        range(start, min(start + chunk_size, num_steps))
        for start in range(0, num_steps, chunk_size)
    ]

    def vectors(chunk: range) -> torch.Tensor:
        tokens = bilm.token_vectors(sentence[max(chunk.start - 1, 0) : chunk.stop - 1])
        first, last = [begin] * (chunk.start == 0), [end] * (chunk.stop == num_steps)
        return torch.cat([*first, tokens, *last])

    check_no_hooks(bilm.lstm, BiLstm)
    forward_state, backward_state = bilm.start_states([row])
    before: list[LstmState] = []
    for chunk in reversed(chunks):
        before.append(backward_state)
        inputs, ones = vectors(chunk).flip(0), [1] * len(chunk)
        _, backward_state = bilm.lstm.stack("backward", inputs, ones, backward_state)
        report(0)
    for chunk in chunks:
        mask = torch.ones(1, len(chunk), dtype=torch.bool, device=bilm.device)
        output = bilm.run_vectors(vectors(chunk), mask, (forward_state, before.pop()))
        forward_state = output.end[0]
        first, last = int(chunk.start == 0), len(chunk) - int(chunk.stop == num_steps)
        if last > first:
            yield torch.stack(output.layers)[:, 0, first:last]
    bilm.keep_states([row], forward_state, backward_state)
