"""Initial LSTM state of a sentence: carried over, zero, or primed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

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

    Its `name` is `"carry"`: start with the final state of the same row of the previous batch, as
    AllenNLP does; vectors depend on order and batching. `"reset"`: start with zeros. `"primed"`:
    start with the state after a fixed warm-up text; reproducible, without a cold start from zeros.

    `states` are the latest hidden and cell states of each batch row, stored while `name` is
    `"carry"`, in the format of AllenNLP's `_states`: shapes `(num_layers, batch_size, 2 *
    projection_dim)` and `(num_layers, batch_size, 2 * cell_size)`, forward half first.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.states: Sequence[torch.Tensor] | None = None

    @property
    def name(self) -> str:
        """One of `STATE_MODES`. Assigning another value raises a `ValueError`."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        if name not in STATE_MODES:
            raise ValueError(f"state is {name!r}, expected one of {STATE_MODES}")
        self._name = name

    @property
    def carried(self) -> BiLstmState | None:
        """`states` as one state for each direction, which are views of it; can be assigned."""
        return _by_direction(self.states) if self.states else None

    @carried.setter
    def carried(self, carried: BiLstmState | None) -> None:
        self.states = None if carried is None else _joined(carried)

    def start(self, rows: Sequence[int], begin: BiLstmState) -> BiLstmState:
        """
        Return the initial states of these batch rows: with `"carry"`, the states carried for them.
        Otherwise, and before the first batch, every row gets `begin`, the state of one sentence.

        Raise a `ValueError` if `states` was assigned, and does not fit the biLM.
        """
        if self.name != "carry" or not self.states:
            forward, backward = (
                state.map(lambda values: values.expand(-1, len(rows), -1)) for state in begin
            )
            return forward, backward
        like = _joined(begin)
        found = [tuple(values.shape) for values in self.states]
        if [(one[0], *one[2:]) for one in found] != [(len(one), one.shape[2]) for one in like]:
            raise ValueError(
                f"the carried LSTM states have the shapes {found}, expected "
                f"{[(len(one), 'batch_size', one.shape[2]) for one in like]}"
            )
        index = torch.tensor(list(rows), dtype=torch.long, device=like[0].device)
        both = zip(self.states, like)
        return _by_direction([_with_rows(old.to(one), rows)[:, index] for old, one in both])

    def keep(self, rows: Sequence[int], ends: BiLstmState) -> None:
        """Store the final states of these rows if `name` is `"carry"`; other rows keep theirs."""
        if self.name != "carry":
            return
        new = _joined(ends)
        known = self.states[0].shape[1] if self.states else 0
        if rows != range(max(known, len(rows))):  # else the batch replaces all stored rows
            index = torch.tensor(list(rows), dtype=torch.long, device=new[0].device)
            before = self.states or [values[:, :0] for values in new]
            new = tuple(
                _with_rows(old.to(one), rows).index_copy(1, index, one)
                for old, one in zip(before, new)
            )
        self.states = new

    @property
    def here(self) -> "StatePolicy":
        """Policy in force in this thread: that of the innermost `carrying` block, or this one."""
        other = _stand_ins.get().get(self)
        return self if other is None else other.here

    @contextmanager
    def carrying(self, start: BiLstmState) -> Iterator["StatePolicy"]:
        """
        Use a new "carry" policy in place of this one, within the block and in this thread alone.

        The block gets the new policy. It carries `start` at first; each batch replaces that.
        """
        other = StatePolicy("carry")
        other.carried = start
        token = _stand_ins.set({**_stand_ins.get(), self: other})
        try:
            yield other
        finally:
            _stand_ins.reset(token)


# Policies that replace others in this thread, within `StatePolicy.carrying`.
_stand_ins: ContextVar[Mapping[StatePolicy, StatePolicy]] = ContextVar(
    "stand_ins", default=MappingProxyType({})
)


def _joined(states: BiLstmState) -> tuple[torch.Tensor, ...]:
    """Return hidden and cell states, those of both directions along the last dimension."""
    return tuple(torch.cat(both, dim=2) for both in zip(*states))


def _by_direction(states: Sequence[torch.Tensor]) -> BiLstmState:
    """Return the state of each direction: views, so that writes to them are writes to `states`."""
    forward, backward = zip(*(both.chunk(2, dim=2) for both in states))
    return LstmState(*forward), LstmState(*backward)


def _with_rows(values: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    """Append zero states, so that there is every row whose index is in `rows`."""
    missing = max(rows, default=-1) + 1 - values.shape[1]
    return functional.pad(values, (0, 0, 0, max(0, missing)))
