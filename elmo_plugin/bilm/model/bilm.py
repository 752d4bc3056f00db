"""The biLM: token layer and bidirectional LSTM, with the state that runs from batch to batch."""

from typing import Any, Callable, Optional, Sequence

import torch

from elmo_plugin.bilm.kernels.packing import Packing, pack
from elmo_plugin.bilm.kernels.prepacked_linear import DTYPES
from elmo_plugin.bilm.kernels.product_module import ProductModule
from elmo_plugin.bilm.model.char_cnn import CharCnn
from elmo_plugin.bilm.model.characters import (
    BEGIN_OF_SENTENCE,
    END_OF_SENTENCE,
    NUM_CHARACTER_EMBEDDINGS,
    batch_to_ids,
    token_to_ids,
)
from elmo_plugin.bilm.model.lstm import BiLstm, LstmState
from elmo_plugin.bilm.model.options import ElmoOptions

STATE_MODES = ("carry", "reset", "primed")

# Where no gradient is wanted, so many sentences are run abreast and so many of their tokens at a
# time, at most: what is held beside the layers themselves grows neither with the batch nor with a
# sentence. Products are hardly faster with more.
SENTENCES_AT_ONCE = 256
TOKENS_AT_ONCE = 2048

# What a primed biLM reads once before its first sentence. Changing it changes every primed vector.
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


