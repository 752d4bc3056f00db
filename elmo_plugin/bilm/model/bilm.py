"""The biLM: token layer and bidirectional LSTM, from a start state to an end state."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from elmo_plugin.bilm.kernels.backend import (
    DTYPES,
    BiLstmState,
    LstmState,
    WeightsModule,
    backend,
    derived,
)
from elmo_plugin.bilm.model.char_cnn import CharCnn
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.model.lstm import BiLstm
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.model.state import WARM_UP_TEXT


class BiLmOutput(NamedTuple):
    """
    `layers`: `mixture_size` tensors of shape `(batch_size, num_tokens + 2, embedding_dim)`,
    sentence boundaries included, zero at padding.
    `mask`: bool, shape `(batch_size, num_tokens + 2)`.
    `end`: the state at each sentence's end, both directions'.
    """

    layers: list[torch.Tensor]
    mask: torch.Tensor
    end: BiLstmState


class BiLm(WeightsModule):
    """
    A bidirectional LSTM language model (Peters et al. 2018, section 3), without its softmax.

    `run` is the function; `forward` calls it as AllenNLP's `_ElmoBiLm` is called, starting where
    `state` says. Parameters are named as there. The carried state is neither parameter nor buffer:
    it follows `.to()`, stays out of `state_dict`, and DistributedDataParallel leaves each process
    its own.

    `run` may be called from several threads, and `forward` in `"reset"` and `"primed"`; in
    `"carry"` every call goes on from the last one, so calls are one after the other.

    # Parameters

    options : `ElmoOptions`
        The sizes.
    state : `str`, optional (default = `"carry"`)
        Where a sentence's LSTM state starts, see `StatePolicy`.
    dtype : `str | None`, optional (default = `None`)
        `"float16"`, `"bfloat16"` or `"int8"`: products in this precision while no gradient is
        wanted, faster and not quite the same numbers. Parameters, state and outputs keep their
        type. `None` for exact products.
    token_layer : `CharCnn | None`, optional (default = `None`)
        Another than that of these sizes.

    # Raises

    `ValueError`
        If `state` or `dtype` is none of these.
    """

    lstm_class = BiLstm

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
        # AllenNLP's word for `mixture_size`; `Elmo(module=...)` asks any biLM for it.
        self.num_layers = options.num_layers + 1
        self._token_embedder = token_layer or CharCnn(options)
        self._boundary_ids = self.batch_to_ids([self._token_embedder.boundaries])[0]
        self._elmo_lstm = self.lstm_class(
            projection_dim=options.projection_dim,
            cell_size=options.cell_size,
            num_layers=options.num_layers,
            cell_clip=options.cell_clip,
            projection_clip=options.projection_clip,
            use_skip_connections=options.use_skip_connections,
        )
        for module in self.modules():
            if isinstance(module, WeightsModule):
                module.dtype = dtype
        self._policy = self._elmo_lstm.policy
        self.state = state

    @property
    def char_cnn(self) -> CharCnn:
        """The token layer."""
        return self._token_embedder

    @property
    def lstm(self) -> BiLstm:
        """Both directions' stacks."""
        return self._elmo_lstm

    @property
    def device(self) -> torch.device:
        """Of the weights."""
        return self._token_embedder.char_embedding.device

    def get_output_dim(self) -> int:
        """`embedding_dim`."""
        return self.options.embedding_dim

    def batch_to_ids(self, batch: Sequence[Sequence[str]]) -> torch.Tensor:
        """Tokenized sentences as `inputs` of this biLM."""
        return batch_to_ids(batch, self.options.num_characters, self._token_embedder.token_row)

    def run(
        self,
        inputs: torch.Tensor,
        start: BiLstmState,
        word_inputs: torch.Tensor | None = None,
    ) -> BiLmOutput:
        """
        # Parameters

        inputs : `torch.Tensor`
            Character ids, shape `(batch_size, num_tokens, num_characters)`, padded on the right;
            a token of zeros is padding.
        start : `BiLstmState`
            Where each sentence starts, in either direction.
        word_inputs : `torch.Tensor | None`
            Not read here, see `CachedVocabularyBiLm`.

        # Returns

        `BiLmOutput`

        # Raises

        `ValueError`
            If `inputs` does not have this shape, or holds ids that no character has.
        """
        self.check(inputs)
        lengths = (inputs > 0).any(dim=-1).sum(dim=1) + 2
        begin, end = self._boundary_ids.to(inputs)
        ids = with_boundaries(inputs, lengths, begin, end)
        return self.run_ids(ids, lengths, self._token_embedder, start)

    def run_ids(
        self,
        ids: torch.Tensor,
        lengths: torch.Tensor,
        encode: Callable[[torch.Tensor], torch.Tensor],
        start: BiLstmState,
    ) -> BiLmOutput:
        """`run` on `with_boundaries`, with what makes vectors of the ids of real tokens."""
        mask = torch.arange(ids.shape[1], device=ids.device) < lengths.unsqueeze(1)
        # Both directions' half of the first layer is the token's vector.
        projection_dim = self.options.projection_dim
        first = self._token_embedder.char_embedding.new_zeros(*mask.shape, 2 * projection_dim)
        tokens = first[..., :projection_dim]
        backend().tokens_over_padded(encode, ids, mask, tokens, self.parameters())
        first[..., projection_dim:] = tokens
        upper, ends = self._elmo_lstm(tokens, lengths, start)
        return BiLmOutput([first, *upper], mask, ends)

    def check(self, inputs: torch.Tensor) -> None:
        """Raises the `ValueError` of `run`."""
        if inputs.dim() != 3 or inputs.shape[-1] != self.options.num_characters:
            raise ValueError(
                f"character ids have shape {tuple(inputs.shape)}, expected "
                f"(batch_size, num_tokens, {self.options.num_characters})"
            )
        if inputs.numel() > 0:
            for character in (int(found) for found in inputs.aminmax()):
                if not 0 <= character <= self._token_embedder.greatest_id:
                    raise ValueError(
                        f"inputs hold the character id {character}, expected 0 to "
                        f"{self._token_embedder.greatest_id}"
                    )

    def forward(
        self, inputs: torch.Tensor, word_inputs: torch.Tensor | None = None
    ) -> dict[str, Any]:
        """
        # Parameters

        inputs, word_inputs : `torch.Tensor`
            As in `run`.

        # Returns

        `"activations"` and `"mask"`: `layers` and `mask` of `BiLmOutput`.
        """
        output = self.run(inputs, self.start_states(inputs.shape[:1].numel()), word_inputs)
        self.keep_states(*output.end)
        return {"activations": output.layers, "mask": output.mask}

    @property
    def state(self) -> str:
        """Where a sentence starts: `"carry"`, `"reset"` or `"primed"`."""
        return self._policy.name

    @state.setter
    def state(self, name: str) -> None:
        self._policy.name = name

    @property
    def carried(self) -> BiLstmState | None:
        """What earlier batches left behind, both directions'; `None` at the start."""
        return self._policy.carried

    @carried.setter
    def carried(self, state: BiLstmState | None) -> None:
        self._policy.carried = state

    def start_states(self, batch_size: int) -> BiLstmState:
        """Both directions' state at the start of a batch's sentences."""
        return self.start_states_of(range(batch_size))

    def start_states_of(self, rows: Sequence[int]) -> BiLstmState:
        """The same of some rows of a batch, so that it may be run in parts, in any order."""
        zeros = self._elmo_lstm.initial_state(1)
        begin = self._primed_state() if self.state == "primed" else (zeros, zeros)
        return self._policy.start(rows, begin)

    def keep_states(self, *ends: LstmState) -> None:
        """In carry, later batches go on from these; rows past a small batch keep what they had."""
        self.keep_states_of(range(ends[0].hidden.shape[1]), *ends)

    def keep_states_of(self, rows: Sequence[int], *ends: LstmState) -> None:
        """The same of some rows of a batch."""
        self._policy.keep(rows, (ends[0], ends[1]))

    def reset_states(self) -> None:
        """In carry, forgets what earlier batches left behind: the next ones start at zero."""
        self._policy.carried = None

    @torch.inference_mode(False)  # steps that train begin there, too
    @torch.no_grad()
    def _primed_state(self) -> BiLstmState:
        """The state after the warm-up text, run again only when a weight or a clip has changed."""

        def run() -> BiLstmState:
            zeros = self._elmo_lstm.initial_state(1)
            state = (zeros, zeros)
            for line in WARM_UP_TEXT.splitlines():
                ids = self.batch_to_ids([line.split()])
                state = self.run(ids.to(self.device), state).end
            return state

        cells = *self.lstm.layers("forward"), *self.lstm.layers("backward")
        clips = tuple((cell.cell_clip, cell.projection_clip) for cell in cells)
        return derived(list(self.parameters()), "primed state", (self.precision, clips), run)

    def _apply(self, fn: Any, recurse: bool = True) -> "BiLm":
        """`.to()`, `.double()` and the like move the state too."""
        super()._apply(fn, recurse)
        self._policy.move(fn)
        return self

    def token_vectors(self, tokens: Sequence[str], batch_size: int = 1024) -> torch.Tensor:
        """
        Context-independent vectors of single tokens, `batch_size` computed at once; shape
        `(len(tokens), projection_dim)`.
        """
        vectors = []
        for start in range(0, max(len(tokens), 1), batch_size):
            ids = self.batch_to_ids([tokens[start : start + batch_size]])
            vectors.append(self._token_embedder(ids[0].to(self.device)))
        return torch.cat(vectors)


def with_boundaries(ids: torch.Tensor, lengths: torch.Tensor, begin: Any, end: Any) -> torch.Tensor:
    """
    With the ids of boundaries around each sentence; from shape `(batch_size, num_tokens, ...)` to
    `(batch_size, num_tokens + 2, ...)`. `lengths` count them.
    """
    batch_size, num_tokens = ids.shape[:2]
    padded = ids.new_zeros(batch_size, num_tokens + 2, *ids.shape[2:])
    padded[:, 1:-1] = ids
    padded[:, 0] = begin
    padded[torch.arange(batch_size, device=ids.device), lengths - 1] = end
    return padded
