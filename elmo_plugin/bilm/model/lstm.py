"""
Bidirectional LSTM: a stack of LSTM layers with projection and clipping in each direction. The
backward direction runs the same code over reversed sentences. Rows are packed, see `packing.py`.
"""

import functools
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.backend import (
    BiLstmState,
    LstmModules,
    LstmState,
    LstmWeights,
    WeightsModule,
    all_parameters,
    any_weight,
    backend,
    call_lstm_modules,
    frozen_bilstm,
    lstm_steps,
    plain,
    plain_affines,
    plain_class,
    plain_weights,
    runs_as_defined,
    runs_whole_lstms,
    say_slower,
    trains,
    wants_gradient,
)
from elmo_plugin.bilm.model.characters import sentence_lengths
from elmo_plugin.bilm.model.packing import Packing
from elmo_plugin.bilm.model.state import StatePolicy

DIRECTIONS = ("forward", "backward")
# Settings of AllenNLP's layers that cannot be changed here.
FIXED = ("go_forward", "recurrent_dropout_probability")
# AllenNLP's names of the clips, under which a layer stores them: a `state_dict` has learned ones.
CLIPS = {"cell_clip": "memory_cell_clip_value", "projection_clip": "state_projection_clip_value"}


@plain_class
class LstmCellWithProjection(WeightsModule):
    """
    One LSTM layer of one direction (Sak et al. 2014), clipped as in TensorFlow 1's `LSTMCell`.

    `z = W x + U h + b` is split into the gates `i, f, g, o`;
    `c = clip(sigmoid(f) c + sigmoid(i) tanh(g))`, `h = clip(P (sigmoid(o) tanh(c)))`
    (`kernels/reference.py`).

    Parameters have the names and order of AllenNLP's `LstmCellWithProjection`. TensorFlow's forget
    bias of 1 is part of `state_linearity.bias`. `cell_clip` and `projection_clip` are the largest
    absolute values of `c` and `h`; `None` or 0 for no limit. A tensor that is assigned later gets a
    gradient. `go_forward` is AllenNLP's name for the direction; the rows of a backward layer are
    reversed already.
    """

    def __init__(
        self,
        input_dim: int,
        projection_dim: int,
        cell_size: int,
        cell_clip: float | None = 3.0,
        projection_clip: float | None = 3.0,
        go_forward: bool = True,
    ) -> None:
        super().__init__()
        # AllenNLP's names. To set them changes nothing else: the weights have their own sizes.
        self.input_size, self.hidden_size, self.cell_size = input_dim, projection_dim, cell_size
        self.cell_clip = cell_clip
        self.projection_clip = projection_clip
        self.go_forward = go_forward
        self.recurrent_dropout_probability = 0.0
        self.input_linearity = torch.nn.Linear(input_dim, 4 * cell_size, bias=False)
        self.state_linearity = torch.nn.Linear(projection_dim, 4 * cell_size, bias=True)
        self.state_projection = torch.nn.Linear(cell_size, projection_dim, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize as in bilm-tf: Glorot-uniform weights, and biases 0 except forget biases 1."""
        input_dim, cell_size = self.input_size, self.cell_size
        kernel = torch.empty(4 * cell_size, input_dim + self.hidden_size)
        torch.nn.init.xavier_uniform_(kernel)
        with torch.no_grad():
            self.input_linearity.weight.copy_(kernel[:, :input_dim])
            self.state_linearity.weight.copy_(kernel[:, input_dim:])
            self.state_linearity.bias.zero_()
            self.state_linearity.bias[cell_size : 2 * cell_size] = 1.0
        torch.nn.init.xavier_uniform_(self.state_projection.weight)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FIXED and value != vars(self).get(name, value):
            raise ValueError(
                f"{name} is {value!r}, expected {vars(self)[name]!r}: it is fixed here"
            )
        own_name = CLIPS.get(name, name)
        if own_name in CLIPS.values():
            # `_Look` shall see a tensor that is equal to the number before.
            vars(self)["_clips_set"] = object()
            if value is not None and not isinstance(value, torch.Tensor):
                if not value >= 0:
                    raise ValueError(f"{name} is {value!r}, expected a number from 0, or None")
                value = float(value)
        super().__setattr__(own_name, value)

    # AllenNLP's names, which programs written for its `LstmCellWithProjection` read and set.
    cell_clip = property(attrgetter(CLIPS["cell_clip"]))
    projection_clip = property(attrgetter(CLIPS["projection_clip"]))

    @property
    def clips(self) -> tuple[Any, Any]:
        """Limits of cell states and of outputs; `None` for no limit."""
        return self.cell_clip or None, self.projection_clip or None

    def forward(
        self,
        inputs: torch.Tensor,
        batch_sizes: Sequence[int],
        hidden: Any = None,
        cell: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, Any, Any] | tuple[torch.Tensor, Any]:
        """
        Run the layer over packed rows, see `reference.lstm_layer`: the state gets no gradient.

        It also takes AllenNLP's arguments: padded sentences, their lengths, and `(hidden, cell)` or
        `None`, which then get gradients.
        """
        if inputs.dim() == 3:
            return self._run_padded(inputs, batch_sizes, hidden)
        assert cell is not None
        return self._run_packed(inputs, batch_sizes, hidden, cell)

    def _run_packed(
        self,
        inputs: torch.Tensor,
        batch_sizes: Sequence[int],
        hidden: torch.Tensor,
        cell: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        weights = self.plain_weights
        arguments = inputs, batch_sizes, hidden, cell
        if weights is not None:
            return backend().lstm_layer(*arguments, weights, self.precision)
        return call_lstm_modules(*arguments, self._modules_to_call)

    @property
    def _modules_to_call(self) -> LstmModules:
        layers = self.input_linearity, self.state_linearity, self.state_projection
        return LstmModules(*layers, *self.clips)

    def _run_padded(
        self, inputs: torch.Tensor, lengths: Sequence[int], start: Sequence[torch.Tensor] | None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        packing = Packing(torch.as_tensor(lengths, device=inputs.device), inputs.shape[1])
        if start is None:
            sizes = self.hidden_size, self.cell_size
            start = [inputs.new_zeros(1, len(inputs), size) for size in sizes]
        hidden, cell = (one.squeeze(0) for one in packing.sort(LstmState(*start)))
        direction = DIRECTIONS[not self.go_forward]
        arguments = packing.pack(inputs, direction), packing.batch_sizes, hidden, cell
        if wants_gradient([arguments[0], hidden, cell, *all_parameters(self)]):
            packed, hidden, cell = lstm_steps(*arguments, self._modules_to_call)
        else:
            packed, hidden, cell = self._run_packed(*arguments)
        end = packing.unsort(LstmState(hidden.unsqueeze(0), cell.unsqueeze(0)))
        return packing.unpack(**{direction: packed}), tuple(end)

    # Current weights, as an argument for a backend; an error if a layer is not plain.
    weights = property(lambda self: plain(self.plain_weights))

    @plain_weights
    def plain_weights(self) -> LstmWeights | None:
        """Current weights, or `None` if a layer is not plain (`kernels/plain.py`)."""
        affines = plain_affines([
            (self.input_linearity, torch.nn.Linear, False),
            (self.state_linearity, torch.nn.Linear, True),
            (self.state_projection, torch.nn.Linear, False),
        ])  # fmt: skip
        if affines is None:
            return None
        clips = self.clips
        if any(isinstance(one, torch.Tensor) for one in clips):
            say_slower("a clip of an LSTM layer is a tensor")
            return None
        (inputs, _), (state, bias), (projection, _) = affines
        return LstmWeights(inputs, state, bias, projection, *clips)


@plain_class
class BiLstm(torch.nn.Module):
    """
    Bidirectional LSTM: a stack of `LstmCellWithProjection` for each direction.

    Arguments are those of `ElmoOptions`. With `use_skip_connections`, layers above the first add
    their input to their output, after the clip and outside the recurrence. These outputs may
    therefore exceed the clip (https://github.com/allenai/bilm-tf/blob/7cffee2/bilm/model.py).
    """

    def __init__(
        self,
        *,
        projection_dim: int,
        cell_size: int,
        num_layers: int,
        cell_clip: float | None = 3.0,
        projection_clip: float | None = 3.0,
        use_skip_connections: bool = True,
    ) -> None:
        super().__init__()
        self.input_size = self.hidden_size = projection_dim  # AllenNLP's names, not used here
        self.cell_size = cell_size
        self._state_sizes = projection_dim, cell_size
        self._num_layers = self.num_layers = num_layers  # one for programs to set, as above
        self.use_skip_connections = use_skip_connections
        self._policy = StatePolicy("carry")
        for layer in range(num_layers):
            for direction in DIRECTIONS:
                cell = LstmCellWithProjection(
                    projection_dim, projection_dim, cell_size, cell_clip, projection_clip,
                    go_forward=direction == "forward",
                )  # fmt: skip
                self.add_module(f"{direction}_layer_{layer}", cell)

    # The `StatePolicy` of this thread.
    policy = property(attrgetter("_policy.here"))

    def layers(self, direction: str) -> list[LstmCellWithProjection]:
        """Return the layers of `"forward"` or `"backward"`, lowest first."""
        return [getattr(self, f"{direction}_layer_{layer}") for layer in range(self._num_layers)]

    @property
    def plain_weights(self) -> list[tuple[LstmWeights, LstmWeights]] | None:
        """Weights of each layer's two directions; `None` if a layer is not plain."""
        layers = list(zip(*map(self.layers, DIRECTIONS)))
        if not all(
            _takes_rows(one, name) for both in layers for one, name in zip(both, DIRECTIONS)
        ):
            return None
        found = [(one.plain_weights, other.plain_weights) for one, other in layers]
        return None if any(None in both for both in found) else found

    def _keep_layers(self, layers: Sequence[torch.nn.Module]) -> None:
        self._num_layers = len(layers)  # as in AllenNLP, only the number counts

    # AllenNLP's names, which programs written for its `ElmoLstm` read and set.
    forward_layers = property(lambda self: self.layers("forward"), _keep_layers)
    backward_layers = property(lambda self: self.layers("backward"))
    requires_grad = property(trains, lambda self, _: None)

    @property
    def stateful(self) -> bool:
        """`True` if a sentence starts from the final state of the same row in the last batch."""
        return self.policy.name == "carry"

    @stateful.setter
    def stateful(self, stateful: bool) -> None:
        if stateful != self.stateful:
            self.policy.name = "carry" if stateful else "reset"

    @property
    def _states(self) -> Sequence[torch.Tensor] | None:
        """
        Carried hidden and cell states, see `StatePolicy`; can be assigned. `None` before the first
        batch; an empty tuple if no state is carried.
        """
        return () if self.policy.states is None and not self.stateful else self.policy.states

    @_states.setter
    def _states(self, states: Sequence[torch.Tensor] | None) -> None:
        self.policy.states = states

    def reset_states(self, mask: torch.Tensor | None = None) -> None:
        """
        Forget the carried state; with `mask`, bool, shape `(batch_size,)`, only that of these rows.
        Raise a `ValueError` if `mask` has another dtype, or not one element for each carried row.
        """
        states = self.policy.states
        if mask is None or states is None:
            self.policy.states = None
            return
        if mask.dtype != torch.bool or mask.shape != states[0].shape[1:2]:
            raise ValueError(
                f"the mask of rows to reset is {mask.dtype} of shape {tuple(mask.shape)}, expected "
                f"torch.bool of shape {tuple(states[0].shape[1:2])}, as states are carried"
            )
        self.policy.states = tuple(one * ~mask.view(1, -1, 1) for one in states)

    def _apply(self, fn: Any, recurse: bool = True) -> "BiLstm":
        """Convert the weights and the carried state; `.to()`, `.double()` and others call this."""
        super()._apply(fn, recurse)
        if self.policy.states:
            self.policy.states = tuple(map(fn, self.policy.states))
        return self

    def _replicate_for_data_parallel(self) -> "BiLstm":
        """Give the replica a carried state of its own: replicas run in parallel on other GPUs."""
        replica = super()._replicate_for_data_parallel()
        replica._policy = StatePolicy(self.policy.name)
        return replica

    def initial_state(self, batch_size: int) -> LstmState:
        """Return a state of zeros for one direction."""
        weight = any_weight(self)  # may be sparse or sharded
        shapes = ((self._num_layers, batch_size, size) for size in self._state_sizes)
        return LstmState(
            *(torch.zeros(one, dtype=weight.dtype, device=weight.device) for one in shapes)
        )

    def forward(
        self,
        tokens: torch.Tensor,
        lengths: torch.Tensor,
        start: BiLstmState | None = None,
        backward_tokens: torch.Tensor | None = None,
    ) -> Any:
        """
        Run both directions over a padded batch.

        # Parameters

        tokens : `torch.Tensor`
            Token vectors, shape `(batch_size, num_steps, projection_dim)`.
        lengths : `torch.Tensor`
            Number of tokens of each sentence, int64, shape `(batch_size,)`.
        start : `BiLstmState | None`
            Initial state of each sentence in both directions. Without it, this is AllenNLP's
            `ElmoLstm`: `lengths` is the bool mask, shape `(batch_size, num_steps)`, the state is
            carried or zeros, and the result is one tensor, the layers' outputs.
        backward_tokens : `torch.Tensor | None`, optional (default = `None`)
            Token vectors for the backward direction, if they are others.

        # Returns

        `tuple[list[torch.Tensor], BiLstmState]`
            Each layer's output, shape `(batch_size, num_steps, 2 * projection_dim)`, forward half
            first, zero at padding; and each sentence's final states. The forward direction ends
            after the last token, the backward direction after the first.
        """
        if start is None:
            return self._run_as_allennlp(tokens, lengths)
        return self._run_padded(tokens, lengths, start, backward_tokens)

    def _run_padded(
        self,
        tokens: torch.Tensor,
        lengths: torch.Tensor,
        start: BiLstmState,
        backward_tokens: torch.Tensor | None = None,
    ) -> tuple[list[torch.Tensor], BiLstmState]:
        both = [tokens] if backward_tokens is None else [tokens, backward_tokens]
        if runs_whole_lstms(tokens) and (weights := self.plain_weights):
            precisions = {one.precision for name in DIRECTIONS for one in self.layers(name)}
            found = frozen_bilstm(
                both, lengths, start, weights, precisions, self.use_skip_connections
            )
            if found is not None:
                return found
        packing = Packing(lengths, tokens.shape[1])
        results = [
            self.stack(name, packing.pack(one, name), packing.batch_sizes, packing.sort(state))
            for name, one, state in zip(DIRECTIONS, (tokens, both[-1]), start)
        ]
        (forward, forward_end), (backward, backward_end) = results
        # Unpack one layer at a time and free its packed rows, which saves memory.
        layers = [
            packing.unpack(forward=forward.pop(), backward=backward.pop())
            for _ in range(self._num_layers)
        ]
        return layers[::-1], (packing.unsort(forward_end), packing.unsort(backward_end))

    def _run_as_allennlp(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if self.policy.name == "primed":
            raise ValueError("the LSTM of a primed biLM was called alone, expected a start state")
        rows, zeros = range(len(mask)), self.initial_state(1)
        start = self.policy.start(rows, (zeros, zeros))
        layers, end = self._run_padded(tokens, sentence_lengths(mask), start)
        self.policy.keep(rows, end)
        return torch.stack(layers)

    def stack(
        self,
        direction: str,
        inputs: torch.Tensor,
        batch_sizes: Sequence[int],
        state: LstmState,
        dropout: float = 0.0,
    ) -> tuple[list[torch.Tensor], LstmState]:
        """
        Run the layers of one direction over packed rows of token vectors. Return each layer's
        packed outputs, shape `(num_rows, projection_dim)`, and each sentence's final state.

        `batch_sizes` are the numbers of rows of each step. `"backward"` rows begin with each
        sentence's last token. States are in packed order. `dropout` is the probability for each
        layer's input in training, with a new mask at every step. The skip connection adds the input
        after dropout, as TensorFlow's `DropoutWrapper` does around bilm-tf's residual cells.
        """
        outputs, ends = [], []
        learns_state = wants_gradient(state)
        for layer, cell in enumerate(self.layers(direction)):
            if dropout:
                inputs = functional.dropout(inputs, dropout, self.training)
            takes_rows = not learns_state and _takes_rows(cell, direction)
            run = cell if takes_rows else functools.partial(_call_as_allennlp, cell, direction)
            output, *end = run(inputs, batch_sizes, state.hidden[layer], state.cell[layer])
            inputs = output + inputs if layer > 0 and self.use_skip_connections else output
            outputs.append(inputs)
            ends.append(end)
        return outputs, LstmState(*map(torch.stack, zip(*ends)))


def _takes_rows(layer: torch.nn.Module, direction: str) -> bool:
    """Return whether a layer may run over packed rows of this direction."""
    is_own = runs_as_defined(layer, LstmCellWithProjection)
    return is_own and DIRECTIONS[not layer.go_forward] == direction


def _call_as_allennlp(
    layer: torch.nn.Module,
    direction: str,
    inputs: torch.Tensor,
    batch_sizes: Sequence[int],
    hidden: torch.Tensor,
    cell: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Call a layer with padded sentences, as AllenNLP does."""
    say_slower("an LSTM layer was replaced, hooked or moved, or its initial state is learned")
    steps = torch.tensor(batch_sizes, dtype=torch.long, device="cpu")
    lengths = (steps > torch.arange(len(hidden), device="cpu").unsqueeze(1)).sum(dim=1)
    packing = Packing(lengths.to(inputs.device), len(batch_sizes))
    start = hidden.unsqueeze(0), cell.unsqueeze(0)
    is_zero = not any(one.any() for one in start)  # in AllenNLP `None`
    padded = packing.unpack(**{direction: inputs})
    outputs, end = layer(padded, lengths, None if is_zero else start)
    hidden, cell = (one.detach().squeeze(0) for one in end)
    return packing.pack(outputs, direction), hidden, cell
