"""The biLM: a token layer, and a bidirectional LSTM with explicit initial and final states."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.backend import (
    CHECK,
    DTYPES,
    BiLstmState,
    LstmState,
    WeightsModule,
    all_modules,
    all_parameters,
    any_weight,
    backend,
    check_ids,
    check_no_hooks,
    checked_once,
    depends_on_parameters_alone,
    derived,
    is_batched,
    is_in_backward,
    plain_class,
    plain_weights,
    run_eagerly,
    runs_as_defined,
    single_thread_after_fork,
    trains,
    warn_of_non_finite_weights,
    while_unchanged,
)
from elmo_plugin.bilm.model.char_cnn import CharCnn
from elmo_plugin.bilm.model.characters import batch_to_ids, sentence_lengths, with_boundaries
from elmo_plugin.bilm.model.lstm import DIRECTIONS, BiLstm
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.model.state import WARM_UP_TEXT


class BiLmOutput(NamedTuple):
    """
    Output of a biLM for one batch.

    `layers`: one tensor per layer, the token layer first, each of shape
    `(batch_size, num_tokens + 2, embedding_dim)`; boundaries included, zero at padding.
    `mask`: bool, shape `(batch_size, num_tokens + 2)`; false at padding.
    `end`: final LSTM state of each sentence in both directions, a `BiLstmState`; `None` from `of`.
    """

    layers: list[torch.Tensor]
    mask: torch.Tensor
    end: Any = None

    @classmethod
    def of(cls, output: Mapping[str, Any]) -> "BiLmOutput":
        """Convert the dictionary that `BiLm.forward` and AllenNLP's biLM return."""
        return cls(output["activations"], output["mask"])

    def tokens(self) -> "BiLmOutput":
        """Return the output without sentence boundaries, of `num_tokens` rows."""
        # A sentence's rows are <S>, the tokens, </S> and padding. Drop <S> and the last row. The
        # mask, two rows shorter, zeroes the </S> of shorter sentences.
        mask = self.mask[:, 2:]
        return BiLmOutput(
            [one[:, 1:-1] * mask.unsqueeze(-1) for one in self.layers], mask, self.end
        )