class BiLm(torch.nn.Module):
    """
    A bidirectional LSTM language model (Peters et al. 2018, section 3), without its softmax.

    Parameters are named as in AllenNLP's `_ElmoBiLm`. The recurrent state is neither parameter nor
    buffer: it follows `.to()`, stays out of `state_dict`, and DistributedDataParallel leaves each
    process its own.

    # Parameters

    options : `ElmoOptions`
        The sizes.
    state : `str`, optional (default = `"carry"`)
        Where a sentence's LSTM state starts. `"carry"`: where the same row of the batch before
        ended, as AllenNLP does, so that vectors depend on order and batching. `"reset"`: at zero.
        `"primed"`: at the state after a fixed warm-up text; deterministic, without the cold start.
    dtype : `Optional[str]`, optional (default = `None`)
        `"bfloat16"` or `"int8"`: matrix products in this precision while no gradient is wanted,
        several times faster and not quite the same numbers. Parameters, state and outputs keep
        their type. `None` for exact products.

    # Raises

    `ValueError`
        If `state` or `dtype` is none of these.
    """

    def __init__(
        self, options: ElmoOptions, state: str = "carry", dtype: Optional[str] = None
    ) -> None:
        super().__init__()
        if state not in STATE_MODES:
            raise ValueError(f"state is {state!r}, expected one of {STATE_MODES}")
        if dtype is not None and dtype not in DTYPES:
            raise ValueError(f"dtype is {dtype!r}, expected None or one of {DTYPES}")
        self.options = options
        self.state = state
        # AllenNLP's word for `mixture_size`; `Elmo(module=...)` asks any biLM for it.
        self.num_layers = options.num_layers + 1
        self._token_embedder = CharCnn.from_options(options)
        self._elmo_lstm = BiLstm(
            projection_dim=options.projection_dim,
            cell_size=options.cell_size,
            num_layers=options.num_layers,
            cell_clip=options.cell_clip,
            projection_clip=options.projection_clip,
            use_skip_connections=options.use_skip_connections,
        )
        for module in self.modules():
            if isinstance(module, ProductModule):
                module.dtype = dtype
        self._word_embedding: Optional[torch.nn.Embedding] = None
        self._carried: Optional[tuple[LstmState, LstmState]] = None
        self._primed: Optional[tuple[Any, tuple[LstmState, LstmState]]] = None

    def get_output_dim(self) -> int:
        """`embedding_dim`."""
        return self.options.embedding_dim

    def reset_states(self) -> None:
        """
        Forgets what earlier batches left behind; the next sentences start at zero (`"carry"`).
        """
        self._carried = None

    def forward(
        self, inputs: torch.Tensor, word_inputs: Optional[torch.Tensor] = None
    ) -> dict[str, Any]:
        """
        # Parameters

        inputs : `torch.Tensor`
            Character ids, shape `(batch_size, num_tokens, num_characters)`, padded on the right;
            a token of zeros is padding.
        word_inputs : `Optional[torch.Tensor]`
            Word ids, shape `(batch_size, num_tokens)`, after `cache_vocabulary`; 0 = padding. If
            one is not in the cache, the characters are used for the whole batch.

        # Returns

        `dict[str, Any]`
            `"activations"`: `mixture_size` tensors of shape
            `(batch_size, num_tokens + 2, embedding_dim)`, sentence boundaries included, zero at
            padding; `"mask"`: bool, shape `(batch_size, num_tokens + 2)`.

        # Raises

        `ValueError`
            If `inputs` does not have this shape, or holds ids that no character has.
        """
        self._check(inputs)
        lengths, ids, encode = self._with_boundaries(inputs, word_inputs)
        batch_size, padded_length = len(lengths), inputs.shape[1] + 2
        sentences_at_once, tokens_at_once = SENTENCES_AT_ONCE, TOKENS_AT_ONCE
        if torch.is_grad_enabled() and any(one.requires_grad for one in self.parameters()):
            sentences_at_once, tokens_at_once = batch_size, batch_size * padded_length
        packings = pack(lengths, padded_length, sentences_at_once)
        like = self._token_embedder._char_embedding_weights
        shape = batch_size * padded_length, self.options.embedding_dim
        layers = [
            torch.zeros(shape, dtype=like.dtype, device=like.device) for _ in range(self.num_layers)
        ]
        for packing in packings:
            for rows, _ in packing.parts(tokens_at_once):
                places = packing.forward_rows[rows]
                tokens = encode(ids[places]).to(like.dtype)
                for half in self._halves():
                    layers[0][:, half].index_copy_(0, places, tokens)
        self._run(layers, packings, batch_size, tokens_at_once)
        steps = torch.arange(padded_length, device=lengths.device)
        return {
            "activations": [layer.view(batch_size, padded_length, shape[1]) for layer in layers],
            "mask": steps < lengths.unsqueeze(1),
        }

    def _check(self, inputs: torch.Tensor) -> None:
        if inputs.dim() != 3 or inputs.shape[-1] != self.options.num_characters:
            raise ValueError(
                f"character ids have shape {tuple(inputs.shape)}, expected "
                f"(batch_size, num_tokens, {self.options.num_characters})"
            )
        if inputs.numel() > 0:
            for character in (int(found) for found in inputs.aminmax()):
                if not 0 <= character <= NUM_CHARACTER_EMBEDDINGS:
                    raise ValueError(
                        f"inputs hold the character id {character}, expected 0 to "
                        f"{NUM_CHARACTER_EMBEDDINGS}"
                    )

    def _with_boundaries(
        self, inputs: torch.Tensor, word_inputs: Optional[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
        """
        Each sentence's length with boundaries; the ids of every place of the flattened padded
        batch; what makes vectors of such ids.
        """
        if word_inputs is not None and self._has_cached(word_inputs):
            assert self._word_embedding is not None
            known = self._word_embedding.num_embeddings
            lengths = (word_inputs > 0).sum(dim=1) + 2
            return lengths, _bounded(word_inputs, lengths, known, known + 1), self._cached_vectors
        begin, end = (
            inputs.new_tensor(token_to_ids(mark, self.options.num_characters))
            for mark in (BEGIN_OF_SENTENCE, END_OF_SENTENCE)
        )
        lengths = (inputs > 0).any(dim=-1).sum(dim=1) + 2
        return lengths, _bounded(inputs, lengths, begin, end), self._token_embedder

    def _halves(self) -> tuple[slice, slice]:
        """Of a layer's last axis: forward, backward."""
        projection_dim = self.options.projection_dim
        return slice(0, projection_dim), slice(projection_dim, 2 * projection_dim)

    def _run(
        self,
        layers: list[torch.Tensor],
        packings: list[Packing],
        batch_size: int,
        tokens_at_once: int,
    ) -> None:
        """Fills the upper layers, shape `(batch_size * (num_tokens + 2), embedding_dim)`."""
        states = self.start_states(batch_size)
        halves = self._halves()
        for packing in packings:
            both_rows = packing.forward_rows, packing.backward_rows
            for direction, rows, half, whole in zip(
                ("forward", "backward"), both_rows, halves, states
            ):
                state = whole.map(lambda values: values[:, packing.order])  # noqa: B023
                for part, batch_sizes in packing.parts(tokens_at_once):
                    places, size = rows[part], batch_sizes[0]
                    outputs, final = self._elmo_lstm(
                        direction,
                        layers[0][:, halves[0]].index_select(0, places),
                        batch_sizes,
                        LstmState(state.hidden[:, :size], state.cell[:, :size]),
                    )
                    for layer, output in zip(layers[1:], outputs):
                        layer[:, half].index_copy_(0, places, output)
                    state = _continued(state, final)
                if self.state == "carry":
                    whole.hidden[:, packing.order] = state.hidden
                    whole.cell[:, packing.order] = state.cell
        if self.state == "carry":
            self.keep_states(*states)

    # --- state ---------------------------------------------------------------------------------

    def start_states(self, batch_size: int) -> list[LstmState]:
        """
        Both directions' state at the start of a batch's sentences, forward first; in carry, new
        tensors.
        """
        if self.state == "primed":
            return [
                state.map(lambda values: values.expand(-1, batch_size, -1))
                for state in self._primed_state()
            ]
        zeros = self._elmo_lstm.initial_state(batch_size)
        if self.state == "reset" or self._carried is None:
            return [zeros, self._elmo_lstm.initial_state(batch_size)]
        # A batch larger than any before starts its new rows at zero.
        known = min(self._carried[0].hidden.shape[1], batch_size)
        return [
            LstmState(
                torch.cat([carried.hidden[:, :known], zeros.hidden[:, known:]], dim=1),
                torch.cat([carried.cell[:, :known], zeros.cell[:, known:]], dim=1),
            )
            for carried in self._carried
        ]

    def keep_states(self, *finals: LstmState) -> None:
        """Carries these on; rows past a small batch keep what they had."""
        if self._carried is None:
            self._carried = (finals[0], finals[1])
            return
        forward, backward = map(_continued, self._carried, finals)
        self._carried = (forward, backward)

    def _primed_state(self) -> tuple[LstmState, LstmState]:
        """The state after the warm-up text, run again only when a parameter has changed."""
        key = tuple((id(parameter), parameter._version) for parameter in self.parameters())
        if self._primed is None or self._primed[0] != key:
            sentences = [line.split() for line in WARM_UP_TEXT.splitlines()]
            device = self._token_embedder._char_embedding_weights.device
            state, carried = self.state, self._carried
            self.state, self._carried = "carry", None
            try:
                with torch.no_grad():
                    for sentence in sentences:
                        self(batch_to_ids([sentence], self.options.num_characters).to(device))
                assert self._carried is not None
                self._primed = (key, self._carried)
            finally:
                self.state, self._carried = state, carried
        return self._primed[1]

    def train(self, mode: bool = True) -> "BiLm":
        """
        Also runs the warm-up text again: weights changed by way of `.data`, as AllenNLP's moving
        average does it before and after an evaluation, show no sign of it.
        """
        self._primed = None
        return super().train(mode)

    def _apply(self, fn: Any, recurse: bool = True) -> "BiLm":
        """`.to()`, `.double()` and the like move the state too."""
        super()._apply(fn, recurse)
        if self._carried is not None:
            self._carried = (self._carried[0].map(fn), self._carried[1].map(fn))
        self._primed = None
        return self

    # --- cached token vectors ------------------------------------------------------------------

    def token_vectors(self, tokens: Sequence[str], batch_size: int = 1024) -> torch.Tensor:
        """
        Context-independent vectors of single tokens.

        # Parameters

        tokens : `Sequence[str]`
            Any tokens.
        batch_size : `int`, optional (default = `1024`)
            Tokens computed at once.

        # Returns

        `torch.Tensor`
            Shape `(len(tokens), projection_dim)`.
        """
        device = self._token_embedder._char_embedding_weights.device
        vectors = []
        for start in range(0, max(len(tokens), 1), batch_size):
            ids = batch_to_ids([tokens[start : start + batch_size]], self.options.num_characters)
            vectors.append(self._token_embedder.encode(ids[0].to(device)))
        return torch.cat(vectors)

    def cache_vocabulary(self, tokens: Sequence[str], requires_grad: bool = False) -> None:
        """
        Computes the token layer of a vocabulary once; `forward` then looks `word_inputs` up.

        # Parameters

        tokens : `Sequence[str]`
            The words in the order of their ids. Id 0 is the padding token's, its vector zero.
        requires_grad : `bool`, optional (default = `False`)
            Whether the cached vectors train.
        """
        with torch.no_grad():
            vectors = self.token_vectors(tokens)
            vectors[0] = 0.0
        self._word_embedding = torch.nn.Embedding.from_pretrained(
            vectors, freeze=not requires_grad, padding_idx=0
        )

    def _has_cached(self, word_inputs: torch.Tensor) -> bool:
        if self._word_embedding is None:
            return False
        return word_inputs.numel() == 0 or (
            int(word_inputs.max()) < self._word_embedding.num_embeddings
        )

    def _cached_vectors(self, ids: torch.Tensor) -> torch.Tensor:
        """Word ids, and beyond them the two boundaries, to vectors."""
        assert self._word_embedding is not None
        known = self._word_embedding.num_embeddings
        vectors = self._word_embedding(ids.clamp(max=known - 1))
        # Not kept with the words: the weights may change, by an archive's for one.
        boundaries = self.token_vectors([BEGIN_OF_SENTENCE, END_OF_SENTENCE])
        for number, boundary in enumerate(boundaries, start=known):
            vectors = torch.where((ids == number).unsqueeze(1), boundary, vectors)
        return vectors


def _continued(state: LstmState, final: LstmState) -> LstmState:
    """The final state; rows past it keep what they had."""
    size = final.hidden.shape[1]
    return LstmState(
        torch.cat([final.hidden, state.hidden[:, size:]], dim=1),
        torch.cat([final.cell, state.cell[:, size:]], dim=1),
    )


def _bounded(ids: torch.Tensor, lengths: torch.Tensor, begin: Any, end: Any) -> torch.Tensor:
    """
    With the ids of boundaries around each sentence, its places flattened; from shape
    `(batch_size, num_tokens, ...)` to `(batch_size * (num_tokens + 2), ...)`.
    """
    batch_size, num_tokens = ids.shape[:2]
    padded = ids.new_zeros(batch_size, num_tokens + 2, *ids.shape[2:])
    padded[:, 1:-1] = ids
    padded[:, 0] = begin
    padded[torch.arange(batch_size, device=ids.device), lengths - 1] = end
    return padded.flatten(0, 1)
