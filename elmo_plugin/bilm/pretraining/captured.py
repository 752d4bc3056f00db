"""
Loss and gradients of a batch as one CUDA graph, which a GPU replays without waiting for Python.

A graph reads and writes tensors that are made once, so a batch is copied to them. Batches have
different numbers of distinct tokens: there is room for more, and a new graph if it is too little.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch

from elmo_plugin.bilm.kernels import tuning
from elmo_plugin.bilm.kernels.backend import BiLstmState
from elmo_plugin.bilm.model.characters import PADDING_CHARACTER_ID
from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.bilm.pretraining.language_model import LanguageModel
from elmo_plugin.bilm.pretraining.loader import BatchPair, to_device
from elmo_plugin.bilm.pretraining.softmax import Negatives

logger = logging.getLogger(__name__)

# Token lengths are rounded up to a multiple of this, so that few batches need another graph.
LENGTH_STEP = 4


class CapturedGradients:
    """Loss times `scale` and its gradients, for batches of equal size, from fixed memory."""

    def __init__(self, model: LanguageModel, scale: float) -> None:
        self.model, self.scale = model, scale
        self._all_parameters = list(model.parameters())
        self._settings: Any = None
        self._widths: tuple[int, ...] = ()
        self._replay: Callable[[], None] = lambda: None
        self._gradients: list[torch.Tensor | None] = []

    def __call__(
        self,
        pair: BatchPair,
        states: BiLstmState | None,
        negatives: tuple[Negatives, Negatives] | None,
        dropout: float,
        seed: int,
    ) -> tuple[torch.Tensor, BiLstmState]:
        """
        Add the gradients of a batch to those of the parameters, and return the losses of both
        directions, shape `(2,)`, and the final states. The next call overwrites the states. `seed`
        is that of dropout. A `RuntimeError` leaves the gradients as they were.
        """
        # Recording clears the gradients, and a repetition overwrites those before it.
        earlier = [None if one.grad is None else one.grad.clone() for one in self._all_parameters]
        found: list[torch.Tensor | None] = [None] * len(earlier)
        try:
            self._replay_with(self._padded(pair), states, negatives, dropout, seed)
            found = self._gradients
        finally:
            for parameter, before, own in zip(self._all_parameters, earlier, found):
                if before is None or own is None:
                    parameter.grad = own if before is None else before
                else:
                    parameter.grad = before + own
        return self._losses.clone(), self._states

    def _replay_with(
        self,
        pair: BatchPair,
        states: BiLstmState | None,
        negatives: tuple[Negatives, Negatives] | None,
        dropout: float,
        seed: int,
    ) -> None:
        given = [pair.characters, pair.tokens, pair.targets]
        shared = negatives is not None and negatives[0] is negatives[1]
        for one in (negatives or ())[: 1 if shared else 2]:
            given += [one.ids, torch.as_tensor(one.num_tries, dtype=torch.float64)]
        trains = tuple(one.requires_grad for one in self._all_parameters)
        settings = [one.shape for one in given], pair.widths, dropout, trains
        if states is None:
            zeros = self.model.bilm.lstm.initial_state(pair.tokens.shape[2])
            states = zeros, zeros
        if settings != self._settings:
            self._begin(pair, given, states, negatives, dropout)
            self._settings = settings
        else:
            self._copy(given, states)
        torch.manual_seed(seed)
        self._replay()

    def _padded(self, pair: BatchPair) -> BatchPair:
        """
        Return the batch with more distinct tokens, which no token of the text is: at the front,
        where the shortest are, and not fewer than in the batches before.
        """
        at_once, num_characters = tuning.TOKENS_AT_ONCE_ON_GPU, pair.characters.shape[1]
        parts = max(-(-len(pair.characters) // at_once), len(self._widths))
        missing = parts * at_once - len(pair.characters)
        characters = torch.cat([pair.characters[:1].expand(missing, -1), pair.characters])
        longest = (characters[at_once - 1 :: at_once] != PADDING_CHARACTER_ID).sum(dim=1).tolist()
        widest = self.model.bilm.char_cnn.widest_filter
        widths = [
            min(-(-one // LENGTH_STEP) * LENGTH_STEP, num_characters) + widest for one in longest
        ]
        if len(widths) == len(self._widths):
            widths = list(map(max, widths, self._widths))
        self._widths = tuple(widths)
        return pair._replace(
            characters=characters, tokens=pair.tokens + missing, widths=self._widths
        )

    def _begin(
        self,
        pair: BatchPair,
        given: list[torch.Tensor],
        states: BiLstmState,
        negatives: tuple[Negatives, Negatives] | None,
        dropout: float,
    ) -> None:
        """Make the tensors of a batch of these sizes, and record the work on them."""
        device = self.model.softmax.weight.device
        del self._replay, self._gradients  # frees the memory of the graph before
        self._inputs = [one.to(device, copy=True) for one in given]
        forward, backward = (LstmState(*(one.clone() for one in state)) for state in states)
        self._states = forward, backward
        self._losses = torch.zeros(2, device=device, dtype=forward.cell.dtype)
        characters, tokens, targets, *drawn = self._inputs
        batch = pair._replace(characters=characters, tokens=tokens, targets=targets)
        own = [Negatives(*one) for one in zip(drawn[::2], drawn[1::2])]
        samples = (own[0], own[-1]) if negatives else None

        def run() -> None:
            for parameter in self._all_parameters:
                parameter.grad = None
            output = self.model(batch, self._states, samples, dropout)
            (output.loss * self.scale).backward()
            losses = torch.stack([output.forward_loss, output.backward_loss])
            self._losses.copy_(losses.detach())
            for state, final in zip(self._states, output.states):
                for place, value in zip(state, final):
                    place.copy_(value)
            self._gradients = [one.grad for one in self._all_parameters]

        self._replay = cuda_graph(run)
        self._copy(given, states)

    def _copy(self, given: list[torch.Tensor], states: BiLstmState) -> None:
        for place, value in zip(self._inputs, given):
            place.copy_(to_device(value, place.device))
        for state, start in zip(self._states, states):
            for place, value in zip(state, start):
                if place is not value:
                    place.copy_(value)


def cuda_graph(run: Callable[[], None]) -> Callable[[], None]:
    """Record what `run` does on the GPU as a CUDA graph; return the function that repeats it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()  # compiles kernels, and lets libraries allocate what they keep
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # Other threads, such as NCCL's, may ask the GPU for something meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        run()
    return graph.replay