@plain_class
class BiLm(WeightsModule):
    """
    A bidirectional LSTM language model (Peters et al. 2018, section 3), without its softmax.

    `run` maps character ids and initial LSTM states to layers and final LSTM states. `forward` has
    the signature of AllenNLP's `_ElmoBiLm`; `state` decides how it handles LSTM states. Parameters
    are named as in AllenNLP. The carried state is neither a parameter nor a buffer: it follows
    `.to()`, but is not in `state_dict`, and DistributedDataParallel does not synchronize it.

    `run` is thread-safe. `forward` is thread-safe unless `state` is `"carry"`.

    # Parameters

    options : `ElmoOptions`
        Hyperparameters of the model.
    state : `str`, optional (default = `"carry"`)
        Initial LSTM state of a sentence: `"carry"`, `"reset"` or `"primed"`, see `StatePolicy`.
    dtype : `str | None`, optional (default = `None`)
        Dtype of matrix products when no gradient is needed: `"float16"`, `"bfloat16"` or `"int8"`
        are faster and slightly less accurate; `None` means the dtype of the parameters.
        Parameters, states and outputs keep their dtype.
    token_layer : `CharCnn | None`, optional (default = `None`)
        Token layer to use instead of the `CharCnn` built from `options`.

    # Raises

    `ValueError`
        If `state` or `dtype` is unknown.
    """

    def __init__(
        self,
        options: ElmoOptions,
        state: str = "carry",
        dtype: str | None = None,
        token_layer: CharCnn | None = None,
    ) -> None:
        super().__init__()
        if dtype is not None and dtype not in DTYPES:
            raise ValueError(f"dtype is {dtype!r}, expected None or one of {DTYPES}")
        self.options = options
        # AllenNLP's name for `mixture_size`. `Elmo(module=...)` reads this attribute.
        self.num_layers = options.num_layers + 1
        self._token_embedder = layer = token_layer or CharCnn(options)
        # What a token is, also if the token layer is replaced.
        self.token_class: type[CharCnn] = type(layer)
        self._word_embedding: torch.nn.Embedding | None
        # Here, so that parameters, and an optimizer's state, have AllenNLP's order.
        self.register_module("_word_embedding", None)
        # Each boundary's vector that a program assigned or read, and a copy of one that was read.
        self._boundaries: list[tuple[Any, Any]] = [(None, None)] * 2
        self._elmo_lstm = BiLstm(
            projection_dim=options.projection_dim,
            cell_size=options.cell_size,
            num_layers=options.num_layers,
            cell_clip=options.cell_clip,
            projection_clip=options.projection_clip,
            use_skip_connections=options.use_skip_connections,
        )
        self._made_lstm = [self._elmo_lstm]  # in a list, which registers no module
        for module in self.modules():
            if isinstance(module, WeightsModule):
                module.dtype = dtype
        self.register_load_state_dict_post_hook(warn_of_non_finite_weights)
        self.state = state

    @property
    def char_cnn(self) -> CharCnn:
        """Token layer of the biLM."""
        return self._token_embedder

    @property
    def lstm(self) -> BiLstm:
        """LSTM layers of both directions."""
        return self._elmo_lstm

    @property
    def _own_lstm(self) -> BiLstm:
        """The LSTM without its wrapper. If a program replaced it, the one that the biLM made."""
        found = (one for one in all_modules(self._elmo_lstm) if isinstance(one, BiLstm))
        return next(found, self._made_lstm[0])

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return any_weight(self).device

    @plain_weights
    def plain_weights(self) -> dict[Any, Any] | None:
        """
        Weights of the token layer and of each LSTM layer, and all parameters; `None` if the vectors
        depend on more than these and `options`, such as on a hook or a layer that was replaced.
        """
        return while_unchanged(self, self._find_weights)

    def _find_weights(self) -> dict[Any, Any] | None:
        if not depends_on_parameters_alone(self):
            return None
        tokens, lstm = self.char_cnn.plain_weights, self.lstm.plain_weights
        if tokens is None or lstm is None:
            return None
        found: dict[Any, Any] = {self.char_cnn: tokens, self.lstm: lstm}
        for direction, weights in zip(DIRECTIONS, zip(*lstm)):
            found.update(zip(self.lstm.layers(direction), weights))
        return found | {"parameters": all_parameters(self)}

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without the last check of `plain_weights`."""
        return {name: value for name, value in vars(self).items() if name != CHECK}

    def get_output_dim(self) -> int:
        """Return the width of a layer, `embedding_dim`."""
        of_tokens = getattr(self._token_embedder, "get_output_dim", None)  # a wrapper may have none
        return 2 * (self.options.projection_dim if of_tokens is None else of_tokens())

    def batch_to_ids(self, batch: Sequence[Sequence[str]]) -> torch.Tensor:
        """Convert tokenized sentences to character ids, which `run` takes as `inputs`."""
        single_thread_after_fork()
        return batch_to_ids(batch, self.options.num_characters, self.token_class.token_row)

    def cache_vocabulary(self, tokens: Sequence[str], requires_grad: bool = False) -> None:
        """
        Compute and store the token vectors of a vocabulary, AllenNLP's `vocab_to_cache`. `run` then
        looks them up by the ids in `word_inputs`. As in AllenNLP, they are parameters.

        `tokens` are the words in the order of their ids. Id 0 is the padding token, whose vector is
        zero. With `requires_grad`, the stored vectors are trained.
        """
        with torch.no_grad():
            vectors = self.token_vectors(tokens)
            vectors[0] = 0.0
        self._word_embedding = torch.nn.Embedding.from_pretrained(
            vectors, freeze=not requires_grad, padding_idx=0
        )
        self._boundaries = [(None, None)] * 2

    def create_cached_cnn_embeddings(self, tokens: Sequence[str]) -> None:
        """AllenNLP's name for `cache_vocabulary`; the vectors are trained if the biLM is."""
        self.cache_vocabulary(tokens, trains(self))

    def _boundary_vectors(self) -> Sequence[Any]:
        """
        Return the vectors of both boundaries: those that a program assigned or wrote to, else of a
        cached vocabulary.
        """
        known = self._boundaries
        if self._word_embedding is None:
            return [vector for vector, _ in known]
        # Without gradient, as in AllenNLP; computed at each use, because the weights may change.
        with torch.no_grad():
            computed = self.boundary_vectors()
        return [
            new if vector is None or (copy is not None and torch.equal(vector, copy)) else vector
            for new, (vector, copy) in zip(computed, known)
        ]

    def _read_boundary(self, index: int) -> Any:
        vector = self._boundary_vectors()[index]
        if vector is not None and vector is not self._boundaries[index][0]:
            self._boundaries[index] = vector, vector.clone()  # the program may write to it
        return vector

    def _assign_boundary(self, vector: torch.Tensor | None, index: int) -> None:
        self._boundaries[index] = vector, None

    # AllenNLP's names, which programs written for its `_ElmoBiLm` read and set.
    _requires_grad = property(trains, lambda self, _: None)  # assigning has no effect there
    _bos_embedding = property(
        lambda self: self._read_boundary(0), lambda self, one: self._assign_boundary(one, 0)
    )
    _eos_embedding = property(
        lambda self: self._read_boundary(1), lambda self, one: self._assign_boundary(one, 1)
    )

    @run_eagerly
    @checked_once
    def run(
        self,
        inputs: torch.Tensor,
        start: BiLstmState,
        word_inputs: torch.Tensor | None = None,
    ) -> BiLmOutput:
        """
        Compute the layers of a batch, starting from given LSTM states.

        # Parameters

        inputs : `torch.Tensor`
            Character ids, shape `(batch_size, num_tokens, num_characters)`, padded on the right
            with all-zero tokens.
        start : `BiLstmState`
            Initial LSTM state of each sentence in both directions.
        word_inputs : `torch.Tensor | None`
            Ids of the words in `cache_vocabulary`, shape `(batch_size, num_tokens)`; 0 = padding.
            If every id has a stored vector, `inputs` is not read.

        # Raises

        `ValueError`
            If ids have a wrong type or shape or an unknown character, or a token follows padding.
        """
        if word_inputs is not None and self._word_embedding is not None:
            check_ids(word_inputs, "word ids, shape (batch_size, num_tokens)")
            known = getattr(self._word_embedding, "num_embeddings", math.inf)
            bounds = word_inputs.aminmax() if word_inputs.numel() else ()
            if all(0 <= int(one) < known for one in bounds):
                return self._run_words(self._word_embedding, word_inputs.long(), start)
        found = self.embedded(inputs)
        # Taken out of the list, the vectors are freed before the LSTM runs.
        return self.run_vectors(found.pop(), found.pop(), start)

    def _run_words(
        self, words: torch.nn.Embedding, word_inputs: torch.Tensor, start: BiLstmState
    ) -> BiLmOutput:
        lengths = sentence_lengths(word_inputs > 0) + 2
        # Not `with_boundaries`, which writes: within `torch.vmap`, boundaries alone may be batched.
        # Shape: (batch_size, num_tokens + 2, projection_dim)
        vectors = functional.pad(words(word_inputs), (0, 0, 1, 1))
        steps = torch.arange(vectors.shape[1], device=vectors.device)
        for place, boundary in zip((0 * lengths, lengths - 1), self._boundary_vectors()):
            is_boundary = (steps == place.unsqueeze(1)).unsqueeze(2)
            vectors = torch.where(is_boundary, boundary, vectors)
        mask = steps < lengths.unsqueeze(1)
        return self.run_vectors(vectors[mask], mask, start)

    def embedded(self, inputs: torch.Tensor) -> list[torch.Tensor]:
        """
        Return the mask of a batch's tokens and boundaries, and their vectors, for `run_vectors`.

        A token layer that was hooked or replaced is called as AllenNLP calls its own.
        """
        lengths, layer = self.check(inputs) + 2, self._token_embedder
        if runs_as_defined(layer, CharCnn):
            ids, mask = with_boundaries(inputs, lengths, *layer.boundary_ids)
            return [mask, layer(ids[mask])]
        found = layer(inputs)
        return [found["mask"], found["token_embedding"][found["mask"]]]

    def run_vectors(
        self, vectors: torch.Tensor, mask: torch.Tensor, start: BiLstmState
    ) -> BiLmOutput:
        """
        Run the LSTM over the vectors of a batch's tokens and sentence boundaries.

        # Parameters

        vectors : `torch.Tensor`
            Shape `(num_rows, projection_dim)`: all vectors of the first sentence, then the second.
        mask : `torch.Tensor`
            Bool, shape `(batch_size, num_tokens + 2)`; false at padding.
        start : `BiLstmState`
            As in `run`.
        """
        # Both halves of the first layer are the token's vector.
        width, dtype = vectors.shape[1], any_weight(self).dtype
        first = vectors.new_zeros(*mask.shape, 2 * width, dtype=dtype)
        tokens = first[..., :width]
        tokens[mask] = vectors.to(first.dtype)
        first[..., width:] = tokens
        del vectors, tokens  # free memory for the LSTM
        return self._run_lstm(first, mask, start)

    @checked_once
    def _run_lstm(self, first: torch.Tensor, mask: torch.Tensor, start: BiLstmState) -> BiLmOutput:
        """Run the LSTM over the first layer of a batch, whose halves are both the token layer."""
        tokens = first[..., : first.shape[-1] // 2]
        if runs_as_defined(self._elmo_lstm, BiLstm):
            upper, end = self._elmo_lstm(tokens, mask.sum(dim=1), start)
        else:  # called as AllenNLP calls its own
            with self._own_lstm.policy.carrying(start) as policy:
                given = policy.states
                upper = self._elmo_lstm(tokens, mask)
                end = policy.carried
            is_other = self._own_lstm not in all_modules(self._elmo_lstm)
            if self.state != "carry" and is_other and policy.states is given:
                raise ValueError(
                    f"the state is {self.state!r}, expected 'carry': the LSTM was replaced by "
                    f"{type(self._elmo_lstm)}, which has states of its own"
                )
            first = torch.cat([tokens] * 2, dim=-1)  # as a hook may have written to them
        return BiLmOutput([first, *upper], mask, end)

    def check(self, inputs: torch.Tensor) -> torch.Tensor:
        """
        Return the number of tokens of each sentence, shape `(batch_size,)`. Raise a `ValueError` if
        `inputs` is wrong, as described under `run`.
        """
        single_thread_after_fork()
        check_ids(inputs)
        if inputs.dim() != 3 or inputs.shape[-1] != self.options.num_characters:
            raise ValueError(
                f"character ids have shape {tuple(inputs.shape)}, expected "
                f"(batch_size, num_tokens, {self.options.num_characters})"
            )
        greatest = self.token_class.greatest_id
        if inputs.numel() > 0:
            for found in map(int, inputs.aminmax()):
                if not 0 <= found <= greatest:
                    raise ValueError(f"found the character id {found}, expected 0 to {greatest}")
        return sentence_lengths((inputs > 0).any(dim=-1))

    @run_eagerly
    @checked_once
    def forward(
        self, inputs: torch.Tensor, word_inputs: torch.Tensor | None = None
    ) -> dict[str, Any]:
        """
        Compute the layers of a batch; `state` decides which LSTM states it starts from.

        # Parameters

        inputs, word_inputs : `torch.Tensor`
            As in `run`.

        # Returns

        `dict[str, Any]`: `"activations"` holds the `layers` of `BiLmOutput`, `"mask"` its `mask`.

        # Raises

        `RuntimeError`
            If gradient checkpointing computes the batch again in state `"carry"`.
        """
        check_ids(inputs)
        if self.state == "carry" and is_in_backward():
            raise RuntimeError(
                "gradient checkpointing computes a batch again in state 'carry', after the carried "
                "state has changed; expected state 'reset' or 'primed'"
            )
        rows = range(inputs.shape[:1].numel())
        output = self.run(inputs, self._start_states(rows), word_inputs)
        self.keep_states(rows, *output.end)
        return {"activations": output.layers, "mask": output.mask}

    @property
    def state(self) -> str:
        """Kind of initial state: `"carry"`, `"reset"` or `"primed"`; can be assigned."""
        return self._own_lstm.policy.name

    @state.setter
    def state(self, name: str) -> None:
        self._own_lstm.policy.name = name

    @property
    def carried(self) -> BiLstmState | None:
        """LSTM states carried over from earlier batches; `None` if there are none."""
        return self._own_lstm.policy.carried

    @carried.setter
    def carried(self, state: BiLstmState | None) -> None:
        self._own_lstm.policy.carried = state

    def start_states(self, rows: Sequence[int]) -> BiLstmState:
        """
        Return the initial states of these batch rows: all of a batch, or some to run a part.

        Raise a `ValueError` if the biLM has hooks or another `forward`, which `run` does not call.
        """
        check_no_hooks(self, BiLm)
        forward, backward = (one.map(torch.clone) for one in self._start_states(rows))
        return forward, backward  # copies: the caller may write to them

    def _start_states(self, rows: Sequence[int]) -> BiLstmState:
        single_thread_after_fork()
        zeros = self._own_lstm.initial_state(1)
        begin = self._primed_state() if self.state == "primed" else (zeros, zeros)
        return self._own_lstm.policy.start(rows, begin)

    def keep_states(self, rows: Sequence[int], *ends: LstmState) -> None:
        """
        Store these rows' forward and backward final states in state `"carry"`, and no others.
        States within `torch.vmap` are not stored, because they exist only there.
        """
        if any(is_batched(values) for state in ends for values in state):
            return
        self._own_lstm.policy.keep(rows, (ends[0], ends[1]))

    def train(self, mode: bool = True) -> "BiLm":
        """Set training or evaluation mode; see `WeightsModule.train`."""
        if any(one.training is not mode for one in all_modules(self)):
            super().train(mode)
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> "BiLm":
        """Convert the weights and the carried state, unless they are where they should be."""
        parameters = all_parameters(self)
        grads = [one.grad for one in parameters if one.grad is not None]
        with torch.no_grad():
            if self.plain_weights is None or any(
                fn(one) is not one
                for one in (*parameters, *grads, *(self._own_lstm.policy.states or ()))
            ):
                super()._apply(fn, recurse)
        return self

    def reset_states(self) -> None:
        """Forget the carried state, so that the next batch starts with zeros."""
        getattr(self._elmo_lstm, "reset_states", self._own_lstm.reset_states)()  # or a wrapper

    def _primed_state(self) -> BiLstmState:
        """
        Return the state after the warm-up text. It is computed at every call in training, and if a
        layer is not plain. Otherwise it is cached until a weight or a setting changes.
        """
        weights = self.plain_weights
        if weights is None or (torch.is_grad_enabled() and trains(self)):
            return self._run_warm_up()
        cells = *self.lstm.layers("forward"), *self.lstm.layers("backward")
        settings = (
            backend(),
            tuple((cell.clips, cell.precision) for cell in cells),
            self.lstm.use_skip_connections,
            tuple(self.char_cnn.boundary_ids.flatten().tolist()),
            self.char_cnn.activations,
            self.char_cnn.precision,
        )
        return derived(weights["parameters"], ("primed state", *settings), self._run_warm_up)

    @torch.inference_mode(False)  # the state is used outside inference mode too
    @torch.no_grad()
    def _run_warm_up(self) -> BiLstmState:
        state = (self._own_lstm.initial_state(1),) * 2
        for line in WARM_UP_TEXT.splitlines():
            state = self.run(self.batch_to_ids([line.split()]).to(self.device), state).end
        return state

    def boundary_vectors(self) -> torch.Tensor:
        """Return the vectors of both sentence boundaries, shape `(2, projection_dim)`."""
        return self._sentence_vectors([])

    def token_vectors(self, tokens: Sequence[str], batch_size: int = 1024) -> torch.Tensor:
        """Return context-independent token vectors, shape `(len(tokens), projection_dim)`."""
        starts = range(0, max(len(tokens), 1), batch_size)
        parts = (self._sentence_vectors(tokens[one : one + batch_size]) for one in starts)
        return torch.cat([vectors[1:-1] for vectors in parts])

    def _sentence_vectors(self, tokens: Sequence[str]) -> torch.Tensor:
        return self.embedded(self.batch_to_ids([tokens]).to(self.device)).pop()
