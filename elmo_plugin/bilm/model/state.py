"""Initial LSTM state of a sentence: carried over, zero, or primed."""

from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.backend import BiLstmState, LstmState

STATE_MODES = ("carry", "reset", "primed")
# In these, a sentence's vectors do not depend on the sentences before it.
REPRODUCIBLE_MODES = ("primed", "reset")

# Text after which the LSTM state of a primed biLM is the initial state of every sentence. Changing
# the text changes all vectors of primed biLMs.
WARM_UP_TEXT = """\
The rain had stopped before noon , and the road to the harbour was already dry .
She asked him twice whether the letter had come , but he only shook his head .
According to the report , the company sold more than 4,000 machines in the first year .
" You may leave your coat here , " said the old man , " and come in by the fire . "
Nobody in the village could remember who had built the bridge .
Officials in the capital said on Tuesday that the talks would go on for another week .
If the weather holds , we shall reach the coast by the end of the month .
It was a small room , with one window , a table , two chairs and a great many books .
"""


class StatePolicy:
    """
    Chooses the initial LSTM state of each sentence, and stores final states between batches.

    # Parameters

    name : `str`
        `"carry"`: start with the final state of the same row of the previous batch, as AllenNLP
        does; vectors depend on order and batching. `"reset"`: start with zeros. `"primed"`: start
        with the state after a fixed warm-up text; reproducible, without a cold start from zeros.

    # Attributes

    carried : `BiLstmState | None`
        Latest final state of each batch row, stored while `name` is `"carry"`.

    # Raises

    `ValueError`
        If `name` is none of these.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.carried: BiLstmState | None = None

    @property
    def name(self) -> str:
        """One of `STATE_MODES`; can be assigned."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        if name not in STATE_MODES:
            raise ValueError(f"state is {name!r}, expected one of {STATE_MODES}")
        self._name = name

    def start(self, rows: Sequence[int], begin: BiLstmState) -> BiLstmState:
        """
        Return the initial states of these batch rows: with `"carry"`, the states carried for them.
        Otherwise, and before the first batch, every row gets `begin`, the state of one sentence.
        """
        if self.name == "carry" and self.carried is not None:
            index = torch.tensor(list(rows), dtype=torch.long, device=begin[0].hidden.device)
            forward, backward = (
                _with_rows(state, rows).map(lambda values: values[:, index])
                for state in self.carried
            )
        else:
            forward, backward = (
                state.map(lambda values: values.expand(-1, len(rows), -1)) for state in begin
            )
        return forward, backward

    def keep(self, rows: Sequence[int], ends: BiLstmState) -> None:
        """Store the final states of these rows if `name` is `"carry"`; other rows keep theirs."""
        if self.name != "carry":
            return
        known = 0 if self.carried is None else self.carried[0].hidden.shape[1]
        if rows == range(max(known, len(rows))):  # the batch replaces all stored rows
            self.carried = ends
            return
        index = torch.tensor(list(rows), dtype=torch.long, device=ends[0].hidden.device)
        nothing = ends[0].map(lambda values: values[:, :0])
        before = [_with_rows(state, rows) for state in self.carried or (nothing, nothing)]
        forward, backward = (
            LstmState(*(whole.index_copy(1, index, part) for whole, part in zip(*both)))
            for both in zip(before, ends)
        )
        self.carried = forward, backward

    def move(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Apply `function`, such as a change of device or dtype, to the carried state."""
        if self.carried is not None:
            forward, backward = (state.map(function) for state in self.carried)
            self.carried = forward, backward


def _with_rows(state: LstmState, rows: Sequence[int]) -> LstmState:
    """Append zero states, so that the state has every row whose index is in `rows`."""
    missing = max(rows, default=-1) + 1 - state.hidden.shape[1]
    return state.map(lambda values: functional.pad(values, (0, 0, 0, max(0, missing))))
