"""Very long sentences in memory that does not grow with them."""

from collections.abc import Iterator, Sequence

import torch

from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.lstm import LstmState


@torch.no_grad()
def layers_in_chunks(
    bilm: BiLm, sentence: Sequence[str], chunk_size: int, row: int = 0
) -> Iterator[torch.Tensor]:
    """
    The layers of one sentence, a chunk of tokens at a time; the same numbers as from `BiLm.forward`
    up to rounding, in both directions.

    The backward direction is run twice: once from the end, keeping only its state between chunks,
    then again chunk by chunk beside the forward one. What is held is one chunk, and one LSTM state
    for each.

    # Parameters

    bilm : `BiLm`
        Any.
    sentence : `Sequence[str]`
        Its tokens.
    chunk_size : `int`
        Tokens at a time.
    row : `int`, optional (default = `0`)
        In `"carry"`, the row of the batch that the sentence is.

    # Returns

    `Iterator[torch.Tensor]`
        Shape `(mixture_size, n, embedding_dim)` with `n` up to `chunk_size`, in the sentence's
        order, without its boundaries.
    """
    num_steps = len(sentence) + 2
    begin, end = bilm.char_cnn.boundaries
    chunks = [
        range(start, min(start + chunk_size, num_steps))
        for start in range(0, num_steps, chunk_size)
    ]

    def vectors(chunk: range) -> torch.Tensor:
        tokens = list(sentence[max(chunk.start - 1, 0) : chunk.stop - 1])
        if chunk.start == 0:
            tokens.insert(0, begin)
        if chunk.stop == num_steps:
            tokens.append(end)
        ids = bilm.batch_to_ids([tokens])[0]
        return bilm.char_cnn(ids.to(bilm.device))

    def run(
        direction: str, inputs: torch.Tensor, state: LstmState
    ) -> tuple[list[torch.Tensor], LstmState]:
        return bilm.lstm.stack(direction, inputs, [1] * len(inputs), state)

    forward_state, backward_state = bilm.start_states_of([row])
    before: list[LstmState] = []
    for chunk in reversed(chunks):
        before.append(backward_state)
        _, backward_state = run("backward", vectors(chunk).flip(0), backward_state)
    for chunk in chunks:
        tokens = vectors(chunk)
        forward, forward_state = run("forward", tokens, forward_state)
        backward, _ = run("backward", tokens.flip(0), before.pop())
        halves = [(tokens, tokens), *((f, b.flip(0)) for f, b in zip(forward, backward))]
        first, last = int(chunk.start == 0), len(chunk) - int(chunk.stop == num_steps)
        if last > first:
            yield torch.stack([torch.cat(half, dim=-1)[first:last] for half in halves])
    bilm.keep_states_of([row], forward_state, backward_state)
