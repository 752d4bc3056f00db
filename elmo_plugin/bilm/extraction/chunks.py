"""Very long sentences in memory that does not grow with them, and state by rows of a batch."""

from contextlib import contextmanager
from typing import Iterator, Sequence

import torch

from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.characters import BEGIN_OF_SENTENCE, END_OF_SENTENCE, batch_to_ids
from elmo_plugin.bilm.model.lstm import LstmState


@torch.no_grad()
def layers_in_chunks(
    bilm: BiLm, sentence: Sequence[str], chunk_size: int
) -> Iterator[torch.Tensor]:
    """
    The layers of one sentence, a chunk of tokens at a time; the same numbers as from `BiLm.forward`
    up to rounding, in both directions.

    The backward direction is run twice: once from the end, keeping only its state between chunks,
    then again chunk by chunk beside the forward one. What is held is one chunk, and one LSTM state
    for each.

    # Parameters

    bilm : `BiLm`
        In `"carry"`, the sentence is row 0 of a batch of one (see `state_of_rows`).
    sentence : `Sequence[str]`
        Its tokens.
    chunk_size : `int`
        Tokens at a time.

    # Returns

    `Iterator[torch.Tensor]`
        Shape `(mixture_size, n, embedding_dim)` with `n` up to `chunk_size`, in the sentence's
        order, without its boundaries.
    """
    num_steps = len(sentence) + 2
    chunks = [
        range(start, min(start + chunk_size, num_steps))
        for start in range(0, num_steps, chunk_size)
    ]

    def vectors(chunk: range) -> torch.Tensor:
        tokens = list(sentence[max(chunk.start - 1, 0) : chunk.stop - 1])
        if chunk.start == 0:
            tokens.insert(0, BEGIN_OF_SENTENCE)
        if chunk.stop == num_steps:
            tokens.append(END_OF_SENTENCE)
        ids = batch_to_ids([tokens], bilm.options.num_characters)[0]
        return bilm._token_embedder(ids.to(device))

    def run(
        direction: str, inputs: torch.Tensor, state: LstmState
    ) -> tuple[list[torch.Tensor], LstmState]:
        return bilm._elmo_lstm(direction, inputs, [1] * len(inputs), state)

    device = next(bilm.parameters()).device
    forward_state, backward_state = bilm.start_states(1)
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
    if bilm.state == "carry":
        bilm.keep_states(forward_state, backward_state)


@contextmanager
def state_of_rows(bilm: BiLm, rows: Sequence[int]) -> Iterator[None]:
    """
    In the block the biLM carries the state of some rows of a larger batch, so that the batch can be
    run in parts, in any order: what a row gives depends on its own state alone.

    # Parameters

    bilm : `BiLm`
        Any; nothing happens unless its `state` is `"carry"`.
    rows : `Sequence[int]`
        Which rows, in the order in which they are run.
    """
    if bilm.state != "carry":
        yield
        return
    known = 0 if bilm._carried is None else bilm._carried[0].hidden.shape[1]
    whole = [state.map(torch.clone) for state in bilm.start_states(max(known, max(rows) + 1))]
    index = torch.tensor(rows, device=whole[0].hidden.device)
    parts = [state.map(lambda values: values[:, index]) for state in whole]
    bilm._carried = (parts[0], parts[1])
    try:
        yield
        for old, new in zip(whole, bilm._carried):
            old.hidden.index_copy_(1, index, new.hidden)
            old.cell.index_copy_(1, index, new.cell)
    finally:
        bilm._carried = (whole[0], whole[1])
