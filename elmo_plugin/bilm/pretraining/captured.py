"""A training step as one CUDA graph, which a GPU replays without waiting for Python."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from elmo_plugin.bilm.kernels import tuning
from elmo_plugin.bilm.kernels.backend import BiLstmState
from elmo_plugin.bilm.kernels.gpu import cuda_graph
from elmo_plugin.bilm.model.characters import PADDING_CHARACTER_ID
from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.bilm.pretraining.language_model import LanguageModel
from elmo_plugin.bilm.pretraining.loader import BatchPair
from elmo_plugin.bilm.pretraining.softmax import Negatives

# Token lengths are rounded up to a multiple of this, so that few batches need another graph.
LENGTH_STEP = 4
# Inputs begin at multiples of this many bytes.
ALIGNMENT = 16


class CapturedStep:
    """
    Training step as a CUDA graph, for batches of equal size, which are copied to fixed memory. It
    computes the loss times `scale` and its gradients. Batches have different numbers of distinct
    tokens: there is room for more, and a new graph is recorded if it is too little.

    `update`, if given, follows in the same graph: it changes the weights by their gradients, with
    learning rates that are a tensor, and returns the norm of the gradients.
    """

    def __init__(
        self,
        model: LanguageModel,
        scale: float,
        update: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self.model, self.scale, self.update = model, scale, update
        self._all_parameters = list(model.parameters())
        self._settings: Any = None
        self._widths: tuple[int, ...] = ()
        self.replay: Callable[[], None] = lambda: None
        self._gradients: list[torch.Tensor | None] = []

    def __call__(
        self,
        pair: BatchPair,
        states: BiLstmState | None,
        negatives: tuple[Negatives, Negatives] | None,
        kept: torch.Tensor | None,
        dropout: float,
        seed: int,
        rates: Sequence[float],
    ) -> tuple[torch.Tensor, BiLstmState]:
        """
        Return the losses of both directions and the norm of the gradients (0 without `update`),
        shape `(3,)`, and the final states, which the next call overwrites.

        `kept` is as in `add_gradients`, `seed` is that of dropout. Without `update`, the gradients
        add to those of the parameters. A `RuntimeError` leaves weights and gradients as they were.
        """
        pair = self._padded(pair)
        given = [pair.characters, pair.tokens, pair.targets, torch.tensor(rates)]
        given += [] if kept is None else [kept]
        shared = negatives is not None and negatives[0] is negatives[1]
        for one in (negatives or ())[: 1 if shared else 2]:
            given += [one.draws, torch.as_tensor(one.num_tries, dtype=torch.float64)]
        trains = tuple(one.requires_grad for one in self._all_parameters)
        settings = [(one.shape, one.dtype) for one in given], pair.widths, dropout, trains
        if states is None:
            zeros = self.model.bilm.lstm.initial_state(pair.tokens.shape[2])
            states = zeros, zeros
        # Recording clears the gradients, and a repetition overwrites those before it.
        earlier = [None if one.grad is None else one.grad.clone() for one in self._all_parameters]
        found: list[torch.Tensor | None] = [None] * len(earlier)
        try:
            if settings != self._settings:
                self._record(pair, given, states, kept is not None, bool(negatives), dropout)
                self._settings = settings
            self._copy(given, states)
            seed_generators(seed, self._memory.device)
            self.replay()
            found = self._gradients
        finally:
            for parameter, before, own in zip(self._all_parameters, earlier, found):
                if before is None or own is None:
                    parameter.grad = own if before is None else before
                else:
                    parameter.grad = before + own
        if self.update is not None:  # PyTorch does not see what a graph writes
            torch.autograd.graph.increment_version(self._all_parameters)
        return self._figures.clone(), self._states

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

    def _record(
        self,
        pair: BatchPair,
        given: list[torch.Tensor],
        states: BiLstmState,
        resets: bool,
        samples: bool,
        dropout: float,
    ) -> None:
        """Make the tensors of a batch of these sizes, and record the work on them."""
        device = self.model.softmax.weight.device
        del self.replay, self._gradients  # frees the memory of the graph before
        self._memory = torch.empty(_end_of(given), dtype=torch.uint8, device=device)
        inputs = _places(self._memory, given)
        forward, backward = (LstmState(*(one.clone() for one in state)) for state in states)
        self._states = forward, backward
        self._figures = torch.zeros(3, device=device, dtype=forward.cell.dtype)
        characters, tokens, targets, rates, *others = inputs
        kept = others.pop(0) if resets else None
        batch = pair._replace(characters=characters, tokens=tokens, targets=targets)
        own = [Negatives(*one) for one in zip(others[::2], others[1::2])]
        negatives = (own[0], own[-1]) if samples else None

        def run(updates: bool = True) -> None:
            for parameter in self._all_parameters:
                parameter.grad = None
            losses, finals = self.model.add_gradients(
                batch, self._states, kept, negatives, dropout, self.scale
            )
            self._figures[:2].copy_(losses)
            for state, final in zip(self._states, finals):
                for place, value in zip(state, final):
                    place.copy_(value)
            if updates and self.update is not None:
                self._figures[2].copy_(self.update(rates))
            self._gradients = [one.grad for one in self._all_parameters]

        self._copy(given, states)
        self.replay = cuda_graph.record(run, lambda: run(updates=False))

    def _copy(self, given: list[torch.Tensor], states: BiLstmState) -> None:
        # One copy to the device, from memory that is not paged out, so that nothing waits for it.
        host = torch.empty(len(self._memory), dtype=torch.uint8, pin_memory=self._memory.is_cuda)
        for place, value in zip(_places(host, given), given):
            place.copy_(value)
        self._memory.copy_(host, non_blocking=True)
        for state, start in zip(self._states, states):
            for place, value in zip(state, start):
                if place is not value:
                    place.copy_(value)


def _end_of(tensors: Sequence[torch.Tensor]) -> int:
    return sum(-(-one.nbytes // ALIGNMENT) * ALIGNMENT for one in tensors)


def _places(memory: torch.Tensor, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors of the same shapes and dtypes that share a memory of `_end_of` bytes."""
    return [
        memory[_end_of(like[:index]) :][: one.nbytes].view(one.dtype).view(one.shape)
        for index, one in enumerate(like)
    ]


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the generators of the CPU and of a device; `torch.manual_seed` asks for all devices."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
